"""One living Claude Code process, and its control channel."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any

from untildone.agents.claude_pipe import ClaudePipe
from untildone.agents.report_tool import Reminders, hooks_of, tools_of
from untildone.agents.stream import Line
from untildone.core.liveness import Pulse
from untildone.ports import Process

CONTROL_PATIENCE = 1.5
"""Seconds Claude may take to answer a control request before it is thought stuck."""
START_PATIENCE = 60.0
"""Seconds a start may take: half a second alone, many under load."""
FAREWELL = 0.5
"""Seconds an idle Claude may take to leave by itself once its input ended."""
DYING = 0.5
"""Seconds what an interrupted iteration had started may take to be gone."""
_GLANCE = 0.02


class WarmClaude:
    """A process that takes one prompt after another."""

    def __init__(self, process: Process, reminders: Reminders, *, budget_usd: float | None) -> None:
        self.pid = process.pid
        self.pipe = ClaudePipe(process, reminders.hear, hooks=hooks_of(reminders), tools=tools_of(reminders))
        self.reminders = reminders
        self.budget_usd = budget_usd
        """The fence this process was started with."""
        self.session_id: str | None = None
        """The conversation it is in; None: none worth going on with."""
        self.permission_mode: str | None = None
        """The last permission mode it reported; None: the one it was started with."""
        self.iterations = 0
        self.connected = False
        """The control channel was up."""
        self.in_doubt = False
        """Something happened after which nobody knows what it would do with another prompt."""
        self.complaint = ""
        """What was said about the last request that failed."""
        self._process = process
        self._family: set[int] = set()

    @property
    def usable(self) -> bool:
        """Whether it can be given another prompt."""
        return not self.in_doubt and not self.pipe.ended.is_set()

    async def connect(self) -> bool:
        """Bring up the control channel; False when Claude ended or did not answer."""
        self.connected = await self._answered(self.pipe.control.begin(), START_PATIENCE)
        return self.connected

    async def say(self, text: str) -> None:
        """Send a prompt or a slash command."""
        message = {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}
        await self.pipe.write(json.dumps({**message, "session_id": "default"}) + "\n")

    async def interrupt(self) -> bool:
        """Ask Claude to end its turn; False when it did not even answer."""
        return self.connected and await self._answered(self.pipe.control.ask("interrupt"), CONTROL_PATIENCE)

    async def stop_task(self, task_id: str) -> bool:
        """End a background task."""
        asking = self.pipe.control.ask("stop_task", task_id=task_id)
        return await self._answered(asking, CONTROL_PATIENCE)

    async def restore_permission_mode(self, mode: str) -> None:
        """Undo a change of mode the last iteration made: it would be carried over."""
        if self.permission_mode not in (None, mode):
            setting = self.pipe.control.ask("set_permission_mode", mode=mode)
            self.in_doubt = not await self._answered(setting, CONTROL_PATIENCE)
            self.permission_mode = mode

    def notice(self, line: Line) -> None:
        """Take note of what the process says about itself."""
        if line.type != "system" or not isinstance(line.data, Mapping):
            return
        mode = line.data.get("permissionMode")
        if isinstance(mode, str):
            self.permission_mode = mode

    async def exit_status(self, patience: float) -> int | None:
        """Return the exit status of a process whose output ended; it is made to exit if it does not by itself."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                return await self._process.wait()
        await self._process.end(grace=0.0)
        return None

    def pulse(self) -> Pulse:
        """Signs of life of the process and all it started."""
        return replace(self._process.vitals(), heard=self.pipe.heard)

    def remember_family(self) -> None:
        """Take note of what runs before a prompt is given, such as MCP servers."""
        self._family = self._process.family()

    async def has_left_nothing(self) -> bool:
        """Whether all that was started since then is gone, or is gone in a moment."""
        give_up = asyncio.get_running_loop().time() + DYING
        while self._process.family() - self._family:
            if asyncio.get_running_loop().time() > give_up:
                return False
            await asyncio.sleep(_GLANCE)
        return True

    def starved(self) -> bool:
        """Whether memory ran out on the machine while it ran."""
        return self._process.starved()

    def stderr_tail(self) -> str:
        """Return the end of what it wrote to stderr."""
        return self._process.stderr_tail()

    async def end(self, *, polite: bool) -> None:
        """End it and everything it started. Bounded, and harmless when repeated."""
        self.in_doubt = True
        if polite and not self.pipe.ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self.pipe.end_input()
                    await self._process.wait()
        await self._process.end(grace=0.6)
        self.pipe.control.end()
        await self.pipe.stop_reading()

    async def _answered(self, request: Awaitable[Any], patience: float) -> bool:
        """Wait for Claude Code, but neither for ever nor for an answer that cannot come any more."""
        asking = asyncio.ensure_future(request)
        ended = asyncio.create_task(self.pipe.ended.wait())
        try:
            await asyncio.wait({asking, ended}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if asking.done() and asking.exception() is None:
                return True
            if self.pipe.ended.is_set():
                self.complaint = ""  # what it said last tells more
            elif asking.done():
                self.complaint = str(asking.exception())
            else:
                self.complaint = f"Claude Code did not answer within {patience:.0f} s"
            return False
        finally:
            for task in (asking, ended):
                task.cancel()
            await asyncio.gather(asking, ended, return_exceptions=True)
