"""Which repository a folder's work goes to: its own, or a private one kept outside of the folder."""

import asyncio
import hashlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line
from untildone.errors import FolderRefused, WorkspaceError
from untildone.git.agents_repository import AgentsRepository
from untildone.git.fence import Fence, fence_around
from untildone.git.filters import FILTERS, configured_filters, missing_filters, switched_off
from untildone.git.locks import GitFolders, lock_named, outlast
from untildone.git.odd_files import ASIDE, OddFiles, find_odd, put_aside
from untildone.git.room_entries import common_folder
from untildone.git.run import READ_TIMEOUT, GitResult, disk_trouble, git, refuse_failed, verb
from untildone.git.status import STATUS, Status, parse_status

PRIVATE_EMAIL = "untildone@localhost"
PRIVATE_IDENTITY = ("-c", "user.name=untildone", "-c", f"user.email={PRIVATE_EMAIL}")

NO_HOOKS = ("-c", "core.hooksPath=/dev/null")

# A hook inherits what git is told. A test suite in one that makes repositories of its own would then work in ours, so
# here git finds the repository by itself, as it does for the user; that it finds the right one was looked at before.
_RUN_HOOKS = frozenset({"checkout", "commit", "merge", "push", "switch"})
_MOVING = frozenset({"checkout", "commit", "merge", "switch"})
_SWITCHING = _MOVING - {"commit"}
_KILLED_INSIDE = 128 + signal.SIGKILL
"""What a sandbox says of a program that was killed."""
STATUS_PATIENCE = 20.0
"""Seconds after which the tree of an agent in a sandbox is looked at for what may keep git waiting."""
_large: set[Path] = set()
"""Trees of which a status takes longer by itself."""
_TRIES = 4
"""Locks come and go while several programs use a repository."""
_IDENTITY = tuple(f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL"))
"""Variables that say in whose name a commit is made."""
_TALK = frozenset({"fetch", "ls-remote", "push"})
"""Helpers of git may take the login from the environment."""

# A plain folder has no .gitignore of its own more often than not; nobody wants copies of these.
_NOT_WORK = ("node_modules/", ".venv/", "venv/", "__pycache__/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How programs that git runs (hooks, filters) are kept from steering the run and from outliving us."""

    marks: tuple[tuple[str, str], ...] = ()
    """Added to their environment: who carries them is not the operator."""
    behind: tuple[str, ...] = ()
    """The program that ends what they leave behind, and all of it should we die."""
    withheld: frozenset[str] = frozenset()
    """Variables they do not get, such as the login for a forge."""
    inside: "Inside | None" = None
    """Where the agent works; they run nowhere else then. None: where we run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """A sandbox for what git runs of the repository's own: its hooks and filters may be what the agent wrote."""

    words: Callable[[str], Sequence[str]]
    """What goes before git so that it works in a folder, in the sandbox, and leaves nothing behind."""
    env: Mapping[str, str]
    repository: AgentsRepository | None = None
    """What the agent has in place of the user's repository; None: its folder is in no repository."""
    readers: tuple[AgentsRepository, ...] = ()
    """The same of agents that only read."""


UNKEPT = Keeping()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A working tree and the git folder that remembers it."""

    top: Path
    git_dir: Path
    index: Path
    exclude: Path
    private: bool = False
    """The git folder is ours and lies outside of the tree; the user knows nothing of it."""
    missing_filters: frozenset[str] = frozenset()
    """Filters that are configured and not installed: git is told to leave them alone."""
    filters: frozenset[tuple[str, str]] = frozenset()
    """Keys and commands of all filters as they were configured at the start: later ones may be the agent's."""
    wary: tuple[str, ...] = ()
    """Settings with which nothing runs outside that an agent in a sandbox may have written."""
    fence: Fence | None = None
    """Where .git led at the start; None: it is not asked."""
    keeping: Keeping = UNKEPT
    real: "Repository | None" = None
    """Of which this is what the agent has instead: git runs inside only. None: it is not the agent's."""
    removed_locks: list[str] = field(default_factory=list, compare=False)
    """Lines about locks of a dead git that were removed, for the user; whoever tells them takes them out."""

    @property
    def agents(self) -> "Repository":
        """The same tree as the agent has it: in a sandbox with a repository of its own, otherwise this very one.

        Whatever looks at the files of the tree, or changes them, is done with this one.
        """
        inside = self.keeping.inside
        if self.private or inside is None or inside.repository is None or inside.repository.top != self.top:
            return self
        inside.repository.put_right()
        git_dir = inside.repository.git_dir
        return replace(self, git_dir=git_dir, index=git_dir / "index", fence=None, real=self)

    async def status(self, ignore: Iterable[bytes] = ()) -> Status:
        """What differs from the last commit. Where an agent has a repository of its own, both are the same after it."""
        agents = self.agents
        if agents is self:
            asked = self._patiently(self, {}) if self.keeping.inside else self.git(*STATUS)
            return parse_status((await asked).out, ignore=ignore)
        copy = _agents(self.keeping)
        await copy.follow(self)
        is_whole = copy.is_seen_whole()
        answer = await self._patiently(self if is_whole else agents, copy.plain if is_whole else {})
        found = parse_status(answer.out, ignore=ignore)
        return replace(found, branch=copy.there.branch, head=copy.there.commit)

    def agents_refusal(self) -> str:
        """Why what the agent committed last was not taken over; "" if it was."""
        return "" if self.agents is self else _agents(self.keeping).refusal(self)

    async def _patiently(self, one: "Repository", env: Mapping[str, str]) -> GitResult:
        """A status. If it takes long, a pipe that the agent left may be the reason: then it is put aside."""
        patience = READ_TIMEOUT if self.top in _large else STATUS_PATIENCE
        try:
            return await one.git(*STATUS, env=env, timeout=patience)
        except WorkspaceError:
            odd = await self.put_odd_aside()
            if not odd.special:
                _large.add(self.top)
        return await one.git(*STATUS, env=env)

    async def put_odd_aside(self) -> OddFiles:
        """Give what is no plain file another name where git would read it."""
        odd = await asyncio.to_thread(find_odd, self.top)
        for place in odd.special:
            put_aside(place)
            self.removed_locks.append(f"{one_line(place)} is no file, and git would wait for it: it has {ASIDE} added")
        return odd

    async def follow_agents(self) -> None:
        """Take over what was committed in the agent's repository. WorkspaceError when that is refused."""
        if self.agents is not self:
            await _agents(self.keeping).follow(self, strict=True)

    async def renew_readers(self) -> None:
        """Let agents that only read have checked out what is checked out here."""
        for reader in self.keeping.inside.readers if self.keeping.inside else ():
            await reader.renew(self)

    async def keep_agents_branches(self) -> None:
        """Keep what the agent committed to branches of its own."""
        if self.agents is not self:
            await _agents(self.keeping).keep_branches(self)

    async def taken(self, wanted: str, *but: str | None) -> str:
        """An object that was written in the agent's repository, and is in this one now as well."""
        return wanted if self.agents is self else await _agents(self.keeping).take(self, wanted, *but)

    @property
    def folders(self) -> GitFolders:
        """Where its locks lie."""
        if self.real is not None:
            return GitFolders(top=self.top, git_dir=self.git_dir, common=self.git_dir, are_agents=True)
        return GitFolders(top=self.top, git_dir=self.git_dir, common=common_folder(self.git_dir))

    async def git(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        check: bool = True,
        timeout: float = READ_TIMEOUT,
        dies_with_us: bool = False,
        within: Sequence[str] = (),
        most: int = -1,
    ) -> GitResult:
        """Run git on this tree and no other. WorkspaceError when .git leads to another one by now.

        `within`: what goes before it to bound it, outside.

        What a lock stops is done again as soon as the lock is gone; GitLocked if it stays.
        """
        if self.fence is not None:
            self.fence.refuse_another(self.top)
        if self.real is None:
            way = self._outside(args, env or {}, dies_with_us=dies_with_us)
        else:
            way = await self._inside(args, env or {}, dies_with_us=dies_with_us)
        for _ in range(_TRIES):
            done = await git(
                way.args, cwd=self.top, git_dir=way.git_dir, work_tree=way.work_tree, env=way.env, base=way.base,
                withheld=way.withheld, behind=way.behind or within, stdin=stdin, timeout=timeout,
                dies_with_us=dies_with_us, most=most, check=False,
            )  # fmt: skip
            if self.real is not None:
                _agents(self.keeping).look_anew_after(done)
            if way.base is not None and done.code == _KILLED_INSIDE:
                done = replace(done, code=-signal.SIGKILL)
            if done.code == 0 or (lock := lock_named(way.said(done.err), self.folders)) is None:
                break
            if said := await outlast(lock, self.folders):
                self.removed_locks.append(said)
        if check:
            refuse_failed(done, args, self.top)
        if self.real is not None and way.moves and done.code == 0:
            await _agents(self.keeping).bring_out(self.real)
        return done

    def _outside(self, args: Sequence[str], env: Mapping[str, str], *, dies_with_us: bool) -> "_Way":
        command, kept = verb(args), self.keeping
        args = (*(NO_HOOKS if kept.inside else ()), *self.wary, *args)
        finds_itself = not self.private and command in _RUN_HOOKS and NO_HOOKS[1] not in args
        # If the agent deletes .git, git must fail instead of finding the repository of a folder above.
        fence = {"GIT_CEILING_DIRECTORIES": str(self.top.parent)}
        path = {} if kept.inside is None else {"PATH": _path_outside_of(self.top)}
        return _Way(
            args=(*switched_off(self.missing_filters), *args),
            git_dir=None if finds_itself else self.git_dir,
            work_tree=None if finds_itself else self.top,
            env={**fence, **path, **dict(kept.marks), **env},
            withheld=frozenset() if command in _TALK else kept.withheld,
            behind=kept.behind if dies_with_us else (),
        )

    async def _inside(self, args: Sequence[str], env: Mapping[str, str], *, dies_with_us: bool) -> "_Way":
        """Where hooks run, git finds the repository by itself, as outside; only those need somebody to clean up."""
        agents, inside = _agents(self.keeping), self.keeping.inside
        assert self.real is not None, "it is not the agent's"
        assert inside is not None, "there is no inside"
        command = verb(args)
        if command in _SWITCHING:
            await agents.bring_refs_in(self.real)
        finds_itself = command in _RUN_HOOKS and NO_HOOKS[1] not in args
        hooks = () if NO_HOOKS[1] in args else ("-c", f"core.hooksPath={agents.hooks}")
        fence = {"GIT_CEILING_DIRECTORIES": str(self.top.parent)}
        named = {name: os.environ[name] for name in _IDENTITY if name in os.environ}
        return _Way(
            args=(*switched_off(self.missing_filters), *hooks, "-c", "commit.gpgSign=false", *args),
            env={
                **fence,
                **named,
                **dict(self.keeping.marks),
                **{name: agents.seen_at(value) for name, value in env.items()},
            },
            git_dir=None if finds_itself else agents.place,
            work_tree=None if finds_itself else self.top,
            base=inside.env,
            behind=await asyncio.to_thread(
                agents.behind, inside.words if dies_with_us else None, for_hooks=finds_itself
            ),
            said=agents.told_outside,
            moves=command in _MOVING,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How one command is run."""

    args: tuple[str, ...]
    env: Mapping[str, str]
    git_dir: Path | None = None
    work_tree: Path | None = None
    base: Mapping[str, str] | None = None
    withheld: frozenset[str] = frozenset()
    behind: Sequence[str] = ()
    said: Callable[[str], str] = str
    """What it said, with the places that are meant."""
    moves: bool = False
    """Another commit may be checked out after it."""


def _agents(keeping: Keeping) -> AgentsRepository:
    assert keeping.inside is not None, "there is no inside"
    assert keeping.inside.repository is not None, "the agent has no repository of its own"
    return keeping.inside.repository


def _path_outside_of(tree: Path) -> str:
    """Where programs are looked for: not where an agent may put them."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    kept = (place for place in places if place.startswith("/"))
    return os.pathsep.join(place for place in kept if not Path(os.path.realpath(place)).is_relative_to(tree))


def other_tree(repository: Repository, top: Path) -> Repository:
    """Another tree of the same repository. WorkspaceError when it does not belong to it any more."""
    found = fence_around(top)
    if found.common != os.path.realpath(common_folder(repository.git_dir)):
        raise WorkspaceError(f"{top / '.git'} does not lead to {repository.git_dir}: put it back, or remove that tree")
    git_dir = Path(found.git_dir)
    return replace(repository, top=top, git_dir=git_dir, index=git_dir / "index", fence=found)


def project_root(cwd: Path) -> Path:
    """The top folder of the git repository around `cwd`, or `cwd` itself."""
    folder = cwd.resolve()
    return next((place for place in (folder, *folder.parents) if is_repository(place)), folder)


async def open_repository(cwd: Path, *, private: Path) -> Repository:
    """Find or make the repository for this folder. FolderRefused when it is no place to work in."""
    folder, top = _checked(cwd), project_root(cwd)
    if not is_repository(top) or (folder != top and await _is_stranger(folder, top)):
        return await _with_filters(await _make(_private(folder, private)))
    return await _with_filters(await public_repository(top))


def _checked(cwd: Path) -> Path:
    folder = cwd.resolve()
    if not folder.is_dir():
        raise FolderRefused(f"{cwd} is not a folder: give an existing one")
    if holds_home(folder) and not is_repository(folder):
        raise FolderRefused(f"{folder} is your home folder or holds it: start in the folder of a project")
    return folder


async def _is_stranger(folder: Path, top: Path) -> bool:
    """Whether the repository around a folder has nothing to do with it.

    Home kept in git (dotfiles) is not the project: a commit there would sweep up everything the user owns. And
    work in an ignored folder (build/, scratch/) would be invisible to the repository around it.
    """
    asked = ("check-ignore", "-q", "--", str(folder.relative_to(top)))
    return holds_home(top) or (await git(asked, cwd=top, check=False)).code == 0


async def public_repository(top: Path) -> Repository:
    """The one whose tree this is."""
    asked = ("rev-parse", "--absolute-git-dir", "--git-path", "index", "--git-path", "info/exclude")
    answer = await git(asked, cwd=top, env={"GIT_CEILING_DIRECTORIES": str(top.parent)})
    git_dir, index, exclude = (top / line for line in os.fsdecode(answer.out).rstrip("\n").split("\n"))
    return Repository(top=top, git_dir=git_dir, index=index, exclude=exclude, fence=fence_around(top))


async def _with_filters(repository: Repository) -> Repository:
    configured = configured_filters(await repository.git(*FILTERS, check=False))
    missing = missing_filters(configured, repository.top)
    return replace(repository, filters=configured, missing_filters=missing) if configured else repository


def _private(folder: Path, store: Path) -> Repository:
    git_dir = store.resolve() / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}.git"
    exclude = git_dir / "info" / "exclude"
    return Repository(top=folder, git_dir=git_dir, index=git_dir / "index", exclude=exclude, private=True)


async def _make(repository: Repository) -> Repository:
    if not (repository.git_dir / "HEAD").is_file():
        with disk_trouble(f"cannot keep history in {repository.git_dir}"):
            repository.git_dir.mkdir(parents=True, exist_ok=True)
            await repository.git("init", "-q")
            repository.exclude.parent.mkdir(exist_ok=True)
            repository.exclude.write_text("".join(f"{pattern}\n" for pattern in _NOT_WORK))
    return repository


def is_repository(folder: Path) -> bool:
    """Whether a folder is the top of a tree of a repository."""
    mark = folder / ".git"
    return mark.is_file() or (mark / "HEAD").is_file()


def holds_home(folder: Path) -> bool:
    """Whether a folder is the user's home, or around it: a repository there is not that of a project below."""
    return Path.home().resolve().is_relative_to(folder)
