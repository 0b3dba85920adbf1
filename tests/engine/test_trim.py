"""A run keeps the newest of what its agent did; nothing that decides depends on the rest."""

from pathlib import Path

import pytest

from engine.rig import Rig, claim, idle
from untildone import wiring
from untildone.agents.scripted import Step
from untildone.core import events as ev
from untildone.core.policy import Policy
from untildone.core.trace import AgentMessage
from untildone.engine.journal import TRIM_EVERY, load_state

pytestmark = pytest.mark.anyio

KEEP = 200_000


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def words(number: int) -> tuple[AgentMessage, ...]:
    return tuple(AgentMessage(iteration_num=1, text=f"{n} " + "word " * 20) for n in range(number))


async def test_a_run_that_talks_for_ever_stays_small(rig: Rig) -> None:
    steps = [Step(outcome=idle(), events=words(TRIM_EVERY)) for _ in range(5)]
    policy = Policy(max_runs=9, trace_keep=KEEP, stagnation_threshold=9)
    state, _ = await rig.run([*steps, claim()], policy, checks=("true",))
    told = sum(isinstance(record.event, AgentMessage) for record in rig.records)
    kept = [r for r in await rig.log.read(rig.run_id, trace=True) if isinstance(r.event, AgentMessage)]
    sizes = [len(r.event.text) for r in kept if isinstance(r.event, AgentMessage)]
    assert told == 5 * TRIM_EVERY
    assert 0.3 * KEEP < sum(sizes) < KEEP
    assert kept[-1].event == steps[-1].events[-1], "the newest are there"
    assert (state.stop_reason, state.attempts) == ("validation_passed", 6)
    decided = [record for record in rig.records if record.event.KIND == "control"]
    assert await rig.log.read(rig.run_id) == decided, "all that decides is there"
    assert await load_state(rig.log, rig.run_id) == state


async def test_it_is_trimmed_within_one_long_iteration_too(rig: Rig) -> None:
    most = 0

    async def look() -> None:
        nonlocal most
        most = max(most, len(await rig.log.read(rig.run_id, trace=True)))

    class Watching:
        async def trim_trace(self, *args: object, **bounds: object) -> int:
            await look()
            return await rig_log.trim_trace(*args, **bounds)  # type: ignore[arg-type]

        def __getattr__(self, name: str) -> object:
            return getattr(rig_log, name)

    rig_log, rig.log = rig.log, Watching()  # type: ignore[assignment]
    await rig.run([Step(outcome=claim(), events=words(4 * TRIM_EVERY))],
                  Policy(max_runs=9, trace_keep=0), checks=("true",))  # fmt: skip
    assert TRIM_EVERY <= most < 1.5 * TRIM_EVERY


async def test_a_run_that_ended_long_ago_loses_its_trace_at_the_start_of_another(rig: Rig) -> None:
    await rig.run([Step(outcome=claim(), events=words(20))], checks=("true",))
    first = rig.run_id
    before = await rig.log.read(first)
    assert len(await rig.log.read(first, trace=True)) > 20
    printed, crash = rig.tmp / "state" / "runs", rig.tmp / "state"
    printed.mkdir()
    (printed / f"{first}.log").write_text("old")
    for n in range(25):
        (crash / f"crash-20260101-0000{n:02}-1.log").touch()
    rig.clock.skip((wiring.KEEP_DAYS + 1) * 24 * 3600)
    rig.run_id = f"{first}2"
    await rig.run([claim()], checks=("true",))
    assert await rig.log.read(first, trace=True) == before
    assert list(printed.iterdir()) == []
    assert len(list(crash.glob("crash-*.log"))) == 20
    assert len(await rig.log.read(rig.run_id, trace=True)) > len(await rig.log.read(rig.run_id))


async def test_a_run_that_is_done_is_not_done_again(rig: Rig) -> None:
    """Its driver died right after the last word: the list of runs still calls it running."""
    done, _ = await rig.run([claim()], checks=("true",))
    lease = await rig.log.acquire(rig.run_id, name="it", folder=str(rig.repo))
    await rig.log.release(lease, status="running")
    again, agent = await rig.resume([])
    assert (again, agent.orders) == (done, [])
    records = [record.event for record in await rig.log.read(rig.run_id)]
    assert sum(isinstance(event, ev.ContinuousCompleted) for event in records) == 1
    assert sum(isinstance(event, ev.ContinuousResumed) for event in records) == 1
    assert [row.status for row in await rig.log.runs()] == ["completed"]
