"""The pipes of a running Claude Code: control messages are answered at once, the loop gets every other line.

Nothing is parsed twice, and a slow reader of lines cannot keep a hook or an interrupt from being answered.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from untildone.agents.control import CONTROL, ControlChannel, Hook
from untildone.agents.own_tools import OwnTools
from untildone.agents.stream import Line, Parsed, StreamParser
from untildone.ports import Process

LINES_WAITING = 4096
"""Lines that may wait for the loop before Claude itself is made to wait."""
CHUNK = 1 << 18


class Wake:
    """Put among the lines to make the reader of `lines` look up."""


class ClaudePipe:
    """Reads from the start, for as long as the process speaks."""

    def __init__(
        self,
        process: Process,
        hear: Callable[[Line], None],
        *,
        hooks: Sequence[Hook] = (),
        tools: OwnTools | None = None,
    ) -> None:
        """`hear` gets every line at once, before any control message that comes after it."""
        self.lines: asyncio.Queue[Parsed | Wake] = asyncio.Queue(LINES_WAITING)
        """Everything Claude says but control messages; after the last line `ended` is set and a Wake follows."""
        self.ended = asyncio.Event()
        """Claude's output ended: the process is gone or going."""
        self._process = process
        self._hear = hear
        self._parser = StreamParser()
        self.control = ControlChannel(self.write, hooks, tools)
        self._reader = asyncio.create_task(self._read())

    @property
    def speaks(self) -> bool:
        """Whether there are lines left to read, or may be."""
        return not self.ended.is_set() or not self.lines.empty()

    @property
    def heard(self) -> int:
        """Lines of output so far that tell of life."""
        return self._parser.heard

    def wake(self) -> None:
        """Make the reader of `lines` look up; if lines are waiting it will anyway."""
        with contextlib.suppress(asyncio.QueueFull):
            self.lines.put_nowait(Wake())

    async def stop_reading(self) -> None:
        """End the reader: for a process that is gone."""
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader

    async def write(self, data: str) -> None:
        """Send lines to Claude; a Claude that is gone is noticed by the end of its output, not here."""
        with contextlib.suppress(BrokenPipeError):
            await self._process.write(data.encode())

    async def end_input(self) -> None:
        """Tell Claude that no more prompts will come."""
        await self._process.close_stdin()

    async def _read(self) -> None:
        try:
            while chunk := await self._process.read(CHUNK):
                await self._route(self._parser.feed(chunk))
            await self._route(self._parser.finish())
        finally:
            self.ended.set()
            self.control.end()
            self.wake()

    async def _route(self, lines: list[Parsed]) -> None:
        for line in lines:
            if isinstance(line, Line) and line.type in CONTROL:
                if isinstance(line.data, dict):
                    self.control.heard(line.data)
            else:
                if isinstance(line, Line):
                    self._hear(line)
                await self.lines.put(line)
