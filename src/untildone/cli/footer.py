"""The live part of the screen: the run at a glance, drawn anew as often as it changes.

Imports rich, which is slow to load: only `live` imports this.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import field

from rich.text import Text

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.dataclass import dataclass
from untildone.core.durations import format_duration
from untildone.core.events import Record
from untildone.core.figures import count, short_commit
from untildone.core.lines import event_line
from untildone.core.lines_agent import telling, tool_line
from untildone.core.printable import columns, one_line
from untildone.core.prose import prose_lines
from untildone.core.views import Gauge, RunView

_WORDS_KEPT = 3
CTRL_C = "stops and keeps everything"
_SHORT_SCREEN = 16
_NARROW = 60
_TITLE = 80
_NARROW_BAR = 10
_WIDE_BAR = 40
_NEARLY_FULL = 0.9
_SLOW = 1.0
_BEATS = "●○"
_WITNESS = "the loop itself"
"""Stands for a tool call: what the loop looks at with its own eyes."""


@dataclass(frozen=True, slots=True)
class RunningTool:
    """A tool call that has not answered yet."""

    line: str
    since: float


@dataclass(slots=True)
class Activity:
    """What the agent, or the loop, is doing right now: trace events as far as the footer needs them."""

    tools: dict[str, RunningTool] = field(default_factory=dict)
    words: deque[str] = field(default_factory=lambda: deque(maxlen=_WORDS_KEPT))

    def see(self, record: Record) -> str | None:
        """Take in one record; returns the line of a tool call that is now finished."""
        event = record.event
        match event:
            case tr.AgentToolUse():
                self.tools[event.tool_use_id] = RunningTool(tool_line(event), record.at)
            case tr.AgentToolResult():
                return self._finished(event, record.at)
            case tr.AgentMessage(subagent=False):
                self.words.extend(prose_lines(event.text, last=True))
            case ev.IterationStarted() | ev.IterationCompleted() | ev.IterationFailed():
                self.tools.clear()
                self.words.clear()
            case ev.WitnessAtWork():
                self.tools[_WITNESS] = RunningTool(event_line(record) or "", record.at)
            case _ if event.KIND == "control":
                self.tools.pop(_WITNESS, None)
            case _:
                pass
        return None

    def _finished(self, event: tr.AgentToolResult, at: float) -> str | None:
        tool = self.tools.pop(event.tool_use_id, None)
        if tool is None:
            return None
        took = f"  {format_duration(at - tool.since)}" if at - tool.since >= _SLOW else ""
        failed = f"  ✗ {telling(event.text, 80)}" if event.is_error else ""
        return f"{tool.line}{took}{failed}"


def footer(
    view: RunView, activity: Activity, now: float, *, width: int, height: int, ctrl_c: str = CTRL_C
) -> list[Text]:
    """The lines of the footer for a screen of this size; `ctrl_c` says what that key does."""
    short = height < _SHORT_SCREEN
    parts = [
        _title(view, width),
        _headline(view, now),
    ]
    if view.waiting_until is None:
        parts += _doing(activity, now, words=0 if short else _WORDS_KEPT)
    parts += _bars(view, width, at_most=2 if short else len(view.gauges))
    parts.append(_facts(view))
    if width >= _NARROW and not short:
        parts.append(_line(f" Ctrl+C {ctrl_c} · untildone message {one_line(view.name, 40)} …", "dim"))
    return parts


def rows_added(drawn: Sequence[int], width: int) -> int:
    """How many rows more these lines take, by their columns, on a terminal that is only so wide now."""
    return sum(max(0, -(-taken // max(1, width)) - 1) for taken in drawn)


def _title(view: RunView, width: int) -> Text:
    # Not as wide as the screen may be: what a terminal wraps when it is made narrower cannot be drawn over.
    width = min(width, _TITLE)
    goal = one_line(view.goal, max(8, width - 8))
    line = _line("── ", "dim")
    line.append(goal, "not dim bold")
    line.append(" " + "─" * (width - columns(goal) - 4))
    return line


def _headline(view: RunView, now: float) -> Text:
    beat = _BEATS[int(now) % len(_BEATS)]
    busy = view.status == "running"
    of = f" of {view.iterations_at_most}" if view.iterations_at_most is not None else ""
    again = f", try {view.tries}" if view.tries > 1 else ""
    line = _line("")
    line.append(f" {beat} ", "green" if busy else "yellow")
    when = "" if view.under_way else "after " if view.iteration else "before "
    line.append(f"{when}iteration {view.iteration or 1}{of}{again}", "bold")
    if view.iteration_started_at is not None:
        line.append(f"  {format_duration(max(0.0, now - view.iteration_started_at))}", "cyan")
    if view.waiting_until is not None:
        left = format_duration(max(0.0, view.waiting_until - now))
        line.append(f"  {left} left: {view.phase}", "yellow")
    if not any(gauge.field == "max_duration" for gauge in view.gauges):
        line.append(f"  {format_duration(view.elapsed_seconds)} in all")
    if not any(gauge.field == "max_cost_usd" for gauge in view.gauges):
        line.append(f"  {view.cost} spent")
    if view.waiting_until is None and view.phase != "running":
        line.append(f"  {view.phase}", "yellow")  # last: it may be long, and what does not fit is cut
    return line


def _doing(activity: Activity, now: float, *, words: int) -> list[Text]:
    said = list(activity.words)[-words:] if words else []
    lines = [_line(f"   “{line}”", "italic dim") for line in said]
    running = list(activity.tools.values())
    if running:
        more = f"  and {len(running) - 1} more" if len(running) > 1 else ""
        took = format_duration(max(0.0, now - running[-1].since))
        line = _line(f"   {took:>4}  ", "cyan")
        line.append(running[-1].line, "cyan")
        line.append(more, "dim")
        lines.append(line)
    return lines


def _bars(view: RunView, width: int, *, at_most: int) -> list[Text]:
    # The fullest when not all of them fit: one of those will end the run.
    fullest = sorted(view.gauges, key=lambda gauge: -gauge.share)[:at_most]
    length = _NARROW_BAR if width < _NARROW else min(_WIDE_BAR, width - 45)
    return [_bar(gauge, length) for gauge in view.gauges if gauge in fullest]


def _bar(gauge: Gauge, length: int) -> Text:
    """Filled and empty differ in shape as well as in colour."""
    halves = round(2 * length * gauge.share)
    full = "━" * (halves // 2) + "╸" * (halves % 2)
    line = _line(f" {gauge.label:<9}", "dim")
    line.append(full, f"not dim {'red' if gauge.share >= _NEARLY_FULL else 'green'}")
    line.append("┄" * (length - len(full)))
    line.append(f"  {gauge.text}", "not dim")
    return line


def _facts(view: RunView) -> Text:
    line = _line(" ")
    line.append(view.breaker, "dim" if view.breaker_state == "closed" else "red")
    line.append(f" · done claims {view.streak} of {view.streak_needed}", "dim" if not view.streak else "green")
    facts = []
    if view.verdict in {"passed", "failed"}:
        facts.append(f"checks {view.verdict}")
    if view.tasks_open is not None:
        facts.append(f"{count(view.tasks_open, 'task')} open")
    if view.failed:
        facts.append(f"{view.failed} failed")
    if view.last_commit:
        facts.append(f"{count(view.commits, 'commit')}, last {short_commit(one_line(view.last_commit, 40))}")
    line.append("".join(f" · {fact}" for fact in facts), "dim")
    return line


def _line(text: str, style: str = "") -> Text:
    """One line of the footer, never wrapped: a footer that grows and shrinks makes the screen jump."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")
