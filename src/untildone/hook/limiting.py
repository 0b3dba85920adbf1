"""The limits of a loop: its time, its turns, its failures, and the one that Claude Code sets."""

from untildone.core.loop_file import next_time
from untildone.core.repeats import MOST_FAILURES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from untildone.core.loop_file import LoopFile
    from untildone.hook.register import Entry

BLOCK_CAP = 8
"""So many stops in a row Claude Code lets be refused without a tool call, unless its setting says otherwise."""
CAP_SETTING = "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"
_LONGEST_NUMBER = 9


def time_is_up(entry: "Entry", file: "LoopFile", now: float) -> str | None:
    """Which time is used up, in words; None while there is some left. For every moment a hook is called."""
    reason = time_reason(entry, file, now)
    if reason:
        return "the deadline of this loop has passed" if reason == "deadline_reached" else "the time of this loop is up"
    return "the time of this turn is up" if is_overtime(entry, now) else None


def reached(entry: "Entry", file: "LoopFile", turn: int, now: float) -> str:
    """Why a loop has to end after this turn, by the name it is recorded with; nothing while it may go on."""
    reason = time_reason(entry, file, now)
    if reason:
        return reason
    if turn >= file.max_iterations:
        return "max_iterations_reached"
    return "circuit_open" if entry.get("failures", 0) >= MOST_FAILURES else ""


def time_reason(entry: "Entry", file: "LoopFile", now: float) -> str:
    """Which of its own times is over for the whole loop."""
    deadline = deadline_of(entry, file)
    if deadline is not None and now >= deadline:
        return "deadline_reached"
    total = entry.get("total_seconds") or 0.0
    return "max_duration_reached" if 0 < total <= now - entry.get("created", now) else ""


def deadline_of(entry: "Entry", file: "LoopFile") -> float | None:
    """The moment of the deadline; a time of day means the first one after this turn began."""
    if file.clock:
        return next_time(file.clock, entry.get("turn_started") or entry.get("created", 0.0))
    return file.deadline


def is_overtime(entry: "Entry", now: float) -> bool:
    """Whether the turn under way takes longer than it may; one whose beginning nobody saw never does."""
    allowed, began = entry.get("iteration_seconds") or 0.0, entry.get("turn_started") or 0.0
    return began > 0 and 0 < allowed <= now - began


def begin_turn(home: str, project: str, session: str, now: float) -> None:
    """The user spoke: whatever time lay between, the turn that begins now has all of its own."""
    from untildone.hook import register

    entry = register.find(home, project)
    if entry is None or not session or entry.get("session") != session or not entry.get("iteration_seconds"):
        return
    with register.lock(home, project):
        entry = register.find(home, project)
        if entry is not None:
            register.write(home, {**entry, "turn_started": now})


def block_cap(env: "Mapping[str, str]") -> int:
    """After how many refused stops in a row Claude Code lets go; 0: never."""
    given = env.get(CAP_SETTING, "").strip()
    is_number = given.isascii() and given.isdigit() and len(given) <= _LONGEST_NUMBER
    return int(given) if is_number else BLOCK_CAP
