"""An agent that does what it was told beforehand: for embedding, demonstrations and tests."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from untildone.core.dataclass import dataclass
from untildone.core.events import Event
from untildone.core.liveness import Pulse
from untildone.core.outcome import Order, Outcome
from untildone.core.trace import AgentSession, AgentStarted
from untildone.errors import AgentError
from untildone.ports import Tell

Act = Callable[[Order], Outcome]
"""Does the iteration's work, such as writing files, and says how it went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One iteration."""

    outcome: Outcome | Act
    events: tuple[Event, ...] = ()
    """Told before the outcome is returned."""
    delay: float = 0.0
    """Seconds it takes; an interruption cuts them short, and the work is not done."""
    alive: bool = True
    """Shows signs of life meanwhile."""


class ScriptedAgent:
    """Plays its steps in order, one per iteration. An endless iterable makes an endless agent.

    Asked what is left, it plays the next of its answers; without one it says again what it said last, at no cost.
    """

    def __init__(self, steps: Iterable[Outcome | Act | Step], answers: Iterable[Outcome | Act | Step] = ()) -> None:
        self._steps, self._answers = iter(steps), iter(answers)
        self._last = Outcome()
        self._cut = asyncio.Event()
        self._closed = False
        self._step: Step | None = None
        self._beats = 0
        self.discarded = 0
        """How often it was told not to go on with what it had."""
        self.orders: list[Order] = []
        """Every order so far, without the questions."""
        self.questions: list[Order] = []
        """Every question so far."""

    async def iterate(self, order: Order, tell: Tell) -> Outcome:
        """Play the next step."""
        if self._closed:
            raise AgentError("this agent was closed: make a new one")
        self._cut.clear()
        (self.questions if order.question else self.orders).append(order)
        step = self._step = self._next(order)
        await tell(AgentStarted(iteration_num=order.iteration_num))
        for event in step.events:
            await tell(event)
        if await self._is_cut_within(step.delay):
            return Outcome(interrupted=True, cost_usd=None)  # what was told is what it cost
        outcome = self._last = step.outcome if isinstance(step.outcome, Outcome) else step.outcome(order)
        if outcome.session_id is not None:
            await tell(AgentSession(iteration_num=order.iteration_num, session_id=outcome.session_id))
        return outcome

    async def interrupt(self, *, discard: bool = False) -> None:
        """Cut the running step short."""
        self.discarded += discard
        self._cut.set()

    def pulse(self) -> Pulse | None:
        """Show life as often as asked, unless the step is dead."""
        if self._step is None:
            return None
        self._beats += self._step.alive
        return Pulse(heard=self._beats)

    async def close(self) -> None:
        """Take no more orders."""
        self._closed = True
        self._cut.set()

    def _next(self, order: Order) -> Step:
        again = replace(self._last, cost_usd=0.0, activity=()) if order.question else None
        step = next(self._answers, again) if order.question else next(self._steps, None)
        if step is None:
            raise AgentError(f"the script has no step for iteration {len(self.orders)}")
        return step if isinstance(step, Step) else Step(outcome=step)

    async def _is_cut_within(self, seconds: float) -> bool:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._cut.wait()
        return self._cut.is_set()
