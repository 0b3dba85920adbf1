"""What happened in a run, as lines for eyes: the words are those of `untildone log`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.codec import decode
from untildone.core.dataclass import dataclass
from untildone.core.faults import PAUSED, STEERED, STOPPED
from untildone.core.figures import Timed
from untildone.core.lines import event_text
from untildone.core.lines_agent import telling
from untildone.core.printable import ELLIPSIS, one_line
from untildone.server.archive.port import StoredEvent

_WIDTH = 200
ASKED_FOR = frozenset({STOPPED.name, PAUSED.name, STEERED.name})
"""What ended an iteration because people wanted it: no trouble."""
_FORMATTED = 1_000_000
"""Characters of JSON that are still laid out for reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One event, told in a line."""

    seq: int
    at: float
    tone: str
    """The class it is shown with: `said`, `tool`, `faint`, `good`, `bad`, `human`, `mark` or `note`."""
    text: str
    moment: float | None = None
    """What the text ends with, told by whoever reads it in a zone of their own."""
    after: str = ""
    """What stands behind that moment."""
    more: bool = False
    """There is more of it to be read."""


def record_of(stored: StoredEvent) -> ev.Record:
    """The event as the log next to the driver holds it; what cannot be read is kept as `Unknown`."""
    event = decode(stored.type, stored.version, stored.kind, stored.data.encode())
    return ev.Record(seq=stored.seq, at=stored.at, event=event)


def line_of(stored: StoredEvent) -> Line | None:
    """The line of an event; None for what would only be noise."""
    record = record_of(stored)
    event = record.event
    told = _TOLD_HERE[type(event)](event) if type(event) in _TOLD_HERE else event_text(record)
    if not told:
        return None
    timed = told if isinstance(told, Timed) else None
    text = timed.before if timed else str(told)
    more = text.endswith(ELLIPSIS) or isinstance(event, _HOLDS_MORE) or (ELLIPSIS + "”") in text
    return Line(
        seq=stored.seq, at=stored.at, tone=_tone(event), text=text, more=more,
        moment=timed.at if timed else None, after=timed.after if timed else "",
    )  # fmt: skip


def lines_of(events: Iterable[StoredEvent]) -> list[Line]:
    """Lines of events, in their order."""
    return [line for line in map(line_of, events) if line is not None]


def _result(event: tr.AgentToolResult) -> str:
    said = telling(event.text, _WIDTH // 2)
    return f"  {'✗' if event.is_error else '↳'} {said or 'no output'}"


def _edited(event: tr.AgentFileEdited) -> str:
    verb = "created" if event.change_type == "created" else "edited"
    return one_line(f"↳ {verb} {event.file_path} +{event.lines_added} -{event.lines_removed}", _WIDTH)


def _unknown(event: ev.Unknown) -> str:
    payload = event.data[: 20 * _WIDTH].decode("utf-8", "replace")
    return one_line(f"{event.type} {payload}", _WIDTH)


_TOLD_HERE: Mapping[type[ev.Event], Callable[[Any], str]] = {
    tr.AgentToolResult: _result,
    tr.AgentFileEdited: _edited,
    ev.Unknown: _unknown,
}
"""What the plain log leaves out, or cannot tell: here there is room to open it."""
_HOLDS_MORE = (tr.AgentToolResult, tr.AgentFileEdited, ev.IterationValidation, ev.IterationFailed)

_TONES: Mapping[type[ev.Event], str] = {
    tr.AgentMessage: "said",
    tr.AgentToolUse: "tool",
    tr.AgentFileEdited: "faint",
    tr.AgentStarted: "faint",
    tr.AgentSession: "faint",
    tr.AgentStreamError: "bad",
    ev.IterationStarted: "mark",
    ev.IterationCompleted: "mark",
    ev.IterationFailed: "bad",
    ev.StoreTampered: "bad",
    ev.HookFailed: "bad",
    ev.LandingCommitted: "good",
    ev.LandingMerged: "good",
    ev.LandingFailed: "bad",
    ev.LandingGaveUp: "bad",
    ev.LandingReverted: "bad",
    ev.QuestionAsked: "human",
    ev.ContinuousSuspended: "mark",
}


def _tone(event: ev.Event) -> str:
    match event:
        case ev.Command():
            return "human"
        case tr.AgentToolResult():
            return "bad" if event.is_error else "faint"
        case ev.IterationFailed(error_type=fault) if fault in ASKED_FOR:
            return "note"
        case ev.IterationValidation():
            return "good" if event.passed else "bad"
        case ev.ContinuousCompleted():
            return "good" if event.verified else "mark"
        case _:
            return _TONES.get(type(event), "note")


def whole_text(stored: StoredEvent) -> tuple[str, bool]:
    """All that an event says, and whether it is a diff."""
    match record_of(stored).event:
        case tr.AgentMessage(text=text) | tr.AgentToolResult(text=text):
            return text, False
        case tr.AgentToolUse(detail=detail, tool=tool):
            return f"{tool}\n{detail}", False
        case tr.AgentFileEdited() | tr.IterationFilesChanged() as changed:
            return changed.full_diff or changed.diff_preview, True
        case ev.MessageReceived(content=content):
            return content, False
        case ev.IterationFailed(error=error):
            return error, False
        case _:
            return _as_json(stored.data), False


def _as_json(data: str) -> str:
    if len(data) > _FORMATTED:
        return data
    try:
        return msgspec.json.format(data.encode(), indent=2).decode()
    except (ValueError, RecursionError):
        return data
