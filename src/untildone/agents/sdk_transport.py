"""A running Claude Code as the SDK's transport: the SDK sees control messages only, the loop gets every other line.

So the SDK does the control protocol, hooks and in-process tools, but its message buffer never fills, nothing is
parsed twice, and a slow reader of lines cannot keep a hook or an interrupt from being answered.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from untildone.agents.stream import Line, Parsed, StreamParser
from untildone.ports import Process

LINES_WAITING = 4096
"""Lines that may wait for the loop before Claude itself is made to wait."""
CHUNK = 1 << 18
_CONTROL = frozenset({"control_request", "control_response", "control_cancel_request"})


class Wake:
    """Put among the lines to make the reader of `lines` look up."""


class SdkTransport:
    """Satisfies `claude_agent_sdk.Transport` without importing it."""

    def __init__(self, process: Process, hear: Callable[[Line], None]) -> None:
        """`hear` gets every line at once, before any control message that comes after it."""
        self.lines: asyncio.Queue[Parsed | Wake] = asyncio.Queue(LINES_WAITING)
        """Everything Claude says that is not for the SDK; after the last line `ended` is set and a Wake follows."""
        self.ended = asyncio.Event()
        """Claude's output ended: the process is gone or going."""
        self._process = process
        self._hear = hear
        self._parser = StreamParser()
        self._control: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
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

    async def connect(self) -> None:
        """Nothing to do: the process runs and is being read from the start."""

    async def write(self, data: str) -> None:
        """Send lines to Claude; a Claude that is gone is noticed by the end of its output, not here."""
        with contextlib.suppress(BrokenPipeError):
            await self._process.write(data.encode())

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the control messages."""
        while (message := await self._control.get()) is not None:
            yield message

    async def close(self) -> None:
        """Nothing to do: whoever started the process ends it."""

    def is_ready(self) -> bool:
        """Whether there is still somebody to talk to."""
        return not self.ended.is_set()

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
            self._control.put_nowait(None)
            self.wake()

    async def _route(self, lines: list[Parsed]) -> None:
        for line in lines:
            if isinstance(line, Line) and line.type in _CONTROL:
                if isinstance(line.data, dict):
                    self._control.put_nowait(line.data)
            else:
                if isinstance(line, Line):
                    self._hear(line)
                await self.lines.put(line)
