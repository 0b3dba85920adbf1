"""A folder to crash in, and what must be true there afterwards, whatever happened."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash.driver import Job, StillClock, drive, run_id_of
from crash.laborer import PRICE, WORK
from crash.points import Deaths, Mortal
from processes import living_of
from repositories import new_repository
from untildone import wiring
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.fold import fold
from untildone.core.state import LoopState
from untildone.engine.journal import load_state
from untildone.sandbox import guard
from untildone.store.memory import MemoryLog

TESTS = Path(__file__).parent.parent
KILLED = -9
GUARD = guard.__file__


@dataclass
class CrashStage:
    """One repository, one store, one run."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    work: tuple[str, ...] = WORK

    def __post_init__(self) -> None:
        self.repo = new_repository(self.folder / "repo", "work", {})
        self.run_id = run_id_of(self.folder)

    def git(self, *args: str) -> str:
        return subprocess.run(["git", *args], cwd=self.repo, check=True, capture_output=True, text=True).stdout

    def start(
        self, die_at: str = "", how: str = "SIGKILL", misdeed: str = "", before: Callable[[], None] | None = None
    ) -> subprocess.Popen[str]:
        """A driver in a process of its own; it begins the run or takes it up. `before` runs in it first."""
        return subprocess.Popen(
            [sys.executable, "-m", "crash.driver", str(self.folder), die_at, how, misdeed],
            cwd=TESTS,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1", **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=before,  # noqa: PLW1509 - only single-threaded tests start drivers
        )

    def drive(self, die_at: str = "", **more: Any) -> int:
        """Start a driver and wait for its end, or its death."""
        driver = self.start(die_at, **more)
        said = ending_of(driver)
        assert driver.returncode in (0, KILLED), said
        return driver.returncode

    def drive_to_the_end(self) -> None:
        if self.state().phase != "completed":
            assert self.drive() == 0

    def passed(self) -> list[str]:
        return (self.folder / "passed.txt").read_text().splitlines()

    def records(self, *, trace: bool = False) -> list[ev.Record]:
        async def read() -> list[ev.Record]:
            log = wiring.open_log(self.folder / "state", wiring.system_clock())
            try:
                return await log.read(self.run_id, trace=trace)
            finally:
                await log.close()

        return asyncio.run(read())

    def state(self) -> LoopState:
        async def load() -> LoopState:
            log = wiring.open_log(self.folder / "state", wiring.system_clock())
            try:
                return await load_state(log, self.run_id)
            finally:
                await log.close()

        return asyncio.run(load())

    def check(self, *, deaths: int) -> None:
        """Nothing lost, nothing doubled, nothing half done, nobody left."""
        records = self.records()
        state = fold(records)
        self._check_end(state)
        self._check_iterations([record.event for record in records], state, deaths)
        self.check_money([record.event for record in records], state)
        self._check_commits([record.event for record in records], state)
        self._check_rooms()
        assert living_of(self.run_id) == []

    def _check_rooms(self) -> None:
        """What is being removed has no place among the rooms any more."""
        assert list((self.repo / ".git").glob("worktrees/untildone-*")) == []
        assert not (self.folder / "state" / "rooms" / self.run_id).exists()

    def _check_end(self, state: LoopState) -> None:
        assert (state.phase, state.stop_reason, state.verified) == ("completed", "validation_passed", True)
        assert state.open is None
        assert {path.name: path.read_text() for path in self.repo.glob("*.txt")} == {
            name: f"{name}\n" for name in self.work
        }
        # The copy of the state is only ever a shortcut to what the events say.
        assert self.state() == state

    def _check_iterations(self, events: list[ev.Event], state: LoopState, deaths: int) -> None:
        started = [(e.iteration_num, e.retry) for e in events if isinstance(e, ev.IterationStarted) and not e.review]
        closed = [closing for opening, closing in tries(events) if not opening.review]
        assert started == [(number, 0) for number in range(1, len(started) + 1)], "each number once, none left out"
        assert [e.iteration_num for e in closed] == [number for number, _ in started], "each closed exactly once"
        failed = [e for e in closed if isinstance(e, ev.IterationFailed)]
        assert {e.error_type for e in failed} <= {"driver_died"}
        assert len(failed) <= deaths
        assert len(self.work) <= state.attempts <= len(self.work) + deaths
        assert state.successes + len(failed) == state.attempts
        (begun,) = [e for e in events if isinstance(e, ev.ContinuousStarted)]
        assert begun.run_id == self.run_id
        assert len([e for e in events if isinstance(e, ev.ContinuousCompleted)]) == 1
        tokens = [e.lease for e in events if isinstance(e, ev.ContinuousResumed)]
        assert tokens == sorted(set(tokens)), "one driver at a time, each newer than the last"

    def served(self) -> dict[str, float]:
        """The replies of the far side's own books, and what they cost."""
        return {json.loads(line)["id"]: PRICE for line in (self.folder / "books.jsonl").read_text().splitlines()}

    def check_money(self, events: list[ev.Event], state: LoopState) -> None:
        assert check_books(self.served(), events, state) == 0, "the transcript knew them all"
        assert state.spend.unknown_costs == 0

    def _check_commits(self, events: list[ev.Event], state: LoopState) -> None:
        made = self.git("log", "--reverse", "--format=%H %s", state.last_commit or "HEAD").splitlines()[1:]
        subjects = [line.split(" ", 1)[1] for line in made]
        assert len(set(subjects)) == len(subjects), f"the same work was committed twice: {subjects}"
        landed = [e.commit for e in events if isinstance(e, ev.LandingCommitted) and e.by == "loop"]
        assert landed == [line.split(" ", 1)[0] for line in made], "each commit is written down, once"
        assert state.commits == len(made)
        assert self.git("status", "--porcelain") == "", "all work is committed"
        assert self.git("ls-tree", "--name-only", "HEAD").split() == sorted(self.work)


class MemoryStage(CrashStage):
    """One repository, a store in memory, and drivers in this process: what a death costs here is not a new process."""

    def __init__(self, folder: Path, runner: asyncio.Runner, **told: Any) -> None:
        super().__init__(folder, work=told.get("work", WORK))
        self.job = Job(stage=folder, **told)
        self._runner = runner
        self._clock = StillClock(wiring.system_clock())
        self._log = MemoryLog(self._clock)

    def drive_until_it_is_done(self, deaths: Deaths) -> None:
        """One driver after the other; all but the last die."""
        while self._runner.run(self._drive(Mortal(deaths))):
            pass

    async def _drive(self, points: Mortal) -> bool:
        """Whether the driver died."""
        try:
            await drive(self.job, self._log, self._clock, points)
        except BaseException:
            if not points.is_dead:
                raise
        await self._log.close()
        # A guard whose driver is dead ends its program; here the process of the driver lives on.
        for pid in living_of(self.run_id):
            with suppress(OSError):  # it may end by itself while it is looked at
                if GUARD in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGKILL)
        return points.is_dead

    def records(self, *, trace: bool = False) -> list[ev.Record]:
        return self._runner.run(self._log.read(self.run_id, trace=trace))

    def state(self) -> LoopState:
        return self._runner.run(load_state(self._log, self.run_id))


def tries(events: list[ev.Event]) -> list[tuple[ev.IterationStarted, ev.IterationCompleted | ev.IterationFailed]]:
    """Each try and how it was closed, in order: no two are ever open at once."""
    found: list[tuple[ev.IterationStarted, ev.IterationCompleted | ev.IterationFailed]] = []
    opening: ev.IterationStarted | None = None
    for event in events:
        if isinstance(event, ev.IterationStarted):
            assert opening is None, "started while another was open"
            opening = event
        elif isinstance(event, ev.IterationCompleted | ev.IterationFailed):
            assert opening is not None, "closed and never started"
            found.append((opening, event))
            opening = None
    assert opening is None, "never closed"
    return found


@contextmanager
def naming(point: str | Deaths) -> Iterator[None]:
    """Say where the driver had died, if anything is wrong afterwards."""
    try:
        yield
    except AssertionError as wrong:
        wrong.add_note(f"it had died {point}")
        raise


def check_books(served: Mapping[str, float], events: list[ev.Event], state: LoopState) -> int:
    """Every reply served is booked, once. Returns how many nobody saw the end of.

    Of those, one that was seen to begin stands as an estimate, one that nobody saw at all as an unknown cost.
    """
    booked = Counter(event.message_id for event in events if isinstance(event, tr.AgentReply))
    begun = {event.message_id for event in events if isinstance(event, tr.AgentReplyStarted)}
    assert [reply for reply, times in booked.items() if times > 1] == [], "doubled"
    assert booked.keys() - served.keys() == set(), "booked and never served"
    unseen = served.keys() - booked.keys()
    failed = [event for event in events if isinstance(event, ev.IterationFailed)]
    assert len(unseen - begun) <= sum(event.unseen_requests for event in failed) <= state.spend.unknown_costs, "lost"
    assert len(unseen & begun) <= len([event for event in failed if event.estimated_usd > 0]), "lost"
    assert abs(state.spend.cost_usd - sum(served[reply] for reply in booked)) < 1e-6
    return len(unseen)


def ending_of(driver: subprocess.Popen[str]) -> str:
    """What a driver said up to its end."""
    try:
        return driver.communicate(timeout=400)[0]
    finally:
        driver.kill()
        driver.wait()
