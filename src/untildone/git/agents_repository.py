"""The repository of an agent in a sandbox: made from the user's, mounted in its place, and fetched from.

The agent may write anything there: settings, hooks, objects, a rebase with commands. So no git outside ever opens it.
What the agent committed comes out as a pack that a git inside writes, and that the user's repository takes like one
from a remote: every object checked. HEAD and the index of the user's repository follow.
"""

import asyncio
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line
from untildone.errors import WorkspaceError
from untildone.git.admission import Gate, Refused
from untildone.git.fence import fence_around
from untildone.git.plain_file import content, copy_plain
from untildone.git.repositories_below import hold, no_settings, settings_in
from untildone.git.room_entries import alternates, common_folder
from untildone.git.run import COMMIT_TIMEOUT, GitResult, disk_trouble, first_line, git, refuse_failed, refuse_killed
from untildone.git.under_way import under_way_in

if TYPE_CHECKING:
    from untildone.git.repository import Repository

MOST_BYTES = 1 << 30
"""Of one pack; also the largest file that a git inside may write, which is how it is bounded."""
_MEMORY = 4 << 30
"""Bytes that a git inside may have, and a filter it starts; hooks may have what they need."""
_FILES_AT_MOST = ("/bin/sh", "-c", f'ulimit -f {MOST_BYTES >> 9}; exec "$@"', "sh")
_ALL_AT_MOST = ("/bin/sh", "-c", f'ulimit -f {MOST_BYTES >> 9}; ulimit -d {_MEMORY >> 10}; exec "$@"', "sh")
_INCOMING = "tmp_objdir-incoming-"
_UNPACKED = 100
"""From so many objects on a pack stays one, as after `git fetch`."""

# What agents and hosts have in common. Both lie at the root, where nothing of the user's is.
_ELSEWHERE = Path("/untildone")
_LENT = ("hooks", "info", "modules")
_INDEXES = ("index", "index.lock", "index.untildone")
_REFS = ("refs/heads", "refs/tags", "refs/remotes", "refs/notes")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_HEADS = "refs/heads/"
_REPOSITORY = b"160000"

# Settings that say how files are stored and where branches come from. What could be a secret or a path stays outside.
_SETTINGS = re.compile(
    r"core\.(autocrlf|eol|safecrlf|filemode|ignorecase|precomposeunicode|symlinks|hookspath|whitespace|quotepath|"
    r"sparsecheckout|sparsecheckoutcone)|user\.(name|email)|extensions\.(objectformat|partialclone)|"
    r"remote\..*\.(url|fetch|tagopt|promisor|partialclonefilter)|branch\..*\.(remote|merge|rebase)|"
    r"(filter\..*\.(clean|smudge|process|required))|merge\..*\.(name|driver)|submodule\..*\.(active|url)|"
    r"(pull|push|rebase|i18n|commit|log)\.(rebase|default|autosquash|commitencoding|cleanup|date)",
    re.DOTALL,
)

_OWN_SCOPES = frozenset({"local", "worktree"})
# How files are stored and compared: words and places, and nothing that is started.
_PLAIN = re.compile(
    r"core\.(autocrlf|eol|safecrlf|filemode|ignorecase|precomposeunicode|symlinks|excludesfile|attributesfile|"
    r"sparsecheckout|sparsecheckoutcone|checkstat|trustctime)|extensions\.(objectformat|refstorage)"
)
_BORROWED = ("objects", "refs", "packed-refs", "reftable", "shallow", "info")
_LONGEST_HEAD = 4096
_MOST_ENTRIES = 100_000

_NO_REPOSITORY = 77
_GIT = 'g() { git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 "$@"; }\n'
_TELL = f"""{_GIT}
g rev-parse --git-dir >/dev/null || exit {_NO_REPOSITORY}
commit=$(g rev-parse -q --verify 'HEAD^{{commit}}')
gone=
[ -z "$2" ] || g rev-parse -q --verify "refs/heads/$2" >/dev/null || gone=gone
printf '%s\\n%s\\n%s\\n' "$commit" "$(g symbolic-ref -q HEAD)" "$gone"
[ -z "$commit" ] || [ "$commit" = "$1" ] || {{
  printf '%s\\n' "$commit"
  [ -z "$1" ] || printf '^%s\\n' "$1"
}} | g pack-objects -q --revs --local --thin --stdout --delta-base-offset
"""
_PACK = f"""{_GIT}
printf '%s\\n' "$@" | g pack-objects -q --revs --local --thin --stdout --delta-base-offset
"""
_TAKE_REFS = f"{_GIT}g update-ref --no-deref --stdin\n"
_TAKE_HEAD = f"""{_GIT}
if [ -n "$1" ]; then
  {{ [ -z "$2" ] || g update-ref "refs/heads/$1" "$2"; }} && g symbolic-ref HEAD "refs/heads/$1"
else
  g update-ref --no-deref HEAD "$2"
fi && if [ -n "$2" ]; then g read-tree --reset "$2"; else g read-tree --empty; fi
"""

_TAKE_BACK = f"""{_GIT}
if [ -n "$1" ]; then g reset -q --soft "$1"; else g update-ref -d HEAD; fi
"""

_BRANCHES = f"{_GIT}g for-each-ref --count=200 --format='%(objectname) %(refname)' refs/heads refs/tags refs/stash\n"

Lent = tuple[Path, Path, bool]
"""Source, place, and whether it may be written."""


@dataclass(frozen=True, slots=True)
class Head:
    """What is checked out."""

    branch: str | None
    """None: no branch."""
    commit: str | None
    """None: the branch has no commit yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Where both repositories were when they were last the same."""

    theirs: Head
    """The agent's."""
    ours: Head
    """The user's. It is detached where the agent committed to a branch that is not its to move."""
    own: tuple[str, ...]
    """Branches that the agent may move."""


class AgentsRepository:
    """One folder for each agent; it outlives the driver, so that a resumed run finds what the agent left."""

    def __init__(self, top: Path, git_dir: Path, *, run_id: str, keep: str) -> None:
        """`git_dir` is where it lies outside; refs below `keep` hold what cannot go to a branch."""
        self.top = top
        self.git_dir = git_dir
        self._run_id = run_id
        self._keep = keep
        found = fence_around(top)
        self._is_linked = (top / ".git").is_file()
        self.place = _ELSEWHERE / "git" if self._is_linked else top / ".git"
        """Where it is seen inside."""
        self._common = Path(found.common)
        self._objects = [self._common / "objects", *alternates(self._common / "objects")]
        self._settings_of_modules = [*settings_in(self._common / "modules")]
        self._pinned: list[Lent] = []
        self._modules: list[Path] = []
        self._words: Callable[[str], Sequence[str]] = lambda _: ()
        self._known_words: dict[Callable[[str], Sequence[str]], tuple[str, ...]] = {}
        self._env: Mapping[str, str] = {}
        self._gate = Gate()
        self._seen: _Seen | None = None
        self._stamps: tuple[object, ...] = ()
        self.plain: dict[str, str] = {}
        """Variables with which git outside knows no settings but ours: whatever it looks at, it starts nothing."""
        self._renamed: str | None = None
        """The branch that was checked out there and is not there any more, if it was the agent's own."""
        self._refused: tuple[tuple[object, ...], str] | None = None
        self._has_filters = False
        self.hooks = str(self.place / "hooks")
        """Where the hooks are that the user's repository names, as git is told inside."""

    def runs(self, words: Callable[[str], Sequence[str]], env: Mapping[str, str]) -> None:
        """What goes before a command so that it runs inside, and its environment."""
        self._words, self._env = words, env

    # --- what is seen inside ---------------------------------------------------------------------

    def mounts(self, *, may_write: bool = True) -> tuple[Lent, ...]:
        """What an agent sees in place of the user's repository; each source is there when this returns.

        `may_write`: the tree is the agent's to write to, so that some of it is held fast.
        """
        with disk_trouble(f"cannot make folders in {self.git_dir}"):
            self.git_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            lent = [(self.git_dir, self.place, True)]
            if self._is_linked:
                lent.append((self._written("git-link", f"gitdir: {self.place}\n"), self.top / ".git", False))
            for name in _LENT:
                # What a link leads to could be another folder by the next start.
                if (self._common / name).is_dir() and not (self._common / name).is_symlink():
                    _make_folder(self.git_dir / name)
                    lent.append((self._common / name, self.place / name, False))
            for config in self._settings_of_modules:
                # They may hold logins; git in a submodule needs none of them.
                place = self.place / config.relative_to(self._common)
                lent.append((no_settings(self.git_dir.parent), place, False))
            for source, place in zip(self._objects, self._lent_objects(), strict=True):
                lent.append((source, place, False))
                if (source / "info" / "alternates").exists():
                    lent.append((self._written("git-empty", ""), place / "info" / "alternates", False))
        # Of what is held fast, a reader is only kept from what it is not to read.
        return (*lent, *(one for one in self._pinned if may_write or one[0] != one[1]))

    def _lent_objects(self) -> list[Path]:
        return [_ELSEWHERE / f"objects-{number}" for number in range(len(self._objects))]

    def _written(self, name: str, text: str) -> Path:
        file = self.git_dir.with_name(name)
        if not file.exists():
            file.write_text(text, "utf-8")
        return file

    def seen_at(self, place: str) -> str:
        """Where something of it is seen inside."""
        return place.replace(str(self.git_dir), str(self.place), 1) if place.startswith(f"{self.git_dir}/") else place

    def told_outside(self, said: str) -> str:
        """What git said inside, with the places as they are outside."""
        return said.replace(f"{self.place}/", f"{self.git_dir}/")

    # --- making it -------------------------------------------------------------------------------

    async def ready(self, real: "Repository") -> None:
        """Make it, unless an earlier driver has. To be done before anything is started inside."""
        below = await asyncio.to_thread(hold, self.top, self.git_dir.parent)
        own = await _pinned(real)
        # A repository that merely lies below may be an earlier agent's: it does not come out as a part of a commit.
        self._modules = [place.parent for _, place, _ in own if place.name == ".git"]
        self._modules += [place for source, place, may_write in own if source == place and not may_write]
        self._pinned = list(_unique([*below, *own]))
        self.hooks = await self._hooks(real)
        self.plain = await self._plain(real)
        self._has_filters = (await real.git("config", "--local", "--get-regexp", r"^filter\.", check=False)).code == 0
        self._seen = self._remembered()
        if self._seen is None or not os.path.lexists(self.git_dir / "HEAD"):
            await self._make(real)

    async def _plain(self, real: "Repository") -> dict[str, str]:
        """A folder that git takes for the one all trees share: settings of ours, and objects and refs of the user's."""
        folder = self.git_dir.with_name("git-plain")
        with disk_trouble(f"cannot write to {folder}"):
            folder.mkdir(exist_ok=True)
            for name in _BORROWED:
                link = folder / name
                link.unlink(missing_ok=True)
                link.symlink_to(self._common / name)
            (folder / "config").write_bytes(await _settings(real, everywhere=True))
        return {"GIT_COMMON_DIR": str(folder), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    @property
    def is_known(self) -> bool:
        """Whether it is decided what an agent sees of it."""
        return self._seen is not None

    def is_seen_whole(self) -> bool:
        """Whether a look outside finds what git inside would: not in a merge, nor with filters of the repository.

        Nor where the agent has made working trees in its folder, or submodules: outside they lead nowhere.
        """
        more = [
            self.git_dir / "worktrees",
            *([] if (self._common / "modules").is_dir() else [self.git_dir / "modules"]),
        ]
        return not self._has_filters and not under_way_in(self.git_dir) and not any(map(os.path.lexists, more))

    @property
    def there(self) -> Head:
        """What is checked out there, as far as it is known."""
        assert self._seen is not None, "a repository that was not made"
        return self._seen.theirs

    async def _hooks(self, real: "Repository") -> str:
        named = (await real.git("config", "--local", "core.hooksPath", check=False)).text
        own = self._common / "hooks"
        return named or (os.path.realpath(own) if own.is_symlink() else str(self.place / "hooks"))

    async def _make(self, real: "Repository") -> None:
        if what := under_way_in(real.git_dir):
            raise WorkspaceError(
                f"a {what} is in progress in {real.top}: finish it, or `git {what} --abort`, before an agent works "
                "there in a sandbox"
            )
        head, refs = await head_of(real), await _refs(real)
        with disk_trouble(f"cannot make a repository in {self.git_dir}"):
            self.git_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            for entry in self.git_dir.iterdir():  # of a driver that died while it made it
                if entry.name not in _LENT or entry.is_symlink() or not entry.is_dir():  # a mount, for what runs inside
                    _remove(entry)
            for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
                (self.git_dir / folder).mkdir(parents=True)
            lent = "".join(f"{place}\n" for place in self._lent_objects())
            (self.git_dir / "objects" / "info" / "alternates").write_text(lent)
            (self.git_dir / "config").write_bytes(await _settings(real) + await _identity(real))
            (self.git_dir / "packed-refs").write_text(_listed(refs), "utf-8", "surrogateescape")
            for name, target in (await _symbolic_refs(real)).items():
                (self.git_dir / name).parent.mkdir(parents=True, exist_ok=True)
                (self.git_dir / name).write_text(f"ref: {target}\n")
            for file in (self._common / "shallow", real.index, *real.index.parent.glob("sharedindex.*")):
                if file.is_file():
                    copy_plain(file, self.git_dir / file.name)
            named = f"ref: {_HEADS}{head.branch}" if head.branch else head.commit
            (self.git_dir / "HEAD").write_text(f"{named}\n", "utf-8", "surrogateescape")
        self._remember_refs(refs)
        self._remember(_Seen(theirs=head, ours=head, own=(head.branch,) if head.branch else ()))
        self._stamps = self._looked(real)

    # --- following it ----------------------------------------------------------------------------

    async def follow(self, real: "Repository", *, strict: bool = False) -> None:
        """Bring both repositories together; where nothing was committed, nothing is started for it.

        What is refused stays where it is, and the user's repository as it was; with `strict`, Refused says why.
        """
        assert self._seen is not None, "a repository that was not made"
        if not self._stamps:
            await self._renew_refs(real, but=self._seen.theirs.branch)
        with suppress(OSError):
            _remove_special(self.git_dir, 0)
        stamps = self._looked(real)
        if stamps == self._stamps:
            return
        if self._refused is not None and self._refused[0] == stamps:
            if strict:
                raise Refused(self._refused[1])
            return
        try:
            await self._follow(real)
        except Refused as refusal:
            self._refused = (stamps, str(refusal))
            if strict:
                raise

    async def _follow(self, real: "Repository") -> None:
        told = await self._tell()
        if told is None:
            await self._make(real)
            return
        assert self._seen is not None, "a repository that was not made"
        (there, pack), seen, ours = told, self._seen, await head_of(real)
        if (there == seen.theirs and ours != seen.ours) or (
            ours not in {seen.ours, there} and not await self._has_grown(real, there, pack, ours)
        ):
            await self._bring_in(real, ours)
        else:
            await self._bring_out(real, there, pack)

    def refusal(self, real: "Repository") -> str:
        """Why what the agent committed last does not come out; "" if it does."""
        return self._refused[1] if self._refused and self._refused[0] == self._looked(real) else ""

    async def bring_out(self, real: "Repository") -> None:
        """Take what the loop has committed or checked out there; what it checked out, the agent may commit to."""
        if (told := await self._tell()) is not None:
            await self._bring_out(real, *told, by_us=True)

    async def _bring_out(self, real: "Repository", there: Head, pack: bytes, *, by_us: bool = False) -> None:
        """Take what is committed there; HEAD and the index of the user's repository follow."""
        assert self._seen is not None, "a repository that was not made"
        seen = self._seen
        if there.commit is not None:
            try:
                await self._admit(real, pack, there.commit)
            except Refused:
                if by_us and there.branch == seen.theirs.branch:
                    await self._run(_TAKE_BACK, seen.theirs.commit or "")
                raise
        ours = await self._move(real, there)
        if ours.commit != seen.ours.commit:
            tree = ("--reset", ours.commit) if ours.commit else ("--empty",)
            await real.git(*_NO_HOOKS, "read-tree", *tree)
            await real.git(*_NO_HOOKS, "update-index", "-q", "--refresh", env=self.plain, check=False)
        self._remember(_Seen(theirs=there, ours=ours, own=await self._own(real, ours, by_us=by_us)))
        self._stamps = self._looked(real)

    async def _tell(self) -> tuple[Head, bytes] | None:
        """What is checked out there, and a pack of what is new; None: the agent has destroyed it."""
        assert self._seen is not None, "a repository that was not made"
        was = self._seen.theirs
        done = await self._run(_TELL, was.commit or "", was.branch or "", check=False)
        if done.code == _NO_REPOSITORY:
            return None
        refuse_killed(done, "pack-objects")
        if done.code:
            raise Refused(f"what the agent committed cannot be taken over: {first_line(done.err)}")
        there, is_gone, pack = _told(done)
        self._renamed = was.branch if is_gone and was.branch in self._seen.own else None
        return there, pack

    def _looked(self, real: "Repository") -> tuple[object, ...]:
        return _stamp(real.git_dir, fence_around(real.top).common), _stamp(self.git_dir, str(self.git_dir))

    async def take(self, real: "Repository", wanted: str, *but: str | None) -> str:
        """Take an object that a git inside has named, and all that belongs to it."""
        if not _COMMIT.fullmatch(wanted):
            raise WorkspaceError(f"git names no object inside: {one_line(wanted, 80)}")
        await self._admit(real, (await self._run(_PACK, wanted, *(f"^{one}" for one in but if one))).out, wanted)
        return wanted

    async def _admit(self, real: "Repository", pack: bytes, *tips: str) -> None:
        """Take objects, and look at what they make before anything refers to it."""
        assert self._seen is not None, "a repository that was not made"
        await _unpack(real, pack)
        for tip in tips:
            await self._gate.refuse_unfit(real, tip, before=self._seen.theirs.commit, known=self._modules)

    async def renew(self, real: "Repository") -> None:
        """For an agent that only reads: it has checked out what the user's repository has."""
        if self._seen is not None and self._looked(real)[:1] != self._stamps[:1]:
            await self._bring_in(real, await head_of(real))

    async def keep_branches(self, real: "Repository") -> None:
        """Keep what the agent committed beside the branch it works on, before its repository goes."""
        if self._seen is None:
            return
        told = await self._run(_BRANCHES, check=False)
        known = await _refs(real)
        rows = (line.split(" ", 1) for line in os.fsdecode(told.out).split("\n") if " " in line)
        own = {name: commit for commit, name in rows if _COMMIT.fullmatch(commit) and known.get(name) != commit}
        if not own:
            return
        known_to = [f"^{self._seen.theirs.commit}"] if self._seen.theirs.commit else []
        with suppress(WorkspaceError):  # what git refuses has no ref then
            await _unpack(real, (await self._run(_PACK, *dict.fromkeys(own.values()), *known_to)).out)
        for name, commit in own.items():
            ref = f"{self._keep}/{name.removeprefix('refs/')}"
            with suppress(WorkspaceError):
                await self._admit(real, b"", commit)
                await real.git(*_NO_HOOKS, "update-ref", "--end-of-options", ref, commit)

    async def bring_refs_in(self, real: "Repository") -> None:
        """Let it know the refs of the user's repository, before anything is switched there."""
        if self._seen is not None:
            await self._renew_refs(real, but=self._seen.theirs.branch)

    async def _has_grown(self, real: "Repository", there: Head, pack: bytes, ours: Head) -> bool:
        """Whether the agent's commits are on top of what was made outside meanwhile; else they are kept aside."""
        if there.commit is None:
            return False
        await self._admit(real, pack, there.commit)
        if ours.commit is not None and ours.branch == there.branch:
            asked = await real.git("merge-base", "--is-ancestor", ours.commit, there.commit, check=False)
            if asked.code == 0:
                return True
        await self._set_aside(real, there)
        return False

    async def _set_aside(self, real: "Repository", there: Head) -> None:
        name = f"{self._keep}/heads/{there.branch}" if there.branch else f"{self._keep}/detached"
        done = await real.git(*_NO_HOOKS, "update-ref", name, there.commit or "", check=False)
        if done.code:
            raise WorkspaceError(f"git cannot keep what the agent committed as {name}: {first_line(done.err)}")

    async def _move(self, real: "Repository", there: Head) -> Head:
        """Let the user's repository have checked out the same, as far as it is the agent's to decide."""
        why = ("-m", "untildone: from the sandbox")
        branch, commit = there.branch, there.commit
        if branch is None or commit is None:
            if commit is not None:
                await real.git(*_NO_HOOKS, "update-ref", "--no-deref", *why, "HEAD", commit)
            return await head_of(real)
        tip, tree = await _branch(real, branch)
        assert self._seen is not None
        if not tip and await self._rename(real, branch, commit):
            tip, tree = await _branch(real, branch)
        is_own = not tip or branch in self._seen.own or await self._is_of_this_run(real, branch)
        if tip != commit and is_own:
            await self._refuse_bad_name(real, branch)
            await real.git(*_NO_HOOKS, "update-ref", *why, f"{_HEADS}{branch}", commit, tip or "0" * len(commit))
            self._seen = replace(self._seen, own=tuple(dict.fromkeys((*self._seen.own, branch))))
        if (is_own or tip == commit) and (not tree or tree == real.top):
            if (await head_of(real)).branch != branch:
                await real.git(*_NO_HOOKS, "symbolic-ref", *why, "HEAD", f"{_HEADS}{branch}")
            return there
        if tip != commit:
            await self._set_aside(real, there)
        await real.git(*_NO_HOOKS, "update-ref", "--no-deref", *why, "HEAD", commit)
        return replace(there, branch=None)

    async def _rename(self, real: "Repository", branch: str, commit: str) -> bool:
        """Give its own branch another name, as the agent did; not where that would lose commits."""
        assert self._seen is not None
        if (old := self._renamed) is None or old not in self._seen.own:
            return False
        await self._refuse_bad_name(real, branch)
        held = await real.git("merge-base", "--is-ancestor", f"{_HEADS}{old}", commit, check=False)
        if held.code or (await real.git(*_NO_HOOKS, "branch", "-m", old, branch, check=False)).code:
            return False
        self._seen = replace(self._seen, own=(*(one for one in self._seen.own if one != old), branch))
        return True

    async def _own(self, real: "Repository", ours: Head, *, by_us: bool) -> tuple[str, ...]:
        """The branches that the agent may move, now that this is checked out."""
        assert self._seen is not None
        own, branch = self._seen.own, ours.branch
        if branch is None or branch in own:
            return own
        return (*own, branch) if by_us or await self._is_of_this_run(real, branch) else own

    async def _is_of_this_run(self, real: "Repository", branch: str) -> bool:
        return (await real.git("config", "--get", f"branch.{branch}.untildone-run", check=False)).text == self._run_id

    async def _refuse_bad_name(self, real: "Repository", branch: str) -> None:
        if (await real.git("check-ref-format", "--branch", branch, check=False)).code:
            raise Refused(f"the agent is on a branch that git does not allow: {one_line(branch, 80)}")

    async def _bring_in(self, real: "Repository", ours: Head) -> None:
        """What was checked out or committed outside is checked out inside as well; the files are there already."""
        assert self._seen is not None
        await self._renew_refs(real, but=None)
        done = await self._run(_TAKE_HEAD, ours.branch or "", ours.commit or "", check=False)
        if done.code:
            raise WorkspaceError(f"the repository in the sandbox cannot follow {self.top}: {first_line(done.err)}")
        own = self._seen.own if ours.branch is None else tuple(dict.fromkeys((*self._seen.own, ours.branch)))
        self._remember(_Seen(theirs=ours, ours=ours, own=own))
        self._stamps = self._looked(real)

    async def _renew_refs(self, real: "Repository", *, but: str | None) -> None:
        before, now = self._remembered_refs(), await _refs(real)
        spared = f"{_HEADS}{but}"
        lines = [f"update {name} {commit}" for name, commit in now.items() if before.get(name) != commit]
        lines += [f"delete {name}" for name in before if name not in now]
        lines = [line for line in lines if line.split(" ")[1] != spared]
        if lines:
            stdin = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
            # Where a branch of the agent's is in the way of a name, it stays.
            await self._run(_TAKE_REFS, stdin=stdin, check=False)
        if now != before:
            self._remember_refs(now | ({spared: before[spared]} if spared in before and spared in now else {}))

    async def _run(self, script: str, *args: str, stdin: bytes = b"", check: bool = True) -> GitResult:
        """Run a script of ours inside. What it prints is the agent's to decide."""
        done = await git(
            args, script=script, cwd=self.top, base=self._env, stdin=stdin, check=False, timeout=COMMIT_TIMEOUT,
            behind=self.behind(), env={"GIT_CEILING_DIRECTORIES": str(self.top.parent)},
        )  # fmt: skip
        self.look_anew_after(done)
        if check:
            refuse_failed(done, (), self.top)
        return done

    def look_anew_after(self, done: GitResult) -> None:
        """What failed may have failed because something that is seen inside is gone: the next command is told anew."""
        if done.code:
            self._known_words.clear()

    def behind(
        self, words: Callable[[str], Sequence[str]] | None = None, *, for_hooks: bool = False
    ) -> tuple[str, ...]:
        """What goes before git inside: it can fill no disk with what it prints."""
        self.put_right()
        with suppress(OSError):  # it is being written to: git says what is wrong
            _remove_special(self.git_dir, _MOST_ENTRIES)
        self.mounts()  # what they show is there, whatever the agent did to it
        chosen = words or self._words
        if chosen not in self._known_words:
            self._known_words[chosen] = tuple(chosen(str(self.top)))
        return (*(_FILES_AT_MOST if for_hooks else _ALL_AT_MOST), *self._known_words[chosen])

    def put_right(self) -> None:
        """Put aside what lies in the place of an index and is none: git would stop at it for ever."""
        for name in _INDEXES:
            place = self.git_dir / name
            with suppress(OSError):  # it is not there
                if not stat.S_ISREG(place.lstat().st_mode):  # renamed, as that works whatever lies in it
                    place.rename(self.git_dir / f"{name}.{token_hex(4)}")

    # --- remembering -----------------------------------------------------------------------------

    def _remember(self, seen: _Seen) -> None:
        self._seen = seen
        _replace(self.git_dir.with_name("git-seen.json"), json.dumps(asdict(seen)))

    def _remembered(self) -> _Seen | None:
        try:
            told = json.loads(self.git_dir.with_name("git-seen.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return _Seen(theirs=Head(**told["theirs"]), ours=Head(**told["ours"]), own=tuple(told["own"]))

    def _remember_refs(self, refs: Mapping[str, str]) -> None:
        _replace(self.git_dir.with_name("git-refs"), _listed(refs))

    def _remembered_refs(self) -> dict[str, str]:
        try:
            text = self.git_dir.with_name("git-refs").read_text("utf-8", "surrogateescape")
        except OSError:
            return {}
        return {name: commit for commit, _, name in (line.partition(" ") for line in text.split("\n") if line)}


_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")


async def head_of(real: "Repository") -> Head:
    """What is checked out in a repository that is safe to ask."""
    named = await real.git("symbolic-ref", "-q", "HEAD", check=False)
    at = await real.git("rev-parse", "-q", "--verify", "HEAD^{commit}", check=False)
    branch = named.text.removeprefix(_HEADS) if named.code == 0 and named.text.startswith(_HEADS) else None
    return Head(branch, at.text if at.code == 0 else None)


def _stamp(git_dir: Path, common: str) -> tuple[object, ...]:
    """What changes whenever another commit is checked out, or the branch is moved: read without git."""
    try:
        head = content(git_dir / "HEAD", _LONGEST_HEAD, follow=False)
    except OSError:
        head = b""
    named = os.fsdecode(head.removeprefix(b"ref: ").strip().partition(b"\0")[0])
    files = (f"{git_dir}/HEAD", f"{common}/{named}", f"{common}/packed-refs", f"{common}/reftable/tables.list")
    return (head, *map(_about, files), under_way_in(git_dir))


def _about(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - text, and one call
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _told(done: GitResult) -> tuple[Head, bool, bytes]:
    """What is checked out there, whether the branch from before is gone, and a pack of what is new."""
    commit, _, rest = done.out.partition(b"\n")
    named, _, rest = rest.partition(b"\n")
    gone, _, pack = rest.partition(b"\n")
    at, ref = commit.decode("ascii", "replace"), os.fsdecode(named)
    if at and not _COMMIT.fullmatch(at):
        raise WorkspaceError(f"git names no commit inside: {one_line(at, 80)}")
    branch = ref.removeprefix(_HEADS) if ref.startswith(_HEADS) else None
    return Head(branch, at or None), gone == b"gone", pack


async def _unpack(real: "Repository", pack: bytes) -> None:
    """Take objects as those of a remote: each is looked at, and none may lack what it names."""
    count = int.from_bytes(pack[8:12]) if pack.startswith(b"PACK") else 0
    if not pack or (pack.startswith(b"PACK") and not count):
        return
    bound = f"--max-input-size={MOST_BYTES}"
    kept = ("index-pack", "--stdin", "--fix-thin", "--strict", bound)
    args = ("unpack-objects", "-q", "--strict", bound) if count < _UNPACKED else kept
    objects = common_folder(real.git_dir) / "objects"
    # As git does for a push: apart, until all is known to be good. Git removes what a crash leaves of it.
    with disk_trouble(f"cannot write to {objects}"), TemporaryDirectory(prefix=_INCOMING, dir=objects) as apart:
        env = {"GIT_OBJECT_DIRECTORY": apart, "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects)}
        done = await real.git(*args, env=env, stdin=pack, check=False, timeout=COMMIT_TIMEOUT)
        refuse_killed(done, args[0])
        if done.code:
            raise Refused(f"what the agent committed cannot be taken over: {first_line(done.err)}")
        files = [file for file in Path(apart).rglob("*") if file.is_file()]
        for file in sorted(files, key=lambda one: one.suffix == ".idx"):  # which makes the others known
            place = objects / file.relative_to(apart)
            place.parent.mkdir(exist_ok=True)
            file.replace(place)


async def _branch(real: "Repository", branch: str) -> tuple[str, Path | None]:
    """Its newest commit, and the tree that has it checked out."""
    form = "--format=%(refname) %(objectname) %(worktreepath)"
    told = await real.git("for-each-ref", form, f"{_HEADS}{branch}")
    for line in told.text.split("\n"):
        name, _, rest = line.partition(" ")
        if name == f"{_HEADS}{branch}":
            commit, _, place = rest.partition(" ")
            return commit, Path(place) if place else None
    return "", None


async def _refs(real: "Repository") -> dict[str, str]:
    told = await real.git("for-each-ref", "--format=%(objectname) %(symref) %(refname)", *_REFS)
    rows = (line.split(" ") for line in os.fsdecode(told.out).split("\n") if line)
    return {name: commit for commit, symbolic, name in rows if not symbolic}


async def _symbolic_refs(real: "Repository") -> dict[str, str]:
    told = await real.git("for-each-ref", "--format=%(symref) %(refname)", *_REFS)
    rows = (line.split(" ") for line in os.fsdecode(told.out).split("\n") if line)
    return {name: target for target, name in rows if target}


def _listed(refs: Mapping[str, str]) -> str:
    return "".join(f"{commit} {name}\n" for name, commit in sorted(refs.items()))


async def _settings(real: "Repository", *, everywhere: bool = False) -> bytes:
    """The settings of the user's repository that are no secret, as a file.

    `everywhere`: for a look outside, those of the user as well, and nothing that names a program.
    """
    told = await real.git("config", "-z", "--list", "--show-scope")
    words = os.fsdecode(told.out).split("\0")[:-1]
    lines = ["[core]\n\trepositoryformatversion = 1\n\tbare = false\n\tlogallrefupdates = true\n"]
    for scope, entry in zip(words[::2], words[1::2], strict=True):
        key, _, value = entry.partition("\n")
        is_wanted = _PLAIN.fullmatch(key) if everywhere else scope in _OWN_SCOPES and _SETTINGS.fullmatch(key)
        if is_wanted:
            section, _, name = key.rpartition(".")
            group, _, which = section.partition(".")
            title = f'{group} "{_escaped(which)}"' if which else group
            said = without_login(value) if name == "url" else value
            assigned = f'{name} = "{_escaped(said)}"' if "\n" in entry else name
            lines.append(f"[{title}]\n\t{assigned}\n")
    return os.fsencode("".join(lines))


async def _identity(real: "Repository") -> bytes:
    """In whose name commits are made here, which may be said in a file that is only included for this folder."""
    lines = []
    for name in ("name", "email"):
        said = await real.git("config", "--get", f"user.{name}", check=False)
        lines += [f'[user]\n\t{name} = "{_escaped(said.text)}"\n'] if said.text else []
    return os.fsencode("".join(lines))


def without_login(address: str) -> str:
    """An address without user and password, unless it is one of ssh, where the user is no secret."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    if "://" not in address or parts.scheme in {"ssh", "git+ssh", "ssh+git"}:
        return address
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


async def _pinned(real: "Repository") -> list[Lent]:
    """Files in the tree that git outside obeys, and that the agent therefore only reads."""
    held = [*await _submodules(real), *await _included(real)]
    # A folder that is a mount cannot be renamed, and with it what lies in it.
    around = [place for _, file, _ in held for place in file.parents if place != real.top and real.top in place.parents]
    return [*((place, place, True) for place in around), *held]


async def _submodules(real: "Repository") -> list[Lent]:
    """What leads to the repositories inside the repository; one that is not there yet is not made either."""
    told = await real.git("ls-files", "-s", "-z")
    links = (entry.partition(b"\t")[2] for entry in told.out.split(b"\0") if entry.startswith(_REPOSITORY))
    held: list[Lent] = []
    for place in (real.top / os.fsdecode(link) for link in links):
        mark = place / ".git"
        if os.path.lexists(mark):
            held += [(place, place, True), (mark, mark, False)]
        elif place.is_dir() and not place.is_symlink():
            held.append((place, place, False))
    return held


async def _included(real: "Repository") -> list[Lent]:
    """Settings in the tree that other settings include."""
    asked = ("config", "-z", "--show-origin", "--get-regexp", r"^include(if\..*)?\.path$")
    told = os.fsdecode((await real.git(*asked, check=False)).out).split("\0")[:-1]
    held: list[Lent] = []
    for origin, entry in zip(told[::2], told[1::2], strict=True):
        named = Path(entry.partition("\n")[2]).expanduser()
        file = Path(os.path.normpath(real.top / Path(origin.removeprefix("file:")).parent / named))
        for place in {file, Path(os.path.realpath(file))}:
            if not place.is_relative_to(real.top) or place.is_relative_to(real.git_dir):
                continue
            if not place.is_file():
                raise WorkspaceError(
                    f"git's settings include {place}, which is not there: an agent in a sandbox could write it, and "
                    "git would obey it outside; remove that line, or make the file"
                )
            held.append((place, place, False))
    return held


def _unique(lent: Sequence[Lent]) -> Iterator[Lent]:
    """Each place once; what is only read stays so."""
    found: dict[Path, Lent] = {}
    for one in lent:
        if one[1] not in found or not one[2]:
            found[one[1]] = one
    yield from found.values()


def _remove_special(folder: Path, most: int) -> None:
    """Remove pipes, links and the like, of which git makes none: opening one could last for ever.

    At most so many entries are looked at, and all that lie right in the folder.
    """
    looked = 0
    for _, folders, files, handle in os.fwalk(folder, follow_symlinks=False):
        for name in (*files, *folders):
            kind = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                os.unlink(name, dir_fd=handle)
        looked += len(files) + len(folders)
        if looked > most:
            return


def _make_folder(place: Path) -> None:
    """Right in a folder of ours; the agent may have put something else there."""
    if place.is_symlink() or not place.is_dir():
        _remove(place)
        place.mkdir()


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        with suppress(FileNotFoundError):
            place.unlink()


def _replace(file: Path, text: str) -> None:
    with disk_trouble(f"cannot write {file}"):
        beside = file.with_name(f"{file.name}.new")
        beside.write_text(text, "utf-8", "surrogateescape")
        beside.replace(file)
