"""A dead agent is ended and counted; one that shows life is left alone, however long it takes."""

import asyncio
from pathlib import Path

import pytest

from engine.rig import FastClock, Rig, claim, idle
from patience import PATIENCE
from untildone.agents.scripted import ScriptedAgent, Step
from untildone.core import events as ev
from untildone.core.liveness import Pulse
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy
from untildone.core.trace import AgentSession
from untildone.ports import Tell

pytestmark = pytest.mark.anyio


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, clock=FastClock(speed=20))


async def test_a_dead_agent_is_ended_counted_and_the_next_one_is_told(rig: Rig) -> None:
    half = rig.repo / "half.txt"

    class Dies(ScriptedAgent):
        async def iterate(self, order: Order, tell: Tell) -> Outcome:
            if order.iteration_num == 1:
                half.write_text("half\n")
            return await super().iterate(order, tell)

    agent = Dies([Step(outcome=idle(), delay=300, alive=False), claim()])
    from untildone import wiring

    policy = Policy(max_runs=5, idle_timeout=10)
    state = await asyncio.wait_for(
        wiring.start_run(rig.spec(checks=("true",)), policy, rig.around(agent), run_id=rig.run_id), PATIENCE
    )
    assert (state.stop_reason, state.attempts, state.successes) == ("validation_passed", 2, 1)
    (failed,) = rig.seen(ev.IterationFailed)
    assert failed.error_type == "hang"
    assert failed.duration_seconds >= 10
    assert agent.discarded == 1
    (saved,) = rig.seen(ev.LandingSnapshot)
    assert saved.files == ("half.txt",)
    assert "HALF-DONE WORK" in agent.orders[1].prompt
    assert "no sign of life" in agent.orders[1].prompt
    assert agent.orders[1].resume_session is None


async def test_a_living_agent_may_take_as_long_as_it_wants(rig: Rig) -> None:
    state, agent = await rig.run([Step(outcome=claim(), delay=2)], Policy(idle_timeout=5), checks=("true",))
    assert (state.stop_reason, state.attempts, agent.discarded) == ("validation_passed", 1, 0)


async def test_hangs_in_a_row_stop_the_run(rig: Rig) -> None:
    dead = [Step(outcome=idle(), delay=300, alive=False) for _ in range(3)]
    state, agent = await asyncio.wait_for(rig.run(dead, Policy(max_runs=9, idle_timeout=4)), PATIENCE)
    assert (state.stop_reason, state.attempts, agent.discarded) == ("consecutive_errors", 3, 3)


async def test_nobody_watches_without_a_timeout(rig: Rig) -> None:
    dead = Step(outcome=claim(), delay=1, alive=False)
    state, _ = await rig.run([dead], Policy(idle_timeout=None), checks=("true",))
    assert state.stop_reason == "validation_passed"


async def test_a_loop_that_slept_does_not_take_its_own_sleep_for_silence(rig: Rig) -> None:
    """As with SIGSTOP and SIGCONT of the loop, or a laptop's lid: nobody looked, so nobody knows."""
    jump = 0.0
    real = rig.clock.now
    rig.clock.now = lambda: real() + jump  # type: ignore[method-assign]
    dead = Step(outcome=claim(), delay=0.3, alive=False, events=(AgentSession(iteration_num=1, session_id="s"),))
    run = asyncio.create_task(rig.run([dead], Policy(idle_timeout=240), checks=("true",)))
    await rig.until(AgentSession)
    jump = 8 * 3600.0
    state, _ = await run
    assert (state.stop_reason, rig.seen(ev.IterationFailed)) == ("validation_passed", [])


async def test_a_human_comes_before_the_watchdog(rig: Rig) -> None:
    session = AgentSession(iteration_num=1, session_id="s")
    dead = Step(outcome=claim(), delay=300, alive=False, events=(session,))
    run = asyncio.create_task(rig.run([dead], Policy(max_runs=1, idle_timeout=3000)))
    await rig.until(AgentSession)
    await rig.say(ev.StopRequested(by="u"))
    state, agent = await asyncio.wait_for(run, PATIENCE)
    assert (state.stop_reason, agent.discarded) == ("stop_requested", 0)
    assert [failed.error_type for failed in rig.seen(ev.IterationFailed)] == ["stopped"]


async def test_a_watchdog_that_breaks_is_not_silent(rig: Rig) -> None:
    class Broken(ScriptedAgent):
        def pulse(self) -> Pulse | None:
            raise RuntimeError("no pulse")

    from untildone import wiring

    agent = Broken([Step(outcome=claim(), delay=5)])
    with pytest.raises(RuntimeError, match="no pulse"):
        await wiring.start_run(rig.spec(), Policy(idle_timeout=2), rig.around(agent), run_id=rig.run_id)
    assert [stop.stop_reason for stop in rig.seen(ev.ContinuousSuspended)] == ["internal_error"]
