"""A stage for the warm agent: a scripted model, a folder, the real Claude Code, and what it told."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.changing_model import ChangingModel
from patience import PATIENCE
from untildone.agents.claude_sdk import ClaudeSdk
from untildone.agents.prices import cost
from untildone.core.events import Event
from untildone.core.outcome import Order, Outcome, Usage
from untildone.core.policy import AgentOptions
from untildone.core.trace import AgentStarted
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.scenario import Reply, ToolCall
from untildone.sandbox.guard import descendants
from untildone.sandbox.host import HostSpawner

RULES = "Report with the tool. These are the rules of the house."
STATUS = """
---LOOP_STATUS---
STATUS: IN_PROGRESS
TASKS_COMPLETED_THIS_LOOP: 1
FILES_MODIFIED: 0
TESTS_STATUS: NOT_RUN
WORK_TYPE: TESTING
EXIT_SIGNAL: false
RECOMMENDATION: go on
---END_LOOP_STATUS---
"""
DONE = Reply(text=f"word {{n}} in conversation {{i}}{STATUS}")


def bash(command: str, **more: Any) -> Reply:
    """Return a reply that runs a command."""
    return Reply(tools=(ToolCall("Bash", {"command": command, **more}),))


@dataclass
class Stage:
    """One agent on one stage."""

    agent: ClaudeSdk
    model: ChangingModel
    folder: Path
    home: Path
    told: list[Event] = field(default_factory=list)
    on_event: Callable[[Event], Awaitable[None]] | None = None
    iterations: int = 0

    def play(self, *replies: Reply, iterations: tuple[tuple[Reply, ...], ...] = ()) -> None:
        """Begin a new story: `replies` are one conversation's, repeated for each, or one list for each conversation."""
        self.model.play(iterations=iterations or (replies or (DONE,),))
        self.told.clear()
        self.on_event = None

    async def iterate(self, prompt: str = "Work.", **more: Any) -> Outcome:
        self.iterations += 1
        order = Order(run_id="r", iteration_num=self.iterations, prompt=prompt, **{"rules": RULES, **more})
        return await asyncio.wait_for(self.agent.iterate(order, self._tell), PATIENCE)

    async def _tell(self, event: Event) -> None:
        self.told.append(event)
        if self.on_event is not None:
            await self.on_event(event)

    def interrupt_when(self, kind: type[Event]) -> None:
        """Interrupt from inside `tell`, the first time such an event is told."""
        done = False

        async def on_event(event: Event) -> None:
            nonlocal done
            if isinstance(event, kind) and not done:
                done = True
                await self.agent.interrupt()

        self.on_event = on_event

    @property
    def pids(self) -> list[int | None]:
        """Of the process each iteration ran in."""
        return [event.pid for event in self.told if isinstance(event, AgentStarted)]

    def all_told(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]

    def ledger_cost(self) -> float:
        """Return what the model's own books say was served in full."""
        return sum(
            cost(
                line.model,
                Usage(line.input_tokens, line.output_tokens, line.cache_read_tokens, line.cache_write_tokens),
            )
            or 0.0
            for line in self.model.ledger.served()
        )

    def messages(self, number: int) -> str:
        """Return the conversation sent with a request (counted from 0), as JSON text."""
        return json.dumps(self.model.requests[number].body["messages"])


@contextlib.asynccontextmanager
async def staged(
    tmp_path: Path,
    *replies: Reply,
    options: AgentOptions | None = None,
    env: Mapping[str, str] | None = None,
    **more: Any,
) -> AsyncIterator[Stage]:
    """Set the stage, and begin with these replies."""
    folder, home = tmp_path / "folder", tmp_path / "home"
    folder.mkdir(exist_ok=True)
    with ChangingModel() as model:
        agent = ClaudeSdk(
            options or AgentOptions(allowed_tools=("Bash",)),
            HostSpawner(),
            cwd=str(folder),
            env={**claude_environment(home, model.url), "CLAUDE_CODE_MAX_RETRIES": "0", **(env or {})},
            **more,
        )
        try:
            stage = Stage(agent, model, folder, home)
            stage.play(*replies)
            yield stage
        finally:
            await agent.close()


def claude_pid(guard: int | None) -> int:
    """Return the pid of Claude itself: its guard's first child."""
    assert guard is not None
    return min(descendants(guard))
