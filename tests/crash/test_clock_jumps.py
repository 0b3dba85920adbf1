"""The machine's clock is set back or forward by hours while a run is at work."""

import asyncio
import re
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from engine.rig import FastClock, Rig, claim, idle
from patience import PATIENCE
from untildone import wiring
from untildone.agents.scripted import Act, ScriptedAgent, Step
from untildone.core import events as ev
from untildone.core.outcome import FaultEvidence, Order, Outcome
from untildone.core.policy import Policy
from untildone.core.trace import AgentStarted
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.engine.waits import Waits

pytestmark = pytest.mark.anyio

HOUR = 3600.0


class SettableClock(FastClock):
    """Real time, until somebody sets the clock."""

    set_by = 0.0

    def now(self) -> float:
        return super().now() + self.set_by

    async def sleep(self, seconds: float) -> None:
        """By the hardware's own time, as the operating system sleeps."""
        await asyncio.sleep(seconds)


@dataclass
class Jump:
    """An iteration during which the clock is set."""

    clock: SettableClock
    seconds: float
    path: Path
    outcome: Outcome

    def __call__(self, order: Order) -> Outcome:
        self.clock.set_by += self.seconds
        self.path.write_text(f"{order.iteration_num}\n")
        return self.outcome


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, clock=SettableClock())


def jump(rig: Rig, hours: float, outcome: Outcome | None = None) -> Act:
    assert isinstance(rig.clock, SettableClock)
    return Jump(rig.clock, hours * HOUR, rig.repo / "work.txt", outcome or idle("worked"))


OVERLOADED = idle(failure=FaultEvidence(is_error=True, api_error_status=529), session_id="s1")


async def test_a_clock_set_back_again_and_again_stops_nothing(rig: Rig) -> None:
    policy = Policy(max_runs=9, max_duration=HOUR, loop_delay=0.05)
    state, _ = await rig.run([jump(rig, -2), jump(rig, -30), jump(rig, -0.01), claim(), claim()], policy)
    assert (state.stop_reason, state.successes) == ("completion_signal", 5)
    assert 0 <= state.active_seconds < 60
    assert all(done.duration_seconds >= 0 for done in rig.seen(ev.IterationCompleted))
    seqs = [record.seq for record in await rig.log.read(rig.run_id, trace=True)]
    assert seqs == list(range(1, len(seqs) + 1)), "the order is the log's own, not the clock's"


async def test_a_pause_of_seconds_does_not_become_one_of_hours(rig: Rig) -> None:
    """The clock is set back while the loop backs off from an overloaded API."""

    def set_back(record: ev.Record) -> None:
        rig.records.append(record)
        if isinstance(record.event, ev.ContinuousWaiting) and isinstance(rig.clock, SettableClock):
            rig.clock.set_by = -3 * HOUR

    around = replace(rig.around(ScriptedAgent([OVERLOADED, claim(), claim()])), observer=set_back)
    async with asyncio.timeout(PATIENCE):
        state = await wiring.start_run(rig.spec(), Policy(max_runs=9), around, run_id=rig.run_id)
    assert state.stop_reason == "completion_signal"
    waits = [wait.until for wait in rig.seen(ev.ContinuousWaiting)]
    assert [round((until - waits[0]) / HOUR) for until in waits] == [0, -3], "the same pause, by the new clock"


async def test_a_clock_set_forward_is_no_time_at_work(rig: Rig) -> None:
    policy = Policy(max_runs=9, max_duration=HOUR, iteration_timeout=HOUR)
    state, _ = await rig.run([jump(rig, 5), jump(rig, 500), claim(), claim()], policy)
    assert (state.stop_reason, state.attempts, state.failures_in_a_row) == ("completion_signal", 4, 0)
    assert 0 <= state.active_seconds < 60
    assert all(0 <= done.duration_seconds < 60 for done in rig.seen(ev.IterationCompleted))
    assert [round(jumped.seconds / HOUR) for jumped in rig.seen(ev.ClockJumped)] == [5, 500]


async def test_a_clock_set_back_a_little_again_and_again_takes_no_time_away(rig: Rig) -> None:
    """Each step is small; together they would have given the run as much time again as it has."""
    state, _ = await rig.run([jump(rig, -0.9 / HOUR)] * 6, Policy(max_runs=6))
    moved = sum(jumped.seconds for jumped in rig.seen(ev.ClockJumped))
    assert -6 * 0.9 - 0.5 < moved < -6 * 0.9 + 1.5
    assert (state.stop_reason, state.attempts) == ("max_runs_reached", 6)


@pytest.mark.parametrize(
    ("policy", "error_type"),
    [
        (Policy(max_iterations=1, iteration_timeout=0.5), "timeout"),
        (Policy(max_runs=9, max_duration=10.0), "limit_reached"),
    ],
    ids=["--timeout", "--max-duration"],
)
async def test_a_clock_set_back_lifts_no_limit_of_time(rig: Rig, policy: Policy, error_type: str) -> None:
    running = asyncio.create_task(rig.run([Step(outcome=claim(), delay=300.0)], policy))
    await rig.until(AgentStarted)
    assert isinstance(rig.clock, SettableClock)
    rig.clock.set_by -= HOUR
    await asyncio.wait_for(running, PATIENCE)
    assert [failed.error_type for failed in rig.seen(ev.IterationFailed)] == [error_type]


async def test_looks_at_a_forge_do_not_know_the_clock(rig: Rig) -> None:
    """A rest of a moment, in which the clock is set back by hours, is over after that moment."""
    parts, clock = SimpleNamespace(clock=rig.clock, jitter=lambda: 0.0), rig.clock
    assert isinstance(clock, SettableClock)
    await rig.run([claim(), claim(), claim()])
    lease = await rig.log.acquire(rig.run_id, name="it", folder=str(rig.repo))
    journal = Journal(rig.log, lease, clock)
    await journal.open()
    waits, told = Waits(journal, cast("Parts", parts)), journal.state.last_seq
    resting = asyncio.create_task(waits.rest(clock.now() + 0.5, "ci", "checks to end"))
    async with asyncio.timeout(PATIENCE):
        while journal.state.last_seq == told:
            await asyncio.sleep(0.01)
    clock.set_by -= HOUR
    await asyncio.wait_for(resting, PATIENCE)
    await rig.log.release(lease, status="completed")


async def test_a_clock_set_forward_past_the_deadline_suspends_and_the_work_is_kept(rig: Rig) -> None:
    policy = Policy(max_runs=9, deadline=rig.clock.now() + HOUR)
    state, _ = await rig.run([jump(rig, 5), claim()], policy)
    assert (state.phase, state.stop_reason) == ("suspended", "deadline_reached")
    assert rig.git("show", "HEAD:work.txt") == "1\n"


@pytest.mark.parametrize("room", ["engine", "agents", "witness", "rehearsal"])
def test_no_duration_is_taken_from_a_clock_that_can_be_set(room: str) -> None:
    """How far the clock is ahead is asked in one place."""
    files = (Path(wiring.__file__).parent / room).rglob("*.py")
    found = [
        f"{file.name}: {said}" for file in files for said in re.findall(r".*clock\.now\(\) - .*", file.read_text())
    ]
    assert found == (
        ["journal.py:         return self._clock.now() - self._clock.monotonic()"] if room == "engine" else []
    )


async def test_the_lease_does_not_know_the_clock(rig: Rig) -> None:
    lease = await rig.log.acquire("other", name="other", folder=str(rig.tmp / "elsewhere"))
    assert isinstance(rig.clock, SettableClock)
    for hours in (-50, 100):
        rig.clock.set_by = hours * HOUR
        await rig.log.append("other", [ev.ContinuousWaiting(cause="x", until=None)], lease=lease)
        assert [row.alive for row in await rig.log.runs() if row.run_id == "other"] == [True]
    await rig.log.release(lease, status="suspended")
