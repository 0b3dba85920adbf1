"""The folder `.multi-agent` of an older layout: a mark that switches a loop on, and a file that counts for it."""

import os

from untildone.core.loop_file import LoopFile
from untildone.hook import plain_json
from untildone.hook.adopting import read_state
from untildone.hook.files import write_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BREAKER = ".multi-agent/circuit-breaker.json"
MOST_TURNS = 100
_CAP = 1 << 20
_GOAL = "Continue with the incomplete work of this project until every task and every sprint is complete."


def as_loop(project: str, mark: str) -> LoopFile:
    """The loop that the mark stands for; its text, if it has one, is the goal."""
    turn = min(_count(read_breaker(project), "total_iterations") + 1, _CAP)
    settings = {"iteration_count": str(turn), "max_iterations": str(MOST_TURNS), "active": "true"}
    return LoopFile({**settings}, mark if mark.strip() else _GOAL, "untildone")


def failures(project: str) -> int:
    """Failures in a row as that file counts them."""
    return _count(read_breaker(project), "consecutive_failures")


def count_turn(project: str, turn: int, failed: int, *, create: bool) -> None:
    """Write down how many turns were had, and failures in a row; what else stands there stays."""
    found = read_breaker(project)
    if found is None and (not create or os.path.lexists(os.path.join(project, BREAKER))):
        return
    counted = {"consecutive_failures": failed, "total_iterations": turn}
    write_text(os.path.join(project, BREAKER), plain_json.render({**(found or {}), **counted}) + "\n")


def read_breaker(project: str) -> "dict[str, Any] | None":
    """The counts, if there are any."""
    try:
        found = plain_json.parse(read_state(project, BREAKER) or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _count(found: "dict[str, Any] | None", name: str) -> int:
    value = (found or {}).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
