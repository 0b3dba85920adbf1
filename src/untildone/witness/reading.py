"""Text files the user names: goals, prompts, lists of tasks."""

import os
import stat
import sys

from untildone.config import expanded
from untildone.errors import UsageError

FILE_CAP = 1 << 20
"""The longest goal or list of tasks, in bytes."""


def read_text_file(name: str, what: str, *, again: bool = False) -> str:
    """The text of a file the user named; an error that says which file and why. `again`: it is read more than once."""
    try:
        content = sys.stdin.buffer.read(FILE_CAP + 1) if name == "-" else _content(name, what, again=again)
        if len(content) > FILE_CAP:
            raise UsageError(
                f"{what} {name} is larger than {FILE_CAP >> 20} MiB, too much for a prompt: make it shorter"
            )
        text = content.decode("utf-8").strip()
    except UnicodeDecodeError as broken:
        raise UsageError(f"{what} {name} is not UTF-8 text: save it as UTF-8") from broken
    except OSError as gone:
        raise UsageError(f"{what} {name} cannot be read: {gone.strerror}") from gone
    if not text:
        raise UsageError(f"{what} {name} is empty")
    return text


def _content(name: str, what: str, *, again: bool) -> bytes:
    # Without waiting: a named pipe nobody writes to would hold us for ever. One that is written to is read to its end.
    with open(expanded(name), "rb", opener=_open_at_once) as file:
        kind = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(kind) and (again or not stat.S_ISFIFO(kind)):
            raise UsageError(f"{what} {name} is no plain file: name one with text in it")
        os.set_blocking(file.fileno(), True)
        return file.read(FILE_CAP + 1)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
