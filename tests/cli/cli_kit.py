"""Runs written into a store as a driver would, and what a command said."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from untildone.core.beginning import beginning
from untildone.core.events import (
    ContinuousCompleted,
    ContinuousResumed,
    ContinuousSuspended,
    Event,
    IterationCompleted,
    IterationStarted,
    Record,
)
from untildone.core.policy import AgentOptions, Policy, RunSpec
from untildone.core.state import LoopState
from untildone.engine.clock import SystemClock
from untildone.engine.journal import load_state
from untildone.ports import RunRow
from untildone.store.sqlite import SqliteLog

T = TypeVar("T")


class Said(NamedTuple):
    code: int
    out: str
    err: str


Say = Callable[..., Said]

DRIVER = ContinuousResumed(pid=1, host="here", version="0", lease=1)
FIRST = (
    IterationStarted(iteration_num=1),
    IterationCompleted(iteration_num=1, cost_usd=0.25, duration_seconds=3.0, output_preview="half way"),
)


class Runs:
    """Runs that are in the store already, written as a driver would."""

    def __init__(self, store: Path) -> None:
        self.path = store / "untildone.db"

    def begin(
        self,
        folder: Path,
        *events: Event,
        name: str = "night",
        goal: str = "a goal",
        policy: Policy | None = None,
        run_id: str = "abc123def456",
        status: str = "suspended",
        options: AgentOptions | None = None,
        **more: Any,
    ) -> str:
        spec = RunSpec(goal=goal, cwd=str(folder), name=name, options=options or AgentOptions(), **more)
        opening = beginning(run_id, spec, policy or Policy(max_runs=5, max_cost_usd=2.0))

        async def write() -> None:
            log = SqliteLog(self.path, SystemClock())
            lease = await log.acquire(run_id, name=name, folder=str(folder))
            await log.append(run_id, [opening, DRIVER, *events], lease=lease)
            await log.release(lease, status=status)
            await log.close()

        self.path.parent.mkdir(parents=True, exist_ok=True)
        asyncio.run(write())
        return run_id

    @contextmanager
    def driven(self, folder: Path, *events: Event, run_id: str = "abc123def456") -> Iterator[str]:
        """A run that somebody drives meanwhile, and that has come as far as these events."""
        self.begin(folder, run_id=run_id, status="running")
        with asyncio.Runner() as driver:
            log = SqliteLog(self.path, SystemClock())
            lease = driver.run(log.acquire(run_id, name="night", folder=str(folder)))
            driver.run(log.append(run_id, [DRIVER, *events], lease=lease))
            try:
                yield run_id
            finally:
                driver.run(log.close())

    def read(self, run_id: str = "abc123def456") -> Sequence[Record]:
        return self._with_log(lambda log: log.read(run_id, trace=True))

    def state(self, run_id: str = "abc123def456") -> LoopState:
        return self._with_log(lambda log: load_state(log, run_id))

    def list(self) -> Sequence[RunRow]:
        return self._with_log(lambda log: log.runs())

    def _with_log(self, ask: Callable[[SqliteLog], Coroutine[Any, Any, T]]) -> T:
        async def answer() -> T:
            log = SqliteLog(self.path, SystemClock())
            try:
                return await ask(log)
            finally:
                await log.close()

        return asyncio.run(answer())

    def last(self, run_id: str = "abc123def456") -> Event:
        return self.read(run_id)[-1].event


SUSPENDED = ContinuousSuspended(stop_reason="stop_requested")
LIMITED = ContinuousSuspended(stop_reason="max_runs_reached")
DONE = ContinuousCompleted(stop_reason="completion_signal")
