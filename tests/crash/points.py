"""Every boundary between the loop and the world, by name; at the chosen one the process kills or stops itself."""

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from untildone.core.contract import CheckSpec
from untildone.core.events import Event, Record
from untildone.core.outcome import CheckResult, Order, Outcome
from untildone.engine.parts import Parts
from untildone.ports import Clock, EventLog, Lease, Prepared, Process, Resumption, Settled, Spawner, Tell, TreeState
from untildone.ports.delivery import Landed, NotLanded, Subject, Verifier

LONG_NAP = 1.0
"""Who watches over the loop naps this long or longer; how often depends on what the machine does meanwhile."""


class Points:
    """Counts the boundaries as they are passed, writes each down before anything happens there, and ends at one."""

    def __init__(self, passed: Path, die_at: str | None, how: signal.Signals = signal.SIGKILL) -> None:
        self._file = os.open(passed, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._die_at = die_at
        self._how = how
        self._counts: Counter[str] = Counter()

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        """The two boundaries of one call. A call that fails or is cancelled has no end to die at."""
        self._counts[name] += 1
        label = f"{name} {self._counts[name]}"
        self._pass(f"before {label}")
        yield
        self._pass(f"after {label}")

    def _pass(self, point: str) -> None:
        os.write(self._file, f"{point}\n".encode())
        if point == self._die_at:
            os.kill(os.getpid(), self._how)


class _Port:
    """Passes on what is no boundary."""

    def __init__(self, real: Any, points: Points) -> None:
        self._real = real
        self._points = points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class PointedLog(_Port):
    async def append(self, run_id: str, events: Sequence[Event], *, lease: Lease | None = None) -> list[Record]:
        # Trace events ride along when they happen to wait; what decides is what the append is called by.
        control = [event.TYPE for event in events if event.KIND == "control"]
        with self._points.around(f"append {'+'.join(control) or 'trace'}"):
            records: list[Record] = await self._real.append(run_id, events, lease=lease)
            return records

    async def acquire(self, run_id: str, *, name: str, folder: str) -> Lease:
        with self._points.around("acquire"):
            lease: Lease = await self._real.acquire(run_id, name=name, folder=folder)
            return lease

    async def release(self, lease: Lease, *, status: str) -> None:
        with self._points.around("release"):
            await self._real.release(lease, status=status)

    async def save_snapshot(self, lease: Lease, seq: int, state: bytes) -> None:
        with self._points.around("save_snapshot"):
            await self._real.save_snapshot(lease, seq, state)


class PointedAgent(_Port):
    called = "iterate"
    telling = "tell"

    async def iterate(self, order: Order, tell: Tell) -> Outcome:
        async def pointed_tell(event: Event) -> None:
            with self._points.around(f"{self.telling} {event.TYPE}"):
                await tell(event)

        with self._points.around(self.called):
            outcome: Outcome = await self._real.iterate(order, pointed_tell)
            return outcome

    async def close(self) -> None:
        with self._points.around("close"):
            await self._real.close()


class PointedReviewer(PointedAgent):
    called = "review"
    telling = "tell review"


class PointedWorkspace(_Port):
    async def begin_iteration(self, number: int) -> str | None:
        with self._points.around("begin_iteration"):
            branch: str | None = await self._real.begin_iteration(number)
            return branch

    async def prepare(self, known: Resumption | None = None) -> Prepared:
        with self._points.around("prepare"):
            place: Prepared = await self._real.prepare(known)
            return place

    async def observe(self) -> TreeState:
        with self._points.around("observe"):
            tree: TreeState = await self._real.observe()
            return tree

    async def settle(self, before: TreeState, **how: Any) -> Settled:
        with self._points.around("settle"):
            settled: Settled = await self._real.settle(before, **how)
            return settled

    async def snapshot(self, *, iteration_num: int, reason: str) -> tuple[str, str, tuple[str, ...]] | None:
        with self._points.around("snapshot"):
            saved: tuple[str, str, tuple[str, ...]] | None = await self._real.snapshot(
                iteration_num=iteration_num, reason=reason
            )
            return saved


class PointedWitness(_Port):
    async def examine(self, subject: Subject, checks: Sequence[CheckSpec], **how: Any) -> list[CheckResult]:
        with self._points.around("check"):
            results: list[CheckResult] = await self._real.examine(subject, checks, **how)
            return results


class PointedLander(_Port):
    async def merge(self, commit: str, *, message: str, verify: Verifier, **how: Any) -> Landed | NotLanded:
        async def pointed_verify(merged: str) -> str:
            with self._points.around("verify"):
                return await verify(merged)

        with self._points.around("merge"):
            outcome: Landed | NotLanded = await self._real.merge(commit, message=message, verify=pointed_verify, **how)
            return outcome

    async def revert(self, merged: str, *, reason: str) -> str:
        with self._points.around("revert"):
            revert: str = await self._real.revert(merged, reason=reason)
            return revert


class PointedUsher(_Port):
    async def call(self, command: str, facts: bytes, *, timeout: float) -> tuple[int | None, str]:
        with self._points.around("usher"):
            answer: tuple[int | None, str] = await self._real.call(command, facts, timeout=timeout)
            return answer


class PointedSpawner(_Port):
    async def spawn(self, argv: Sequence[str], **how: Any) -> Process:
        with self._points.around("spawn"):
            process: Process = await self._real.spawn(argv, **how)
            return process

    def sweep(self, run_id: str) -> int:
        with self._points.around("sweep"):
            ended: int = self._real.sweep(run_id)
            return ended


class PointedClock(_Port):
    async def sleep(self, seconds: float) -> None:
        if seconds >= LONG_NAP:
            await self._real.sleep(seconds)
            return
        with self._points.around("sleep"):
            await self._real.sleep(seconds)


def pointed_log(log: EventLog, points: Points) -> EventLog:
    """The log with its boundaries named."""
    return PointedLog(log, points)


def pointed_clock(clock: Clock, points: Points) -> Clock:
    """The clock with its boundaries named."""
    return PointedClock(clock, points)


def pointed_spawner(spawner: Spawner, points: Points) -> Spawner:
    """The spawner with its boundaries named: the agent is given it before the parts are put together."""
    return PointedSpawner(spawner, points)


def pointed_parts(parts: Parts, points: Points) -> Parts:
    """All other parts with their boundaries named."""
    return replace(
        parts,
        agent=PointedAgent(parts.agent, points),
        reviewer=None if parts.reviewer is None else PointedReviewer(parts.reviewer, points),
        workspace=PointedWorkspace(parts.workspace, points),
        witness=PointedWitness(parts.witness, points),
        lander=PointedLander(parts.lander, points),
        usher=PointedUsher(parts.usher, points),
        spawner=PointedSpawner(parts.spawner, points),
    )
