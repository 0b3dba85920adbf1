"""Small files in a place an agent can write to: a pipe or a device may lie there instead, and nobody waits for one."""

import errno
import os
import stat
from pathlib import Path

LONGEST = 1 << 20


def content(path: str | Path, most: int = LONGEST) -> bytes:
    """The beginning of a plain file. OSError where there is none, or something else."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        return file.read(most)


def line(path: str | Path, most: int = LONGEST) -> str:
    """The same as text, without the end of the line: how git notes a path."""
    return os.fsdecode(content(path, most)).rstrip("\n")
