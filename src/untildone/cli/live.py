"""Live progress on a terminal: finished things scroll by, and a footer shows the run at a glance.

Imports rich, which is slow to load: go through `progress.open_progress`.
"""

import queue
import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from untildone.cli.footer import CTRL_C, Activity, footer, rows_added
from untildone.cli.lines import Tone, is_worth_a_line, tone
from untildone.core.events import Record, WitnessAtWork
from untildone.core.fold import apply
from untildone.core.lines import event_line
from untildone.core.state import LoopState
from untildone.core.views import run_view

_BEAT = 1.0
_FRAME = 0.1
_BACKLOG = 10_000
_LAST_WORD = 2.0
_SAID: dict[Tone, tuple[str, str]] = {
    "good": ("✔", "green"),
    "bad": ("✗", "red"),
    "warn": ("!", "yellow"),
    "head": ("▶", "bold"),
    "quiet": (" ", "dim"),
    "plain": ("•", ""),
}
"""The sign before a line that stays, and its style."""


class LiveScreen:
    """Draws from a thread of its own: a slow or stopped terminal never holds up the run."""

    def __init__(self, console: Console, state: LoopState, *, now: Callable[[], float], ctrl_c: str = CTRL_C) -> None:
        self._console = console
        self._state = state
        self._now = now
        self._ctrl_c = ctrl_c
        self._activity = Activity()
        self._drawn: tuple[int, ...] = ()
        """Columns of each line of the footer that is on the screen."""
        self._inbox: queue.Queue[Record | None] = queue.Queue()
        self._gone = False
        self._thread = threading.Thread(target=self._draw, name="live-screen", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inbox.put(None)
        self._thread.join(_LAST_WORD)

    def on_record(self, record: Record) -> None:
        """Take in one record. Never blocks, never raises."""
        if not self._gone and (record.event.KIND == "control" or self._inbox.qsize() < _BACKLOG):
            self._inbox.put(record)

    def _draw(self) -> None:
        live = Live(
            console=self._console, get_renderable=self._footer, auto_refresh=False, transient=True,
            vertical_overflow="crop", redirect_stdout=True, redirect_stderr=True,
        )  # fmt: skip
        try:
            with live:
                while self._next_frame(live):
                    live.refresh()
        except (OSError, ValueError):
            return  # The terminal is gone. The run goes on.
        finally:
            self._gone = True

    def _next_frame(self, live: Live) -> bool:
        """Wait for news, print what is finished, and say whether there may be more."""
        news = self._news()
        self._erase_overflow(live)
        lines = [line for record in news if record is not None for line in self._see(record)]
        if lines:
            live.console.print(Group(*lines))
        return None not in news

    def _erase_overflow(self, live: Live) -> None:
        """A terminal that was made narrower has wrapped the footer: rich takes back as many lines as it drew."""
        rows = rows_added(self._drawn, self._console.size.width)
        erase = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
        if rows:
            live.console.control(Control(ControlType.CARRIAGE_RETURN, *(erase * rows)))
        self._drawn = ()

    def _news(self) -> list[Record | None]:
        """All that arrives within a frame of the first; nothing, if a beat passes in silence."""
        news: list[Record | None] = []
        ends_at = monotonic() + _BEAT
        try:
            while news[-1:] != [None] and (left := ends_at - monotonic()) > 0:
                news.append(self._inbox.get(timeout=left))
                ends_at = ends_at if len(news) > 1 else monotonic() + _FRAME
        except queue.Empty:
            pass
        return news

    def _see(self, record: Record) -> list[Text]:
        """Take in one record; returns the line it leaves behind, if any."""
        if record.event.KIND == "control":
            self._state = apply(self._state, record)
        finished = self._activity.see(record)
        if isinstance(record.event, WitnessAtWork):
            return []  # the footer has it, with the time it takes
        line = event_line(record) if is_worth_a_line(record.event) else finished
        if not line:
            return []
        if finished:
            return [Text(f"  {line}", "dim", no_wrap=True, overflow="ellipsis")]
        sign, style = _SAID[tone(record.event)]
        return [Text(f"{sign} {line}", style)]

    def _footer(self) -> RenderableType:
        now = self._now()
        size = self._console.size
        view = run_view(self._state, now, alive=True)
        drawn = footer(view, self._activity, now, width=size.width, height=size.height, ctrl_c=self._ctrl_c)
        self._drawn = tuple(min(line.cell_len, size.width) for line in drawn[: size.height])
        return Group(*drawn)
