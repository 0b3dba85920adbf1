"""A tree as it lies there, untracked and ignored files included, laid over a fresh checkout of its commit."""

import asyncio
import fcntl
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from untildone.errors import WorkspaceError
from untildone.git.run import disk_trouble

MOST_BYTES = 2 << 30
MOST_FILES = 200_000
_GIT = ".git"
_FICLONE = 0x40049409
"""Linux: share the blocks of another file until one of the two is written to."""


class TooMuch(WorkspaceError):
    """The tree is larger than anybody wants to have copied."""


async def lay_over(tree: Path, room: Path, *, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> None:
    """Make `room` hold what `tree` holds. Nothing named .git is touched in either. TooMuch when it is too large."""
    called_off = threading.Event()
    copying = asyncio.create_task(asyncio.to_thread(_lay_over, tree, room, most_bytes, most_files, called_off))
    try:
        await asyncio.shield(copying)
    except asyncio.CancelledError:
        # A thread cannot be called off, and the room must not go away under it.
        called_off.set()
        with suppress(WorkspaceError):
            await copying
        raise


def _lay_over(tree: Path, room: Path, most_bytes: int, most_files: int, called_off: threading.Event) -> None:
    with disk_trouble(f"cannot copy {tree}"):
        size = 0
        for number, entry in enumerate(_below(tree), 1):
            if called_off.is_set():
                return
            size += entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
            if size > most_bytes or number > most_files:
                raise TooMuch(f"{tree} is too large to be copied (more than {most_files} files or {most_bytes} bytes)")
        _make_alike(tree, room, called_off)


def _below(folder: Path) -> Iterator[os.DirEntry[str]]:
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name == _GIT:
                    continue
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _make_alike(tree: Path, room: Path, called_off: threading.Event) -> None:
    waiting = [(tree, room)]
    while waiting:
        source, place = waiting.pop()
        with os.scandir(source) as entries:
            here = {entry.name: entry for entry in entries if entry.name != _GIT}
        for stale in list(place.iterdir()):
            if stale.name not in here and stale.name != _GIT:
                _remove(stale)
        for name, entry in here.items():
            if called_off.is_set():
                return
            there = place / name
            if entry.is_dir(follow_symlinks=False):
                if not there.is_dir() or there.is_symlink():
                    _remove(there)
                    there.mkdir()
                waiting.append((Path(entry.path), there))
            else:
                _copy(Path(entry.path), there)


def _copy(source: Path, there: Path) -> None:
    """One file or link; pipes and sockets belong to programs that run, not to a tree."""
    _remove(there)
    if source.is_symlink():
        there.symlink_to(source.readlink())
        return
    # What is gone by now, or not for us to read, is not copied.
    with suppress(FileNotFoundError, PermissionError):
        if stat.S_ISREG(source.lstat().st_mode):
            _copy_file(source, there)


def _copy_file(source: Path, there: Path) -> None:
    with open(source, "rb", opener=_without_waiting) as reading, there.open("xb") as writing:
        known = os.fstat(reading.fileno())
        try:
            fcntl.ioctl(writing.fileno(), _FICLONE, reading.fileno())
        except OSError:
            shutil.copyfileobj(reading, writing, 1 << 20)
        os.fchmod(writing.fileno(), stat.S_IMODE(known.st_mode) | stat.S_IWUSR)
        writing.flush()
        # Times count: make and its like go by them.
        os.utime(writing.fileno(), ns=(known.st_atime_ns, known.st_mtime_ns))


def _without_waiting(path: str, flags: int) -> int:
    # It may have become a pipe that nobody writes to.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
