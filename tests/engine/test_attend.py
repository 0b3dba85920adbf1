"""The machine and the limits are watched: before the disk is full, before the money is gone."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.rig import FastClock, Held, Rig, Steps, claim, idle
from patience import PATIENCE, soon
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent, Step
from untildone.core import events as ev
from untildone.core.figures import size
from untildone.core.outcome import Outcome, Usage
from untildone.core.policy import Policy
from untildone.core.state import LoopState
from untildone.core.trace import AgentReply, AgentSession
from untildone.engine.attend import disk_detail, scarce
from untildone.ports import MachineFacts

pytestmark = pytest.mark.anyio

MIB = 1 << 20
POLICY = Policy(max_runs=2, disk_reserve=100 * MIB)


class Box:
    """A machine whose disk is as full as a test says."""

    def __init__(self, *disk: int, **facts: int) -> None:
        self.disk: int | None = disk[0] if disk else 1000 * MIB
        self.facts = facts
        self.looks = 0

    def look(self) -> MachineFacts:
        self.looks += 1
        return MachineFacts(disk_free=self.disk, disk_where="/w", **self.facts)

    def reclaimable(self, where: str) -> list[tuple[str, int]]:
        return [("the store of all runs", 30 * MIB), ("caches", 0)]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, clock=FastClock(100))


async def run(
    rig: Rig, box: Box, steps: Steps, policy: Policy = POLICY, gate: asyncio.Event | None = None, **spec: Any
) -> tuple[LoopState, ScriptedAgent]:
    agent = ScriptedAgent(steps) if gate is None else Held(steps, gate)
    around = replace(rig.around(agent), machine=box)
    async with asyncio.timeout(PATIENCE):
        return await wiring.start_run(rig.spec(**spec), policy, around, run_id=rig.run_id), agent


async def test_a_low_disk_is_waited_out_before_anything_is_started(rig: Rig) -> None:
    box = Box(99 * MIB)
    going = asyncio.create_task(run(rig, box, [claim(), claim()]))
    await rig.until(ev.ContinuousWaiting)
    assert [waiting.cause for waiting in rig.seen(ev.ContinuousWaiting)] == ["disk_low"]
    assert rig.seen(ev.IterationStarted) == []
    box.disk = 105 * MIB
    looks = box.looks
    await soon(lambda: box.looks >= looks + 3, "another look")
    assert len(rig.seen(ev.ResourcesSeen)) == 1, "a little more than the reserve is not yet room"
    box.disk = 111 * MIB
    state, _ = await going
    assert (state.stop_reason, state.attempts) == ("completion_signal", 2)
    assert [(seen.disk_low, seen.disk_free) for seen in rig.seen(ev.ResourcesSeen)] == [
        (True, 99 * MIB), (False, 111 * MIB)
    ]  # fmt: skip
    assert rig.seen(ev.ResourcesSeen)[0].detail == (
        "/w has 99 MiB left, 100 MiB is the reserve; there: the store of all runs 30 MiB"
    )


async def test_a_running_iteration_ends_well_on_a_low_disk(rig: Rig) -> None:
    box, gate = Box(), asyncio.Event()
    going = asyncio.create_task(run(rig, box, [claim(), claim()], gate=gate))
    await rig.until(ev.IterationStarted)
    box.disk = 26 * MIB
    await rig.until(ev.ResourcesSeen)
    assert rig.seen(ev.IterationCompleted) == [], "it is still running"
    gate.set()
    await rig.until(ev.ContinuousWaiting)
    assert (len(rig.seen(ev.IterationCompleted)), rig.seen(ev.IterationFailed)) == (1, [])
    box.disk = 500 * MIB
    state, _ = await going
    assert (state.stop_reason, state.successes) == ("completion_signal", 2)


async def test_a_nearly_full_disk_interrupts_and_the_same_session_goes_on(rig: Rig) -> None:
    box = Box()
    long = Step(outcome=claim(), events=(AgentSession(iteration_num=1, session_id="s1"),), delay=300)
    going = asyncio.create_task(run(rig, box, [long, claim()], checks=("true",)))
    await rig.until(AgentSession)
    box.disk = 50 * MIB
    await rig.until(ev.ResourcesSeen)
    assert rig.seen(ev.IterationFailed) == [], "low is no reason to interrupt"
    box.disk = 24 * MIB
    await rig.until(ev.IterationFailed)
    await rig.until(ev.ContinuousWaiting)
    box.disk = 500 * MIB
    state, agent = await going
    assert [failed.error_type for failed in rig.seen(ev.IterationFailed)] == ["disk_low"]
    assert [seen.disk_free for seen in rig.seen(ev.ResourcesSeen)] == [50 * MIB, 24 * MIB, 500 * MIB]
    assert [order.resume_session for order in agent.orders] == [None, "s1"]
    assert (state.stop_reason, state.attempts, state.failures_in_a_row) == ("validation_passed", 1, 0)


async def test_a_disk_nobody_can_measure_stops_nothing(rig: Rig) -> None:
    box = Box()
    box.disk = None
    state, _ = await run(rig, box, [claim(), claim()])
    assert (state.stop_reason, rig.seen(ev.ResourcesSeen)) == ("completion_signal", [])


async def test_the_machine_is_not_asked_at_every_turn(rig: Rig) -> None:
    rig.clock = FastClock(0.01)  # hardly any time passes, however busy this machine is
    box = Box()
    await run(rig, box, [idle(str(n)) for n in range(6)], Policy(max_runs=6, stagnation_threshold=99))
    assert len(rig.seen(ev.IterationCompleted)) == 6
    assert box.looks <= 2


async def test_short_memory_is_told_once_and_stops_nothing(rig: Rig) -> None:
    box, gate = Box(memory_free=10 * MIB, memory_total=1000 * MIB), asyncio.Event()
    going = asyncio.create_task(run(rig, box, [claim(), claim()], gate=gate))
    await soon(lambda: box.looks > 2, "a third look")
    gate.set()
    await going
    warnings = [warning.message for warning in rig.seen(ev.ContinuousWarning) if "memory" in warning.message]
    assert warnings == ["memory runs short: 10 MiB of 1,000 MiB left"]


@pytest.mark.parametrize(
    ("facts", "first", "about"),
    [
        (MachineFacts(), None, []),
        (MachineFacts(memory_free=51, memory_total=1000, processes=80, process_limit=100), 80, []),
        (MachineFacts(memory_free=49, memory_total=1000), None, ["memory"]),
        (MachineFacts(processes=81, process_limit=100), 81, ["processes"]),
        (MachineFacts(processes=599), 100, []),
        (MachineFacts(processes=600), 100, ["processes"]),
        (MachineFacts(processes=600), None, []),
    ],
)
async def test_what_is_scarce(facts: MachineFacts, first: int | None, about: Sequence[str]) -> None:
    assert [name for name, _ in scarce(facts, first)] == about


async def test_nothing_to_reclaim_is_not_listed() -> None:
    assert disk_detail("/w", MIB, Policy(), []) == "/w has 1.0 MiB left, 512 MiB is the reserve"
    assert disk_detail("/w", MIB, Policy(), [("caches", 0)]) == "/w has 1.0 MiB left, 512 MiB is the reserve"


async def test_sizes_are_written_for_people() -> None:
    assert [size(number) for number in (0, 5000, 5 * MIB, 500 * MIB, 1536 * MIB, 3 << 40)] == [
        "0 KiB", "5 KiB", "5.0 MiB", "500 MiB", "1.5 GiB", "3.0 TiB"
    ]  # fmt: skip


def costing(outcome: Outcome, usd: float) -> Outcome:
    return replace(outcome, cost_usd=usd)


async def test_most_of_the_money_is_a_warning_between_iterations(rig: Rig) -> None:
    steps = [costing(idle(), 0.5), costing(idle("b"), 0.34), costing(claim(), 0.2)]
    state, _ = await run(rig, Box(), steps, Policy(max_cost_usd=1.0))
    warnings = rig.seen(ev.BudgetWarning)
    assert [(warning.limit_type, warning.limit_value) for warning in warnings] == [("max_cost_usd", 1.0)]
    assert warnings[0].current_value == pytest.approx(0.84)
    assert state.stop_reason == "max_cost_reached"


async def test_most_of_the_money_is_a_warning_in_mid_iteration_too(rig: Rig) -> None:
    reply = AgentReply(iteration_num=1, message_id="m", model="m", usage=Usage(1), cost_usd=0.85)
    steps, gate = [Step(outcome=costing(claim(), 0.85), events=(reply,))], asyncio.Event()
    going = asyncio.create_task(run(rig, Box(), steps, Policy(max_cost_usd=1.0), gate, checks=("true",)))
    await rig.until(ev.BudgetWarning)
    assert rig.seen(ev.IterationCompleted) == []
    gate.set()
    state, _ = await going
    assert state.stop_reason == "validation_passed"
    assert len(rig.seen(ev.BudgetWarning)) == 1


async def test_a_limit_that_is_reached_at_once_is_no_warning(rig: Rig) -> None:
    state, _ = await run(rig, Box(), [idle()], Policy(max_runs=1))
    assert (state.stop_reason, rig.seen(ev.BudgetWarning)) == ("max_runs_reached", [])
