"""Which repository a folder's work goes to: its own, or a private one kept outside of the folder."""

import asyncio
import hashlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.errors import FolderRefused, WorkspaceError
from untildone.git.fence import Fence, fence_around
from untildone.git.filters import FILTERS, configured_filters, missing_filters, switched_off
from untildone.git.locks import GitFolders, lock_named, outlast
from untildone.git.room_entries import common_folder
from untildone.git.run import READ_TIMEOUT, GitResult, disk_trouble, git, refuse_failed, verb

PRIVATE_EMAIL = "untildone@localhost"
PRIVATE_IDENTITY = ("-c", "user.name=untildone", "-c", f"user.email={PRIVATE_EMAIL}")

NO_HOOKS = ("-c", "core.hooksPath=/dev/null")

# A hook inherits what git is told. A test suite in one that makes repositories of its own would then work in ours, so
# here git finds the repository by itself, as it does for the user; that it finds the right one was looked at before.
_RUN_HOOKS = frozenset({"checkout", "commit", "merge", "push", "switch"})
_RUN_INSIDE = frozenset({"add", "commit"})
_KILLED_INSIDE = 128 + signal.SIGKILL
"""What a sandbox says of a program that was killed."""
_TRIES = 4
"""Locks come and go while several programs use a repository."""
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
    """Where they run at commits in the agent's own tree; then they run nowhere else. None: where we run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """A sandbox for what git runs of the repository's own: its hooks and filters may be what the agent wrote."""

    words: Callable[[str], Sequence[str]]
    """What goes before git so that it works in a folder, in the sandbox, and leaves nothing behind."""
    env: Mapping[str, str]


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
    fence: Fence | None = None
    """Where .git led at the start; None: it is not asked."""
    keeping: Keeping = UNKEPT
    removed_locks: list[str] = field(default_factory=list, compare=False)
    """Lines about locks of a dead git that were removed, for the user; whoever tells them takes them out."""

    @property
    def folders(self) -> GitFolders:
        """Where its locks lie."""
        return GitFolders(top=self.top, git_dir=self.git_dir, common=common_folder(self.git_dir))

    async def git(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        check: bool = True,
        timeout: float = READ_TIMEOUT,
        dies_with_us: bool = False,
        most: int = -1,
    ) -> GitResult:
        """Run git on this tree and no other. WorkspaceError when .git leads to another one by now.

        What a lock stops is done again as soon as the lock is gone; GitLocked if it stays.
        """
        if self.fence is not None:
            self.fence.refuse_another(self.top)
        command, kept = verb(args), self.keeping
        inside = kept.inside if dies_with_us and command in _RUN_INSIDE and not self.private else None
        if kept.inside is not None and inside is None and command in _RUN_HOOKS:
            args = (*NO_HOOKS, *args)
        args = ("-c", "commit.gpgSign=false", *args) if inside else args
        finds_itself = not self.private and command in _RUN_HOOKS and NO_HOOKS[1] not in args
        # If the agent deletes .git, git must fail instead of finding the repository of a folder above.
        fence = {"GIT_CEILING_DIRECTORIES": str(self.top.parent)}
        options = switched_off(self.missing_filters) if self.missing_filters else ()
        words = await asyncio.to_thread(inside.words, str(self.top)) if inside else ()
        for _ in range(_TRIES):
            done = await git(
                (*options, *args), cwd=self.top,
                git_dir=None if finds_itself else self.git_dir, work_tree=None if finds_itself else self.top,
                env={**fence, **dict(kept.marks), **(env or {})},
                withheld=frozenset() if command in _TALK else kept.withheld,
                stdin=stdin, timeout=timeout,
                base=inside.env if inside else None,
                dies_with_us=dies_with_us, behind=(words or kept.behind) if dies_with_us else (), most=most,
                check=False,
            )  # fmt: skip
            if inside and done.code == _KILLED_INSIDE:
                done = replace(done, code=-signal.SIGKILL)
            if done.code == 0 or (lock := lock_named(done.err, self.folders)) is None:
                break
            if said := await outlast(lock, self.folders):
                self.removed_locks.append(said)
        if check:
            refuse_failed(done, args, self.top)
        return done


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
    return next((place for place in (folder, *folder.parents) if _is_repository(place)), folder)


async def open_repository(cwd: Path, *, private: Path) -> Repository:
    """Find or make the repository for this folder. FolderRefused when it is no place to work in."""
    folder, top = _checked(cwd), project_root(cwd)
    if not _is_repository(top) or (folder != top and await _is_stranger(folder, top)):
        return await _with_filters(await _make(_private(folder, private)))
    return await _with_filters(await _public(top))


def _checked(cwd: Path) -> Path:
    folder = cwd.resolve()
    if not folder.is_dir():
        raise FolderRefused(f"{cwd} is not a folder: give an existing one")
    if holds_home(folder) and not _is_repository(folder):
        raise FolderRefused(f"{folder} is your home folder or holds it: start in the folder of a project")
    return folder


async def _is_stranger(folder: Path, top: Path) -> bool:
    """Whether the repository around a folder has nothing to do with it.

    Home kept in git (dotfiles) is not the project: a commit there would sweep up everything the user owns. And
    work in an ignored folder (build/, scratch/) would be invisible to the repository around it.
    """
    asked = ("check-ignore", "-q", "--", str(folder.relative_to(top)))
    return holds_home(top) or (await git(asked, cwd=top, check=False)).code == 0


async def _public(top: Path) -> Repository:
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


def _is_repository(folder: Path) -> bool:
    mark = folder / ".git"
    return mark.is_file() or (mark / "HEAD").is_file()


def holds_home(folder: Path) -> bool:
    """Whether a folder is the user's home, or around it: a repository there is not that of a project below."""
    return Path.home().resolve().is_relative_to(folder)
