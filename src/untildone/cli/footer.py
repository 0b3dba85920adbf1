"""The live part of the screen: the run at a glance, drawn anew as often as it changes.

Imports rich, which is slow to load: only `live` imports this.
"""

from collections import deque
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.durations import format_duration
from untildone.core.events import Record
from untildone.core.figures import count, short_commit
from untildone.core.lines import tool_line
from untildone.core.printable import one_line, printable
from untildone.core.views import RunView

_WORDS_KEPT = 3
_SHORT_SCREEN = 16
_NARROW = 60
_NARROW_BAR = 10
_WIDE_BAR = 40
_NEARLY_FULL = 0.9
_SLOW = 1.0
_BEATS = "●○"


@dataclass(frozen=True, slots=True)
class RunningTool:
    """A tool call that has not answered yet."""

    line: str
    since: float


@dataclass(slots=True)
class Activity:
    """What the agent is doing right now: trace events as far as the footer needs them."""

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
                # Only the end of a long text can be shown: cleaning all of it would be in vain.
                said = (one_line(line) for line in printable(event.text[-4000:], lines=True).split("\n"))
                self.words.extend(line for line in said if line)
            case ev.IterationStarted() | ev.IterationCompleted() | ev.IterationFailed():
                self.tools.clear()
                self.words.clear()
            case _:
                pass
        return None

    def _finished(self, event: tr.AgentToolResult, at: float) -> str | None:
        tool = self.tools.pop(event.tool_use_id, None)
        if tool is None:
            return None
        took = f"  {format_duration(at - tool.since)}" if at - tool.since >= _SLOW else ""
        failed = f"  ✗ {one_line(event.text, 80)}" if event.is_error else ""
        return f"{tool.line}{took}{failed}"


def footer(view: RunView, activity: Activity, now: float, *, width: int, height: int) -> RenderableType:
    """The footer for a screen of this size."""
    short = height < _SHORT_SCREEN
    parts: list[RenderableType] = [
        Rule(Text(one_line(view.goal, max(10, width - 8)), "bold"), align="left", style="dim"),
        _headline(view, now),
    ]
    if view.waiting_until is None:
        parts += _doing(activity, now, words=0 if short else _WORDS_KEPT)
    if view.gauges:
        parts.append(_bars(view, width, at_most=2 if short else len(view.gauges)))
    parts.append(_facts(view))
    if width >= _NARROW and not short:
        parts.append(_line(f"Ctrl+C stops and keeps everything · untildone message {one_line(view.name, 40)} …", "dim"))
    return Group(*parts)


def _headline(view: RunView, now: float) -> Text:
    beat = _BEATS[int(now) % len(_BEATS)]
    busy = view.status == "running"
    of = f" of {view.iterations_at_most}" if view.iterations_at_most is not None else ""
    again = f", try {view.tries}" if view.tries > 1 else ""
    line = _line("")
    line.append(f" {beat} ", "green" if busy else "yellow")
    line.append_text(Text(f"iteration {view.iteration}{of}{again}", "bold"))
    if view.waiting_until is not None:
        left = format_duration(max(0.0, view.waiting_until - now))
        line.append(f"  {view.phase}, {left} left", "yellow")
    elif view.phase != "running":
        line.append(f"  {view.phase}", "yellow")
    if not any(gauge.field == "max_duration" for gauge in view.gauges):
        line.append(f"  {format_duration(view.elapsed_seconds)}")
    if not any(gauge.field == "max_cost_usd" for gauge in view.gauges):
        line.append(f"  {view.cost}")
    return line


def _doing(activity: Activity, now: float, *, words: int) -> list[Text]:
    lines = [_line(f"   “{said}”" if words else "", "italic dim") for said in list(activity.words)[-words:] if words]
    # A copy: the newest call is the one a person wants to see.
    running = list(activity.tools.values())
    if running:
        more = f"  and {len(running) - 1} more" if len(running) > 1 else ""
        took = format_duration(max(0.0, now - running[-1].since))
        line = _line(f"   {took:>4}  ", "cyan")
        line.append(running[-1].line, "cyan")
        line.append(more, "dim")
        lines.append(line)
    return lines


def _bars(view: RunView, width: int, *, at_most: int) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=9)
    bar = _NARROW_BAR if width < _NARROW else min(_WIDE_BAR, width - 45)
    grid.add_column(width=bar)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    # The fullest first when not all of them fit: that is the one that will end the run.
    shown = sorted(view.gauges, key=lambda gauge: -gauge.share)[:at_most]
    for gauge in (gauge for gauge in view.gauges if gauge in shown):
        style = "red" if gauge.share >= _NEARLY_FULL else "green"
        meter = ProgressBar(total=1.0, completed=gauge.share, width=bar, complete_style=style, finished_style="red")
        grid.add_row(_line(f" {gauge.label}", "dim"), meter, _line(gauge.text))
    return grid


def _facts(view: RunView) -> Text:
    line = _line(" ")
    line.append(f"breaker {view.breaker}", "dim" if view.breaker_state == "closed" else "red")
    line.append(f" · claims {view.streak}/{view.streak_needed}", "dim" if not view.streak else "green")
    facts = []
    if view.verdict in {"passed", "failed"}:
        facts.append(f"checks {view.verdict}")
    if view.tasks_open is not None:
        facts.append(f"{count(view.tasks_open, 'task')} open")
    if view.attempts > view.successes + (view.status == "running"):
        facts.append(f"{view.successes} ok of {view.attempts}")
    if view.last_commit:
        facts.append(f"{count(view.commits, 'commit')}, last {short_commit(one_line(view.last_commit, 40))}")
    line.append("".join(f" · {fact}" for fact in facts), "dim")
    return line


def _line(text: str, style: str = "") -> Text:
    """One line of the footer, never wrapped: a footer that grows and shrinks makes the screen jump."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")
