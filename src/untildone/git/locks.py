"""Lock files that a dead git left behind: it never takes its own away, and nothing is written there until then.

Git itself names the lock that stops it, whichever it is: the index, a branch, the settings, packed refs.
"""

import asyncio
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.errors import GitLocked
from untildone.git.plain_file import line

PATIENCE = 2.0
"""Seconds to wait for a git that is running to finish."""
ABANDONED_AFTER = 10.0
"""Seconds a lock must be old, with no git running there, before it counts as left behind: another machine, or a
container, may work on the same files."""

_ASK_EVERY = 0.05
_PROCESSES = Path("/proc")
_NAMED = re.compile(
    r"Unable to create '(?P<lock>[^'\n]+\.lock)': File exists|"
    r"could not lock config file (?P<settings>[^\n]+): File exists"
)
_OF_A_TREE = ("index.lock", "HEAD.lock")
_OF_ALL = ("config.lock", "packed-refs.lock")

_Made = tuple[int, int]
"""What tells a lock from a later one of the same name."""


@dataclass(frozen=True, slots=True)
class GitFolders:
    """Where a repository keeps its locks."""

    top: Path
    git_dir: Path
    common: Path
    """The git folder that all trees of the repository share."""
    are_agents: bool = False
    """An agent may write there: only what lies right in it is touched, as anything deeper may lead elsewhere."""

    def trees(self) -> list[Path]:
        """Every folder in which a git of this repository may run."""
        entries = () if self.are_agents else self.common.glob("worktrees/*/gitdir")
        linked = [Path(place).parent for entry in entries if (place := _line(entry))]
        return [self.top, self.git_dir, self.common, self.common.parent, *linked]


def lock_named(said: str, folders: GitFolders) -> Path | None:
    """The lock that git names as what stopped it, if it is one of this repository's."""
    found = _NAMED.search(said)
    if found is None:
        return None
    named = Path(os.path.normpath(folders.top / (found["lock"] or f"{found['settings']}.lock")))
    lock = Path(os.path.realpath(named.parent)) / named.name
    if folders.are_agents:
        return lock if lock.parent == folders.git_dir else None
    places = (os.path.realpath(place) for place in (folders.git_dir, folders.common))
    return lock if any(lock.is_relative_to(place) for place in places) else None


async def outlast(lock: Path, folders: GitFolders) -> str:
    """Return when the lock is gone, with a line if it was removed. GitLocked says what is in the way and what to do.

    A lock is removed only if it is old and no git is running there. Where that cannot be seen (macOS) it stays.
    """
    began, first = time.monotonic(), _made(lock)
    made = first
    while made is not None:
        since = time.monotonic() - began
        user = await asyncio.to_thread(_user_of, lock, folders)
        is_old = _age(lock) >= ABANDONED_AFTER or (made == first and since >= ABANDONED_AFTER)
        if user is None and is_old and _made(lock) == made:
            return _remove(lock)
        if since >= PATIENCE and (user is not None or made != first):
            raise GitLocked(_in_the_way(lock, user or "another git"))
        await asyncio.sleep(_ASK_EVERY)  # there is no event for a file that goes away
        made = _made(lock)
    return ""


def remove_own_locks(folders: GitFolders) -> None:
    """Remove what a git of this process left behind that was killed a moment ago, unless another one is running."""
    for lock in (folders.git_dir / name for name in _OF_A_TREE):
        if lock.exists() and _user_of(lock, folders) is None:
            _remove(lock)


async def wait_for_commit_locks(folders: GitFolders, branch: str | None) -> list[str]:
    """Return when a commit on this branch is possible, with lines about what was removed; GitLocked if a lock stays."""
    names = [folders.git_dir / name for name in _OF_A_TREE]
    names += [folders.common / "refs" / "heads" / f"{branch}.lock"] if branch and not folders.are_agents else []
    lines = [await outlast(lock, folders) for lock in filter(os.path.lexists, names)]
    return [said for said in lines if said]


async def clear_abandoned(folders: GitFolders) -> list[str]:
    """Remove every lock that a dead git left, so that the agent's git works too; lines about it. Others stay."""
    lines = []
    for lock in await asyncio.to_thread(lambda: [*_standing(folders)]):
        try:
            lines.append(await outlast(lock, folders))
        except GitLocked:
            continue  # whatever needs it says so
    return [said for said in lines if said]


def _standing(folders: GitFolders) -> Iterator[Path]:
    known = [folders.git_dir / name for name in _OF_A_TREE] + [folders.common / name for name in _OF_ALL]
    yield from (lock for lock in known if lock.exists())
    if not folders.are_agents:
        yield from folders.common.glob("refs/**/*.lock")


def _remove(lock: Path) -> str:
    try:
        lock.unlink(missing_ok=True)
    except OSError as refused:
        raise GitLocked(_in_the_way(lock, f"a git that died ({refused.strerror})")) from refused
    return f"removed {lock}, left behind by a git that is not running any more"


def _in_the_way(lock: Path, user: str) -> str:
    return f"{lock} is in the way ({user}); if no git is running there, remove it with `rm {lock}`"


def _made(lock: Path) -> _Made | None:
    try:
        found = lock.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _age(lock: Path) -> float:
    try:
        return time.time() - lock.lstat().st_mtime  # noqa: TID251 - file times are the system's wall time
    except OSError:
        return 0.0


def _user_of(lock: Path, folders: GitFolders) -> str | None:
    """The program that has the lock, or may have it; None if there is none."""
    try:
        owner, processes = lock.lstat().st_uid, [place for place in _PROCESSES.iterdir() if place.name.isdigit()]
    except OSError:
        return "running programs cannot be seen here"
    trees = folders.trees()
    for process in processes:
        if _works_there(process, lock, owner, trees):
            return f"{_name(process)}, process {process.name}"
    return None


def _works_there(process: Path, lock: Path, owner: int, trees: list[Path]) -> bool:
    """Whether a process has the lock open, or is a git that runs in one of the trees."""
    is_git = True
    try:
        is_git = _name(process).partition("-")[0] == "git"
        if process.stat().st_uid != owner:
            return False  # the lock would be that user's
        places = [(process / "cwd").readlink()] if is_git else []
        places += [link.readlink() for link in (process / "fd").iterdir()]
    except PermissionError:
        return is_git  # what cannot be looked at counts
    except OSError:
        return False  # it has just ended
    return lock in places or (is_git and any(place.is_relative_to(tree) for place in places for tree in trees))


def _name(process: Path) -> str:
    return (process / "comm").read_text(errors="replace").strip()


def _line(file: Path) -> str:
    try:
        return line(file)
    except OSError:
        return ""
