"""Every boundary between the loop and the world, by name: the driver dies or stops at the chosen ones."""

import os
import signal
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from untildone.core.contract import CheckSpec
from untildone.core.events import Event, Record
from untildone.core.outcome import CheckResult, Order, Outcome
from untildone.engine.parts import Parts
from untildone.ports import (
    Clock,
    EventLog,
    Lease,
    Prepared,
    Process,
    Resumption,
    Settled,
    Sight,
    Spawner,
    Tell,
    TreeState,
)
from untildone.ports.delivery import Landed, NotLanded, Subject, Verifier

LONG_NAP = 1.0
"""Who watches over the loop naps this long or longer; how often depends on what the machine does meanwhile."""


class Boundaries:
    """Counts the boundaries as they are passed, and gives each its name."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        """The two boundaries of one call. A call that fails or is cancelled has no end to die at."""
        self.require_alive()
        self._counts[name] += 1
        label = f"{name} {self._counts[name]}"
        self.reach(f"before {label}")
        yield
        self.reach(f"after {label}")

    def reach(self, point: str) -> None:
        """What happens at a boundary."""

    def require_alive(self) -> None:
        """Called before every call of a port."""


class Points(Boundaries):
    """Writes each boundary down before anything happens there; the process gets the signal at the chosen ones."""

    def __init__(self, passed: Path, die_at: Sequence[str] = (), how: signal.Signals = signal.SIGKILL) -> None:
        super().__init__()
        self._file = os.open(passed, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._die_at = die_at
        self._how = how

    def reach(self, point: str) -> None:
        os.write(self._file, f"{point}\n".encode())
        if point in self._die_at:
            os.kill(os.getpid(), self._how)


class Death(BaseException):
    """Stands for kill -9 within this process."""


class Deaths:
    """Over several drivers of one run: each dies at the first boundary of a kind at which none has died."""

    def __init__(self, kinds: Collection[str] | None = None, first: str = "after") -> None:
        """`kinds`: die at these only. `first`: the side of the first kind that comes along."""
        self._kinds = kinds
        self._first = first
        self.died: dict[str, str] = {}
        """The boundary of each kind, in the order of the deaths."""
        self._sides: dict[str, str] = {}

    def __str__(self) -> str:
        return ", ".join(self.died.values())

    def is_due(self, point: str) -> bool:
        """In turn before and after the call."""
        kind = kind_of(point)
        if kind in self.died or (self._kinds is not None and kind not in self._kinds):
            return False
        sides = (self._first, "after" if self._first == "before" else "before")
        side = self._sides.setdefault(kind, sides[len(self._sides) % 2])
        if not point.startswith(side):
            return False
        self.died[kind] = point
        return True


class Mortal(Boundaries):
    """Boundaries of a driver in this process. Once it is dead, no call of a port has an effect any more."""

    def __init__(self, deaths: Deaths) -> None:
        super().__init__()
        self._deaths = deaths
        self.is_dead = False

    def reach(self, point: str) -> None:
        self.require_alive()
        if self._deaths.is_due(point):
            self.is_dead = True
            raise Death(point)

    def require_alive(self) -> None:
        if self.is_dead:
            raise Death("again")


def kind_of(point: str) -> str:
    """The call that a boundary belongs to, without its side and its number."""
    return point.split(" ", 1)[1].rpartition(" ")[0]


class _Port:
    """Passes on what is no boundary."""

    def __init__(self, real: Any, points: Boundaries) -> None:
        self._real = real
        self._points = points

    def __getattr__(self, name: str) -> Any:
        self._points.require_alive()
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

    async def look(self) -> Sight:
        with self._points.around("look"):
            sight: Sight = await self._real.look()
            return sight

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


def pointed_log(log: EventLog, points: Boundaries) -> EventLog:
    """The log with its boundaries named."""
    return PointedLog(log, points)


def pointed_clock(clock: Clock, points: Boundaries) -> Clock:
    """The clock with its boundaries named."""
    return PointedClock(clock, points)


def pointed_spawner(spawner: Spawner, points: Boundaries) -> Spawner:
    """The spawner with its boundaries named: the agent is given it before the parts are put together."""
    return PointedSpawner(spawner, points)


def pointed_parts(parts: Parts, points: Boundaries) -> Parts:
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
