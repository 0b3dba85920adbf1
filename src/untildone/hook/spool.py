"""What hooks saw of a loop, one line each; any other command folds it into the log of runs later.

Each line is sealed, and names the one before it: a line that somebody else wrote, changed, copied or took away is
noticed by whoever folds it.
"""

import os
import time

from untildone.hook import plain_json
from untildone.hook.sealing import is_sealed, seal_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# What a line can tell (`what`), besides `at` (epoch seconds) and `session`:
#   started   goal, project, mode, max_iterations, promises, checks, transcript, deadline, total_seconds
#   adopted   transcript                                                          a session (`session`) has it
#   turn      iteration, claim, open_work, text (capped)                           one turn ended, and it goes on
#   tool      tool, ok, edit, detail                                              one tool call
#   failed    point, failures                                                     the breaker counted
#   check     command, passed, seconds, output (capped)
#   refused   tool, detail, why                                                   the guard said no
#   released  reason (core.stopping), iteration, done, detail, text               it is over, or has let go
#   milestone iteration
#   asked     question, by (`agent`, `user`)                                     for the human, later
#   changed   goal, promises, checks, max_iterations, deadline                    the user edited what it works for
# and at the end of each: `prev`, the number of the line before it, and `seal`, its own number and its seal. Numbers
# are moments in nanoseconds, so that they grow whatever becomes of the file.

_SEAL = ', "seal": "'
_LONGEST_NUMBER = 20
_TAIL = 128
_PATIENCE = 2.0
"""Seconds for whoever else writes; then it is written anyway, and at worst a gap is seen where there is none."""
_LOOK_EVERY = 0.005
_DAY = 86_400_000_000_000


class Line:
    """One line that a hook wrote."""

    __slots__ = ("number", "prev", "value")

    def __init__(self, value: "dict[str, Any]", number: int) -> None:
        self.value = value
        self.number = number
        prev = value.get("prev")
        self.prev: int = prev if isinstance(prev, int) else 0


def spool_path(home: str, loop: str) -> str:
    """The spool of one loop."""
    return os.path.join(home, "spool", f"{loop}.jsonl")


def tell(home: str, loop: str, what: str, at: float, **facts: object) -> None:
    """Append one line, whole even when several hooks write at once. OSError where it does not fit on the disk."""
    path = spool_path(home, loop)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    handle = _opened(path)
    try:
        _lock(handle)
        size = os.fstat(handle).st_size
        tail = os.pread(handle, _TAIL, max(0, size - _TAIL))
        prev = _number_at_end(tail)
        number = max(time.time_ns(), prev + 1)
        line = sealed(home, loop, number, {"at": at, "what": what, **facts, "prev": prev})
        # Half a line, of a disk that was full, must not be glued to this one.
        written = (b"\n" if tail and not tail.endswith(b"\n") else b"") + line
        if os.write(handle, written) < len(written):
            import errno

            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(handle)


def sealed(home: str, loop: str, number: int, facts: "dict[str, object]") -> bytes:
    """A line as it is written, with its end."""
    body = plain_json.render(facts)[:-1]
    seal = seal_of(home, f"note {loop} {number}", body.encode())
    return f'{body}{_SEAL}{number}-{seal}"}}\n'.encode()


def opened(home: str, loop: str, line: bytes) -> "Line | None":
    """What a line tells, if a hook of this machine wrote it for this loop; None for anything else."""
    body, found, end = line.rstrip(b"\n").rpartition(_SEAL.encode())
    number, _, seal = end.removesuffix(b'"}').decode("ascii", "replace").partition("-")
    is_number = number.isascii() and number.isdigit() and len(number) <= _LONGEST_NUMBER
    if not found or not is_number or not is_sealed(home, f"note {loop} {number}", body, seal):
        return None
    try:
        value = plain_json.parse(body.decode("utf-8", "replace") + "}")
    except ValueError:
        return None
    return Line(value, int(number)) if isinstance(value, dict) else None


def _opened(path: str) -> int:
    """The spool, to be written. What is no file is put out of the way: it must not stop a loop from going on."""
    import stat

    how = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for _ in range(2):
        try:
            handle = os.open(path, how, 0o600)
        except OSError:
            if not os.path.islink(path):
                raise
        else:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return handle
            os.close(handle)
        os.unlink(path)
    raise OSError(f"{path} is no file")


def _lock(handle: int) -> None:
    import fcntl

    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > until:
                return
            time.sleep(_LOOK_EVERY)
        else:
            return


def _number_at_end(tail: bytes) -> int:
    """The number of the last line, whoever wrote it; 0 where it has none that can be."""
    number, _, _ = tail.rpartition(_SEAL.encode())[2].decode("ascii", "replace").partition("-")
    if not (number.isascii() and number.isdigit() and len(number) <= _LONGEST_NUMBER):
        return 0
    return int(number) if int(number) < time.time_ns() + _DAY else 0


def since(home: str, loop: str, offset: int, *, cap: int = 1 << 16) -> "tuple[list[dict[str, Any]], int]":
    """The whole lines after `offset`, at most `cap` bytes of them, and the offset after them."""
    try:
        with open(spool_path(home, loop), "rb") as file:
            file.seek(offset)
            read = file.read(cap)
    except OSError:
        return [], offset
    whole = read[: read.rfind(b"\n") + 1]
    return list(_lines(whole)), offset + len(whole)


def size(home: str, loop: str) -> int:
    """How long the spool is by now."""
    try:
        return os.stat(spool_path(home, loop)).st_size
    except OSError:
        return 0


def tool_used_since(home: str, loop: str, offset: int, *, cap: int = 1 << 20) -> bool:
    """Whether a tool call stands after `offset`. Text that is quoted there cannot look like one."""
    try:
        with open(spool_path(home, loop), "rb") as file:
            file.seek(max(offset, file.seek(0, os.SEEK_END) - cap))
            return b'"what": "tool"' in file.read(cap)
    except OSError:
        return False


def _lines(whole: bytes) -> "Iterator[dict[str, Any]]":
    for line in whole.split(b"\n"):
        try:
            value = plain_json.parse(line.decode("utf-8", "replace"))
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
