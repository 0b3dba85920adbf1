"""Small files in a place an agent can write to: a pipe or a device may lie there instead, and nobody waits for one."""

import errno
import os
import shutil
import stat
from pathlib import Path

LONGEST = 1 << 20
_LARGEST = 1 << 30
_AT_ONCE = 1 << 20


def content(path: str | Path, most: int = LONGEST, *, follow: bool = True) -> bytes:
    """The beginning of a plain file. OSError where there is none, or something else (a link, unless they count)."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        return file.read(most)


def copy_plain(source: Path, target: Path) -> None:
    """Copy a plain file with its time, both right in folders that others may write to. OSError for anything else."""
    handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST:
            raise OSError(errno.EINVAL, "not a plain file", str(source))
        made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(made, "wb") as copy:
            shutil.copyfileobj(file, copy, _AT_ONCE)
        os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns), follow_symlinks=False)


def line(path: str | Path, most: int = LONGEST) -> str:
    """The same as text, without the end of the line: how git notes a path."""
    return os.fsdecode(content(path, most)).rstrip("\n")
