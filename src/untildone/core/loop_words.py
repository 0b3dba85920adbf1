"""What a loop inside Claude Code says: to the agent when it goes on, to the user in one line.

Stdlib only, and next to nothing of it: the Stop hook runs this file under `python3 -I -S`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .loop_file import LoopFile

GOAL_CAP = 8000
OUTPUT_CAP = 4000
_LINE_CAP = 300
AUTO = "[AUTO]"
"""How the lines begin with which an autonomous agent shows where it is."""
EXIT_SIGNAL = "EXIT_SIGNAL: true"
"""What says that everything is done where no promise was agreed on."""

CONTINUATION_BLOCK = """\
[SYSTEM REMINDER - CONTINUATION LOOP ACTIVE]
This is an automated continuation loop. Review your progress:
- Check what has been completed
- Continue working towards the goal
- If complete, explicitly state the completion promise
- If blocked, explain the issue"""

# Every value is in angle brackets: quoted back, this is no claim.
_BLOCKED = """\
If only a human can help, end your message with this block, filled in:
---LOOP_STATUS---
STATUS: <BLOCKED>
RECOMMENDATION: <what you need, and from whom>
---END_LOOP_STATUS---
Otherwise do not ask and do not wait: decide yourself, and go on with the next step now."""

_ENDS = {
    "validation_passed": "done, every check passed",
    "completion_signal": "done by the agent's word: no checks ran",
    "stop_requested": "stopped as asked, not done",
    "blocked": "the agent is blocked and needs you, not done",
    "max_iterations_reached": "no turns are left, not done",
    "deadline_reached": "the deadline has passed, not done",
    "max_duration_reached": "its time is used up, not done",
    "loop_lost": "its state file is gone, not done",
    "circuit_open": "it failed at the same point again and again, not done",
}
"""What the end of a loop is to the user, by the reason it is recorded with."""


class Look:
    """What the agent should know about where it stands, besides its goal."""

    __slots__ = (
        "claimed",
        "doubts",
        "failed_check",
        "mode",
        "needs_tool",
        "open_lines",
        "open_work",
        "output",
        "overtime",
        "running",
    )

    def __init__(self, mode: str = "promise") -> None:
        self.mode = mode
        self.claimed = False
        """It said that everything is done, and that is not believed."""
        self.doubts: Sequence[str] = ()
        """What it said beside a status that says done."""
        self.open_work = 0
        self.open_lines: Sequence[str] = ()
        self.failed_check = ""
        self.output = ""
        self.overtime = False
        """The turn took longer than it may."""
        self.needs_tool = False
        """Claude Code is about to end the session, because no tool was used for long."""
        self.running = ""
        """What it left running in the background, in words."""


def go_on(file: "LoopFile", turn: int, look: Look) -> str:
    """What begins the next turn."""
    older = file.layout == "stravinsky"
    parts = [
        CONTINUATION_BLOCK if older else "",
        f"This is turn {turn} of {file.max_iterations} of a loop that goes on until its goal is reached.",
        _goal(file.body),
        *_findings(look),
        _auto(turn) if look.mode == "autonomous" else "",
        _how_to_end(file.promises),
        "" if older else _BLOCKED,
    ]
    return safe("\n\n".join(part for part in parts if part))


def _goal(body: str) -> str:
    goal = body.strip()
    if len(goal) > GOAL_CAP:
        goal = f"{goal[:GOAL_CAP].rstrip()}\n… (the rest stands in the state file of the loop)"
    return f"The goal:\n{goal}" if goal else ""


def _findings(look: Look) -> "list[str]":
    found = []
    if look.failed_check:
        found.append(
            f"You said that everything is done. That was checked, and it is not: `{look.failed_check}`\n"
            f"The end of its output:\n{look.output[-OUTPUT_CAP:].strip() or '(none)'}"
        )
    if look.doubts:
        said = "\n".join(f"> {line}" for line in look.doubts)
        found.append(
            f"You said that everything is done, and in the same message:\n{said}\n"
            "If that names something left of the goal, do it now. If it does not, say that everything is done again, "
            "without these sentences or with `REMAINING: none` in the status block."
        )
    if look.open_work:
        said = "You said that everything is done, but there is open work" if look.claimed else "Open work"
        found.append("\n".join((f"{said} ({look.open_work}):", *(f"- {line[:_LINE_CAP]}" for line in look.open_lines))))
    if look.running:
        found.append(
            f"In the background there is still {look.running}. If you need its result, wait for it with a tool; if "
            "not, go on with something else. To stop and wait ends this turn and uses up the next."
        )
    if look.overtime:
        found.append("The last turn took longer than it may: take smaller steps.")
    if look.needs_tool:
        found.append(
            "Use a tool now, at least one, before you answer: Claude Code ends a session that goes on for long "
            "without any."
        )
    return found


def _auto(turn: int) -> str:
    return (
        "You work autonomously: look at the tasks and take up the next one that is not complete. After each "
        "significant action print a line like\n"
        f"{AUTO} Iteration {turn} | Sprint X/Y | Task: TASK-XXX | Status: CONTINUING"
    )


def _how_to_end(promises: "Sequence[str]") -> str:
    said = [f"`{promise}`" for promise in promises] or [f"`{EXIT_SIGNAL}`"]
    if len(said) > 1:
        phrase = "one of these texts, alone on the last line of your message: " + ", ".join(said)
    else:
        phrase = f"this text, alone on the last line of your message: {said[0]}"
    return (
        "Only if the ENTIRE goal is reached and you have verified it yourself, say so with "
        f"{phrase}. Never write it for any other purpose."
    )


# --- to the user -----------------------------------------------------------------------------------------------


def turn_line(turn: int, limit: int, *notes: str) -> str:
    """That it goes on."""
    return _line(f"turn {turn} of {limit}", *notes)


def end_line(reason: str, turns: int, detail: str = "") -> str:
    """That it is over, and why."""
    return _line(f"{_ENDS.get(reason, reason)} (after {turns} {'turn' if turns == 1 else 'turns'})", detail)


def line(text: str) -> str:
    """Anything else, as one safe line."""
    return _line(text)


def _line(text: str, *notes: str) -> str:
    said = "; ".join(part for part in (text, *notes) if part)
    return "untildone: " + " ".join(safe(said).split())[: 2 * _LINE_CAP]


def safe(text: str) -> str:
    """Text that may meet a terminal: state files, checks and agents can say anything."""
    if text.replace("\n", " ").replace("\t", " ").isprintable():
        return text
    from .printable import printable

    return printable(text, lines=True)
