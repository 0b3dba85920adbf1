"""What this computer has left: disk, memory, processes."""

import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence

from untildone.ports import MachineFacts

SIZING_PATIENCE = 0.5
"""Seconds one folder may be walked for its size: what was found by then is told as the least."""
_FEW_INODES = 1000
_KIB = 1024


class ThisMachine:
    """The machine the run works on, seen through the disks it writes to."""

    def __init__(self, *, writes_to: Sequence[str], reclaimable: Mapping[str, str] | None = None) -> None:
        self._writes_to = tuple(writes_to)
        self._reclaimable = dict(reclaimable or {})

    def look(self) -> MachineFacts:
        disks = [(free, folder) for folder in self._writes_to if (free := _disk_free(folder)) is not None]
        free, where = min(disks, default=(None, ""))
        memory = _memory()
        return MachineFacts(
            disk_free=free,
            disk_where=where,
            memory_free=memory.get("MemAvailable"),
            memory_total=memory.get("MemTotal"),
            processes=_processes(),
            process_limit=_process_limit(),
        )

    def reclaimable(self, where: str) -> list[tuple[str, int]]:
        """Only what is on that disk: the rest would make no room there."""
        disk = _device(where)
        sizes = [(what, _size(folder)) for what, folder in self._reclaimable.items() if _device(folder) == disk]
        return sorted(sizes, key=lambda entry: entry[1], reverse=True)


def _disk_free(folder: str) -> int | None:
    """Bytes an ordinary user can still write; a folder that is not made yet is on the disk of the one above it."""
    path = os.path.abspath(folder)  # noqa: PTH100 - only text is wanted, nothing is resolved
    while True:
        try:
            disk = os.statvfs(path)
        except FileNotFoundError:
            above = os.path.dirname(path)  # noqa: PTH120 - the same
            if above == path:
                return None
            path = above
        except OSError:
            return None
        else:
            if disk.f_blocks == 0:
                return None  # a file system that counts nothing
            # A disk with bytes left but no inodes is as full as any. Some systems count none: then 0 of 0 is no news.
            out_of_inodes = disk.f_files > 0 and disk.f_favail < min(_FEW_INODES, disk.f_files // 10)
            return 0 if out_of_inodes else disk.f_bavail * disk.f_frsize


def _device(folder: str) -> int | None:
    try:
        return os.stat(folder).st_dev  # noqa: PTH116 - asked of many folders, as text
    except OSError:
        return None


def _size(folder: str) -> int:
    """Bytes below a folder, or as many as could be counted in time. Links are not followed."""
    until = time.monotonic() + SIZING_PATIENCE
    total = 0
    for entry in _walk(folder):
        try:
            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue  # gone meanwhile
        if time.monotonic() > until:
            break
    return total


def _walk(folder: str) -> Iterator[os.DirEntry[str]]:
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue  # gone or not ours: it cannot be reclaimed by us


def _memory() -> dict[str, int]:
    """Bytes by name; nothing where there is no /proc."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - no file of anybody's
            lines = file.read().splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {words[0].rstrip(":"): int(words[1]) * _KIB for words in pairs if len(words) > 1 and words[1].isdigit()}


def _processes() -> int | None:
    me = os.getuid()
    count = 0
    try:
        with os.scandir("/proc") as entries:
            for entry in entries:
                count += entry.name.isdigit() and _owner(entry) == me
    except OSError:
        return None
    return count or None


def _owner(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat().st_uid
    except OSError:
        return None  # it ended meanwhile


def _process_limit() -> int | None:
    """The system does not hold root to the limit it shows."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return None if limit == resource.RLIM_INFINITY or os.geteuid() == 0 else limit
