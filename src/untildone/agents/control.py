"""The control channel of a running Claude Code: what it is asked besides prompts, and what it asks.

It asks when a hook is due, and when the agent calls one of our own tools. All of it are lines on the pipes that the
conversation uses too.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any

from untildone.agents.own_tools import OwnTools
from untildone.core.dataclass import dataclass
from untildone.errors import AgentError

CONTROL = frozenset({"control_request", "control_response", "control_cancel_request"})
"""The types of its lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """Something Claude Code asks before it goes on."""

    event: str
    """When, in Claude Code's words."""
    answer: Callable[[Any], Mapping[str, Any]]
    timeout: float
    """Seconds after which it goes on without an answer."""
    matcher: str | None = None


class ControlChannel:
    """Asks and answers; whoever reads Claude's output hands over the lines that belong here."""

    def __init__(
        self, write: Callable[[str], Awaitable[None]], hooks: Sequence[Hook] = (), tools: OwnTools | None = None
    ) -> None:
        self._write = write
        self._hooks = {f"hook_{number}": hook for number, hook in enumerate(hooks)}
        self._tools = tools
        self._numbers = count(1)
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._answers: dict[str, asyncio.Task[None]] = {}

    async def begin(self) -> None:
        """Say which hooks there are: Claude Code takes no prompt before that."""
        points: dict[str, list[dict[str, Any]]] = {}
        for name, hook in self._hooks.items():
            point = {"matcher": hook.matcher, "hookCallbackIds": [name], "timeout": hook.timeout}
            points.setdefault(hook.event, []).append(point)
        await self.ask("initialize", hooks=points)

    async def ask(self, subtype: str, **details: Any) -> None:
        """Ask for something and wait until it is done. AgentError with Claude Code's own words where it is refused."""
        name = f"untildone_{next(self._numbers)}"
        answered = self._asked[name] = asyncio.get_running_loop().create_future()
        try:
            request = {"subtype": subtype, **details}
            await self._send({"type": "control_request", "request_id": name, "request": request})
            await answered
        finally:
            del self._asked[name]

    def heard(self, line: Mapping[str, Any]) -> None:
        """Take a line of this channel. It never waits: an answer is worked out while the next line is read."""
        name = str(line.get("request_id"))
        match line.get("type"):
            case "control_response":
                self._settle(_mapping(line.get("response")))
            case "control_request":
                task = self._answers[name] = asyncio.create_task(self._answer(name, _mapping(line.get("request"))))
                task.add_done_callback(lambda _: self._answers.pop(name, None))
            case "control_cancel_request" if name in self._answers:
                self._answers[name].cancel()

    def end(self) -> None:
        """Nobody is there any more: neither to ask nor to answer."""
        for task in list(self._answers.values()):
            task.cancel()
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(AgentError("Claude Code ended"))

    def _settle(self, response: Mapping[str, Any]) -> None:
        waiting = self._asked.get(str(response.get("request_id")))
        if waiting is None or waiting.done():
            return  # whoever asked did not wait so long
        if response.get("subtype") == "error":
            waiting.set_exception(AgentError(str(response.get("error") or "Claude Code refused")))
        else:
            waiting.set_result(None)

    async def _answer(self, name: str, request: Mapping[str, Any]) -> None:
        try:
            said = {"subtype": "success", "request_id": name, "response": await self._answer_to(request)}
        except AgentError as refused:
            said = {"subtype": "error", "request_id": name, "error": str(refused)}
        await self._send({"type": "control_response", "response": said})

    async def _answer_to(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        match request.get("subtype"):
            case "hook_callback" if request.get("callback_id") in self._hooks:
                return self._hooks[str(request["callback_id"])].answer(request.get("input"))
            case "mcp_message" if self._tools is not None:
                return {"mcp_response": await self._tools.answer(_mapping(request.get("message")))}
        raise AgentError(f"nothing here answers {str(request.get('subtype'))[:100]}")

    async def _send(self, line: Mapping[str, Any]) -> None:
        await self._write(json.dumps(line) + "\n")


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}
