"""Loops inside Claude Code, as tables and paragraphs of plain text."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from untildone.cli.streams import hanging
from untildone.cli.tables import aligned, iterations_table, status_text
from untildone.core.dataclass import dataclass
from untildone.core.durations import format_duration
from untildone.core.events import IterationCompleted, IterationStarted, Record
from untildone.core.figures import clock, count, dollars
from untildone.core.lines import event_line
from untildone.core.loop_file import LoopFile
from untildone.core.printable import one_line, printable
from untildone.core.repeats import MOST_FAILURES
from untildone.core.state import LoopState
from untildone.core.views import RunView, run_view
from untildone.hook.holding import is_left
from untildone.ports import RunRow

if TYPE_CHECKING:
    from untildone.hook.register import Entry

_GOAL_WIDTH = 300
_SHORT = 60
_SESSION = 8
_RESUMABLE = re.compile(r"[\w-]{1,64}")
_NOTHING = "no loop is running in this folder: `/untildone:loop GOAL` in a session, or `untildone loop start GOAL`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A loop that is not over."""

    entry: "Entry"
    file: LoopFile | None
    """Its state file; None: it is gone, or cannot be read as one."""


def standing_text(
    here: Standing | None, others: Sequence[Standing], lying: str, now: float, width: int | None = None
) -> str:
    """The loop of this folder in full, those of others a line each."""
    parts = [_in_full(here, now, width) if here else _nothing_here(lying)]
    if others:
        rows = [("LOOP", "TURN", "SESSION", "FOLDER"), *map(_row, others)]
        parts.append("elsewhere:\n" + aligned(rows, width))
    return "\n\n".join(parts)


def _nothing_here(lying: str) -> str:
    if not lying:
        return _NOTHING
    return f"{lying} is here, but was not started on this machine: read it, then `untildone loop adopt` uses it"


def _in_full(standing: Standing, now: float, width: int | None) -> str:
    entry, file = standing.entry, standing.file
    facts = [("loop", f"{entry['loop']}, {entry['file']}"), ("folder", one_line(entry["project"]))]
    facts.append(("session", _session(standing)))
    if file is None:
        facts.append(("trouble", "its state file is gone or cannot be read: the loop ends, or waits, at the next stop"))
    else:
        facts += [("turn", _turn(file)), ("goal", one_line(file.body, _GOAL_WIDTH))]
        facts.append(("promise", one_line(" | ".join(file.promises)) or "EXIT_SIGNAL: true"))
        facts += [("deadline", clock(file.deadline, now))] if file.deadline is not None else []
        facts += [("checks", _checks(entry, file))] if entry["checks"] or file.checks else []
    failures = entry.get("failures", 0)
    at = f" at {one_line(entry.get('failure_point', ''))}" if failures else ""
    facts.append(("failures", f"{failures} of {MOST_FAILURES} in a row{at}"))
    return "\n".join(hanging(f"{label:>10}  ", text, width) for label, text in facts)


def _checks(entry: "Entry", file: LoopFile) -> str:
    said = one_line("; ".join(entry["checks"]))
    if file.layout != "untildone" or list(file.checks) == entry["checks"]:
        return said
    return f"{said or 'none'} (the file says otherwise: not run until `untildone loop adopt`)"


def _session(standing: Standing) -> str:
    session = one_line(standing.entry["session"])
    if not session:
        return "none yet: type `/untildone:loop --adopt` in it"
    if not is_left(standing.entry):
        return session
    again = f"`claude --resume {session}`" if _RESUMABLE.fullmatch(session) else "resume it"
    return f"{session}, which is not open: {again}, or type `/untildone:loop --adopt` in another one"


def _turn(file: LoopFile) -> str:
    off = "" if file.active else ", switched off: it ends at the next stop"
    return f"{max(1, file.iteration)} of {file.max_iterations}{off}"


def _row(standing: Standing) -> tuple[str, ...]:
    entry, file = standing.entry, standing.file
    turn = f"{max(1, file.iteration)}/{file.max_iterations}" if file else "?"
    session = one_line(entry["session"])[:_SESSION] or "waits"
    return entry["loop"], turn, session + (" (not open)" if is_left(entry) else ""), one_line(entry["project"])


def standing_json(here: Standing | None, others: Sequence[Standing], lying: str) -> dict[str, Any]:
    """The same for programs."""
    elsewhere = [_as_json(standing) for standing in others]
    return {"loop": _as_json(here) if here else None, "file_here": lying or None, "elsewhere": elsewhere}


def _as_json(standing: Standing) -> dict[str, Any]:
    entry, file = standing.entry, standing.file
    told = {
        "loop": entry["loop"], "project": entry["project"], "file": entry["file"], "mode": entry["mode"],
        "session": entry["session"] or None, "session_open": _is_open(entry), "created": entry["created"],
        "checks": entry["checks"],
        "failures": entry.get("failures", 0), "failure_point": entry.get("failure_point") or None,
        "readable": file is not None,
    }  # fmt: skip
    if file is None:
        return told
    return told | {
        "iteration": max(1, file.iteration), "max_iterations": file.max_iterations, "active": file.active,
        "promises": list(file.promises), "deadline": file.deadline, "goal": file.body.strip(),
    }  # fmt: skip


def _is_open(entry: "Entry") -> bool | None:
    """Whether somebody has its session open; None where it has none, or nobody said who has."""
    return not is_left(entry) if entry["session"] and entry.get("holder") else None


# --- what is over ------------------------------------------------------------------------------------------------


def history_table(found: Sequence[tuple[RunRow, LoopState]], now: float, width: int | None = None) -> str:
    """Loops that are over, one a line."""
    if not found:
        return "no loop is over yet: `untildone loop status` shows the running ones"
    rows = [("LOOP", "ENDED", "TURNS", "COST", "RESULT", "GOAL")]
    for row, state in found:
        view = run_view(state, now, alive=False)
        ended = f"{format_duration(max(0.0, now - row.updated_at))} ago"
        result = "done" if view.success else view.exit_reason or view.status
        result += " (checked)" if view.verified else ""
        goal = one_line(state.spec.goal, _SHORT)
        rows.append((row.run_id, ended, str(view.attempts), view.cost, one_line(result), goal))
    return aligned(rows, width)


def past_text(view: RunView, records: Iterable[Record], file: str | None, width: int | None = None) -> str:
    """One loop: where it stands or how it ended, its turns, and its state file as it was."""
    parts = [status_text(view, width), iterations_table(records, width)]
    if file is not None:
        parts.append(printable(file, lines=True).strip())
    return "\n\n".join(parts)


def replayed(records: Sequence[Record], width: int | None = None) -> str:
    """What happened, turn by turn, each moment counted from the beginning."""
    if not records:
        return "nothing of this loop is in the log"
    began, lines = records[0].at, list[str]()
    for record in records:
        moment = f"{format_duration(record.at - began):>8}  "
        match record.event:
            case IterationStarted(iteration_num=number):
                lines.append(f"\n{moment}turn {number}")
            case IterationCompleted() as event:
                lines += [hanging(moment, _ended(event), width), *_said(event.output_preview)]
            case _ if line := event_line(record):
                lines.append(hanging(moment, line, width))
    return "\n".join(lines).strip("\n")


def _ended(event: IterationCompleted) -> str:
    cost = "cost unknown" if event.cost_usd is None else dollars(event.cost_usd)
    changed = f"{count(event.evidence.files_changed, 'file')} edited" if event.evidence.changed else "nothing edited"
    return f"turn {event.iteration_num} ended after {format_duration(event.duration_seconds)}, {cost}, {changed}"


def _said(text: str) -> list[str]:
    shown = printable(text, lines=True).strip()
    return [f"          | {line}".rstrip() for line in shown.split("\n")] if shown else []
