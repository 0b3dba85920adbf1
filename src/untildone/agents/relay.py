"""Several agents in one seat: the one an order names by `agent:NAME` takes over from the one before."""

from collections.abc import Callable
from dataclasses import replace

from untildone.core.liveness import Pulse
from untildone.core.outcome import Order, Outcome
from untildone.errors import AgentError
from untildone.ports import Agent, Tell

PREFIX = "agent:"


def agent_named(fallback: str | None) -> str | None:
    """The agent a fallback names; None: it names a model, or nothing."""
    return fallback.removeprefix(PREFIX) if fallback is not None and fallback.startswith(PREFIX) else None


class Relay:
    """Keeps one agent at a time: a process that sat out a turn would know an older state of the session."""

    def __init__(self, make: Callable[[str], Agent], *, first: str) -> None:
        """`first` works whenever an order names nobody else."""
        self._make = make
        self._first = first
        self._name = first
        self._agent: Agent | None = None
        self._interrupted = False
        self._closed = False

    async def iterate(self, order: Order, tell: Tell) -> Outcome:
        """Run one iteration with the agent the order names."""
        self._interrupted = False
        other = agent_named(order.model)
        agent = await self._seat(other or self._first)
        if self._interrupted:  # while the one before was leaving
            return Outcome(interrupted=True)
        return await agent.iterate(order if other is None else replace(order, model=None), tell)

    async def interrupt(self, *, discard: bool = False) -> None:
        """End the running iteration soon."""
        self._interrupted = True
        if self._agent is not None:
            await self._agent.interrupt(discard=discard)

    def pulse(self) -> Pulse | None:
        """Signs of life of whoever works."""
        return self._agent.pulse() if self._agent is not None else None

    async def close(self) -> None:
        """End whoever works."""
        self._closed = True
        if self._agent is not None:
            await self._agent.close()

    async def _seat(self, name: str) -> Agent:
        if self._agent is not None and name != self._name:
            leaving, self._agent = self._agent, None
            await leaving.close()
        if self._closed:
            raise AgentError("this agent was closed: make a new one")
        if self._agent is None:
            self._agent, self._name = self._make(name), name
        return self._agent
