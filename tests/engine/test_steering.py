"""Stop, pause, message and new limits take effect within a second, also in mid-iteration."""

import asyncio
import itertools
import time
from pathlib import Path

import pytest

from engine.rig import Rig, claim, counting, idle
from patience import PATIENCE, soon
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent, Step
from untildone.core import events as ev
from untildone.core.beginning import beginning
from untildone.core.contract import Contract, commands
from untildone.core.fold import fold
from untildone.core.oneliners import closing_lines
from untildone.core.outcome import Order, Outcome, Usage
from untildone.core.policy import Policy, Tending
from untildone.core.replay import what_if
from untildone.core.trace import AgentReply, AgentSession, AgentStarted
from untildone.core.views import run_view
from untildone.ports import Tell

pytestmark = pytest.mark.anyio

LONG = 300.0
AT_ONCE = PATIENCE
"""Seconds: far from LONG, and nobody else's load makes it late."""


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def long_step(session: str | None = None) -> Step:
    events = (AgentSession(iteration_num=1, session_id=session),) if session else ()
    return Step(outcome=claim(), events=events, delay=LONG)


async def test_stop_interrupts_and_suspends_at_once(rig: Rig) -> None:
    run = asyncio.create_task(rig.run([long_step()]))
    await rig.until(AgentStarted)
    (rig.repo / "half.txt").write_text("half")
    asked = time.monotonic()
    await rig.say(ev.StopRequested(by="u"))
    state, _ = await run
    assert time.monotonic() - asked < AT_ONCE
    assert (state.stop_reason, state.phase, state.successes) == ("stop_requested", "suspended", 0)
    assert rig.seen(ev.LandingSnapshot)[0].files == ("half.txt",)
    assert (rig.repo / "half.txt").read_text() == "half"


async def test_half_done_work_is_told_to_the_next_agent(rig: Rig) -> None:
    run = asyncio.create_task(rig.run([long_step()]))
    await rig.until(AgentStarted)
    (rig.repo / "half.txt").write_text("half")
    await rig.say(ev.StopRequested(by="u"))
    await run
    state, agent = await rig.resume([claim(), claim()])
    assert "half.txt" in agent.orders[0].prompt
    assert "HALF-DONE WORK" not in agent.orders[1].prompt
    assert (state.attempts, state.stop_reason) == (3, "completion_signal")
    told = what_if(await rig.log.read(rig.run_id), {"max_runs": 10})
    assert told.same, f"the same limits tell the same story of a run that was stopped and resumed: {told.text}"


async def test_stop_after_the_iteration_waits_for_it(rig: Rig) -> None:
    gate = asyncio.Event()
    run = asyncio.create_task(rig.run([idle(), claim()], gate=gate))
    await rig.until(AgentStarted)
    await rig.say(ev.StopRequested(by="u", after_iteration=True))
    gate.set()
    state, _ = await run
    assert (state.stop_reason, state.successes) == ("stop_requested", 1)


async def test_a_pause_begins_after_the_iteration_and_its_time_does_not_count(rig: Rig) -> None:
    policy = Policy(max_runs=10, max_duration=3600)
    gate = asyncio.Event()
    run = asyncio.create_task(rig.run([idle(), claim(), claim()], policy, gate=gate))
    await rig.until(AgentStarted)
    await rig.say(ev.PauseRequested(by="u"))
    gate.set()
    await rig.until(ev.ContinuousWaiting)
    assert rig.seen(ev.ContinuousWaiting)[0].cause == "paused"
    assert [done.iteration_num for done in rig.seen(ev.IterationCompleted)] == [1], "it was cut off"
    rig.clock.skip(8 * 3600)
    await rig.say(ev.MessageReceived(by="u", content="still thinking"))
    rig.clock.skip(8 * 3600)
    await rig.say(ev.ResumeRequested(by="u"))
    state, agent = await run
    assert [order.iteration_num for order in agent.orders] == [1, 2, 3]
    assert state.stop_reason == "completion_signal"
    assert 0 < state.active_seconds < 3600


@pytest.mark.parametrize("asked", [ev.StopRequested(by="signal", signal="SIGINT"), ev.StopRequested(by="u")])
async def test_a_stop_that_is_asked_for_while_an_iteration_is_prepared_begins_none(rig: Rig, asked: ev.Event) -> None:
    here = rig.tmp / "preparing"
    tending = Tending(before_iteration=f"touch '{here}'; sleep 600")
    run = asyncio.create_task(rig.run([claim()], tending=tending))
    await soon(here.exists, "the preparation")
    await rig.say(asked)
    state, agent = await run
    assert (state.phase, state.attempts, agent.orders) == ("suspended", 0, [])


async def test_a_message_waits_for_the_next_prompt_and_is_told_once(rig: Rig) -> None:
    gate = asyncio.Event()
    run = asyncio.create_task(rig.run([idle(), claim(), claim()], gate=gate))
    await rig.until(AgentStarted)
    await rig.say(ev.MessageReceived(by="u", content="use tabs"))
    gate.set()
    _, agent = await run
    assert [("use tabs" in order.prompt) for order in agent.orders] == [False, True, False]


async def test_an_urgent_message_interrupts(rig: Rig) -> None:
    run = asyncio.create_task(rig.run([long_step(), claim(), claim()]))
    await rig.until(AgentStarted)
    asked = time.monotonic()
    await rig.say(ev.MessageReceived(by="u", content="wrong folder!", urgent=True))
    await rig.until(ev.IterationStarted, 2)
    assert time.monotonic() - asked < AT_ONCE
    _, agent = await run
    assert "wrong folder!" in agent.orders[1].prompt


async def test_limits_change_in_flight(rig: Rig) -> None:
    gate = asyncio.Event()
    run = asyncio.create_task(
        rig.run(itertools.repeat(counting(rig.repo / "n.txt")), Policy(max_runs=1000), gate=gate)
    )  # fmt: skip
    await rig.until(AgentStarted)
    await rig.say(ev.LimitsChanged(by="u", changes={"max_runs": 3}))
    gate.set()
    state, _ = await run
    assert (state.stop_reason, state.successes) == ("max_runs_reached", 3)


async def test_a_budget_is_enforced_inside_an_iteration(rig: Rig) -> None:
    replies = tuple(
        AgentReply(iteration_num=1, message_id=f"m{n}", model="m", usage=Usage(1), cost_usd=1.6) for n in range(1)
    )
    run = rig.run([Step(outcome=claim(), events=replies, delay=LONG)], Policy(max_cost_usd=1.0))
    state, _ = await asyncio.wait_for(run, AT_ONCE)
    assert state.stop_reason == "max_cost_reached"
    assert rig.seen(ev.IterationFailed)[0].error_type == "limit_reached"
    assert rig.seen(ev.ContinuousLimitReached)[0].limit_value == 1.0


async def test_a_duration_is_enforced_inside_an_iteration(rig: Rig) -> None:
    state, _ = await asyncio.wait_for(rig.run([long_step()], Policy(max_duration=0.5)), AT_ONCE)
    assert state.stop_reason == "max_duration_reached"


async def test_a_timeout_is_productive_only_if_the_tree_changed(rig: Rig) -> None:
    class Writes(ScriptedAgent):
        async def iterate(self, order: Order, tell: Tell) -> Outcome:
            if order.iteration_num == 1:
                (rig.repo / "half.txt").write_text("half")
            return await super().iterate(order, tell)

    policy = Policy(max_iterations=2, iteration_timeout=3600)
    around = rig.around(Writes([long_step(), long_step()]))
    run = asyncio.create_task(wiring.start_run(rig.spec(), policy, around, run_id=rig.run_id))
    for iteration in (1, 2):
        await rig.until(AgentStarted, iteration)
        rig.clock.skip(3600)
    state = await asyncio.wait_for(run, AT_ONCE)
    assert (state.attempts, state.successes) == (2, 1)
    assert rig.seen(ev.IterationFailed)[0].error_type == "timeout"


async def test_a_wait_ends_when_asked_to_stop(rig: Rig) -> None:
    run = asyncio.create_task(rig.run([idle(), claim()], Policy(max_runs=5, loop_delay=LONG)))
    await rig.until(ev.ContinuousWaiting)
    await rig.say(ev.StopRequested(by="u"))
    state, _ = await asyncio.wait_for(run, AT_ONCE)
    assert state.stop_reason == "stop_requested"


async def test_cancelling_the_driver_still_books_and_suspends(rig: Rig) -> None:
    reply = AgentReply(iteration_num=1, message_id="m", model="m", usage=Usage(1), cost_usd=0.4)
    run = asyncio.create_task(rig.run([Step(outcome=claim(), events=(reply,), delay=LONG)]))
    await rig.until(AgentReply)
    run.cancel()
    state, _ = await run
    assert (state.stop_reason, state.phase, state.spent_usd) == ("shutdown_signal", "suspended", pytest.approx(0.4))


async def test_a_message_that_arrives_while_the_last_checks_run_is_heard(rig: Rig) -> None:
    begun, said = rig.tmp / "begun", rig.tmp / "said"
    check = f"touch {begun}; while ! test -e {said}; do sleep 0.02; done"
    waits = Contract(checks=commands(check), guard="off", room="tree", baseline=False)
    run = asyncio.create_task(rig.run([claim(), claim()], contract=waits))
    await soon(begun.exists, "the check")
    await rig.say(ev.MessageReceived(content="and the docs", by="u"))
    await rig.until(ev.MessageReceived)
    said.touch()
    state, agent = await run
    assert (state.stop_reason, state.attempts, state.messages) == ("validation_passed", 2, ())
    assert "and the docs" in agent.orders[1].prompt


async def test_a_message_that_a_limit_leaves_unheard_is_reported(rig: Rig) -> None:
    gate = asyncio.Event()
    run = asyncio.create_task(rig.run([idle()], Policy(max_runs=1), gate=gate))
    await rig.until(AgentStarted)
    await rig.say(ev.MessageReceived(content="and the docs", by="u"))
    gate.set()
    state, _ = await run
    assert state.stop_reason == "max_runs_reached"
    assert any("and the docs" in line for line in closing_lines(run_view(state, rig.clock.now())))


async def test_a_run_that_begins_later_waits_in_the_log_can_be_stopped_and_begins_when_resumed(rig: Rig) -> None:
    begins = rig.clock.now() + 3600.0
    later = Policy(max_runs=1, max_duration=60.0, start_at=begins)
    run = asyncio.create_task(rig.run([claim()], policy=later))
    await rig.until(ev.ContinuousWaiting)
    (wait,) = rig.seen(ev.ContinuousWaiting)
    assert (wait.cause, wait.until) == ("start_at", begins)
    await rig.say(ev.StopRequested(by="u"))
    state, agent = await run
    assert (state.stop_reason, state.attempts, agent.orders) == ("stop_requested", 0, [])
    told = asyncio.create_task(rig.resume([claim()]))
    await rig.until(ev.ContinuousWaiting, 2)
    rig.clock.skip(3600.0)
    state, agent = await told
    assert (state.stop_reason, len(agent.orders)) == ("max_runs_reached", 1)
    assert state.elapsed(rig.clock.now()) < later.max_duration, "the wait does not count"


def test_while_it_waits_to_begin_status_says_until_when(rig: Rig) -> None:
    spec, begins = rig.spec(), 2e9
    policy = Policy(max_runs=1, start_at=begins)
    state = fold(
        [
            ev.Record(seq=1, at=1e9, event=beginning("r", spec, policy)),
            ev.Record(seq=2, at=1e9, event=ev.ContinuousResumed(pid=1, host="h", version="0", lease=1)),
        ]
    )
    view = run_view(state, 1e9 + 1, alive=True)
    assert (view.status, view.waiting_until) == ("waiting", begins)
    assert view.doing == "waiting for its start"
