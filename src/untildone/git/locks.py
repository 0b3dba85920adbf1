"""Lock files another git left behind: a killed one never takes its own away, and no commit is possible until then."""

import asyncio
import time
from pathlib import Path

from untildone.errors import WorkspaceError
from untildone.git.repository import Repository

PATIENCE = 2.0
"""Seconds to wait for a git that is at work to finish."""
ABANDONED_AFTER = 60.0
"""Seconds a lock must be old before it may count as left behind."""

_ASK_EVERY = 0.05
_PROCESSES = Path("/proc")


async def wait_for_locks(repository: Repository) -> str:
    """Return when a commit is possible, with a line about what was cleared away; WorkspaceError names the obstacle.

    A lock is removed only if it is old and no git is at work in this tree. Where that cannot be seen (macOS), or
    when in doubt, it stays.
    """
    give_up, cleared = time.monotonic() + PATIENCE, []
    while lock := next(filter(Path.exists, _locks(repository)), None):
        if _is_abandoned(lock, repository):
            lock.unlink(missing_ok=True)
            cleared.append(f"removed {lock}, left behind by a git that is not running any more")
        elif time.monotonic() < give_up:
            await asyncio.sleep(_ASK_EVERY)  # there is no event for a file that goes away
        else:
            raise WorkspaceError(
                f"{lock} is in the way: another git is at work, or one died there; "
                f"if none is running, remove it with `rm {lock}`"
            )
    return "; ".join(cleared)


def remove_own_locks(repository: Repository) -> None:
    """Remove what a git of ours left behind that was killed a moment ago, unless another one is at work."""
    if not _git_at_work(repository):
        for lock in _locks(repository):
            lock.unlink(missing_ok=True)


def _locks(repository: Repository) -> tuple[Path, ...]:
    return repository.index.with_name(f"{repository.index.name}.lock"), repository.git_dir / "HEAD.lock"


def _is_abandoned(lock: Path, repository: Repository) -> bool:
    try:
        age = time.time() - lock.stat().st_mtime  # noqa: TID251 - file times are the system's wall time
    except FileNotFoundError:
        return False  # it has just been taken away by its owner
    return age >= ABANDONED_AFTER and not _git_at_work(repository)


def _git_at_work(repository: Repository) -> bool:
    """Whether any git runs in this tree or its git folder, or might: what cannot be looked at counts as one."""
    try:
        processes = [place for place in _PROCESSES.iterdir() if place.name.isdigit()]
    except OSError:
        return True
    return any(_works_in(process, (repository.top, repository.git_dir)) for process in processes)


def _works_in(process: Path, places: tuple[Path, ...]) -> bool:
    try:
        if not (process / "comm").read_text(errors="replace").startswith("git"):
            return False
        cwd = (process / "cwd").readlink()
    except PermissionError:
        return True
    except OSError:
        return False  # it has just ended
    return any(cwd.is_relative_to(place) for place in places)
