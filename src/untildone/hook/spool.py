"""What hooks saw of a loop, one line each; any other command folds it into the log of runs later."""

import os

from untildone.hook import plain_json
from untildone.hook.files import append_line

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


def spool_path(home: str, loop: str) -> str:
    """The spool of one loop."""
    return os.path.join(home, "spool", f"{loop}.jsonl")


def tell(home: str, loop: str, what: str, at: float, **facts: object) -> None:
    """Append one line."""
    append_line(spool_path(home, loop), plain_json.render({"at": at, "what": what, **facts}))


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
