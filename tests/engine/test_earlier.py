"""A run that goes on from an earlier conversation, and one whose tasks must be done."""

from pathlib import Path

import pytest

from engine.rig import Rig, claim, idle
from untildone.core import events as ev
from untildone.core.contract import CheckSpec, Contract
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Earlier, Policy
from untildone.hook.task_store import Tasks

pytestmark = pytest.mark.anyio


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_the_first_iteration_is_a_fork_of_it_and_the_next_one_fresh(rig: Rig) -> None:
    earlier = Earlier(session="there", fork=True)
    _, agent = await rig.run([idle(session_id="copy"), idle()], Policy(max_runs=2), earlier=earlier)
    assert [(order.resume_session, order.fork) for order in agent.orders] == [("there", True), (None, False)]
    assert [order.new_rules for order in agent.orders] == [True, False]


async def test_the_copy_is_not_copied_again_when_it_is_gone_on_with(rig: Rig) -> None:
    earlier = Earlier(session="there", fork=True)
    steps = [idle(session_id="copy"), idle(session_id="copy")]
    _, agent = await rig.run(steps, Policy(max_runs=2, session="resume"), earlier=earlier)
    assert [(order.resume_session, order.fork) for order in agent.orders] == [("there", True), ("copy", False)]


async def test_while_a_task_is_open_nothing_is_done(rig: Rig) -> None:
    wanted = Contract(checks=(CheckSpec(name="tasks-done", kind="tasks-done"),), guard="off")

    def finishes(_: Order) -> Outcome:
        with Tasks(str(rig.repo)) as tasks:
            tasks.change("1", status="completed")
        return claim()

    def plans(_: Order) -> Outcome:
        with Tasks(str(rig.repo)) as tasks:
            tasks.add("write it")
        return claim()

    state, agent = await rig.run([claim(), plans, finishes], Policy(max_runs=5), contract=wanted)
    assert (state.stop_reason, state.attempts) == ("validation_passed", 3)
    assert "there are no tasks" in agent.orders[1].prompt
    assert "TASK-001 (pending): write it" in agent.orders[2].prompt
    assert [verdict.passed for verdict in rig.seen(ev.IterationValidation)] == [False, False, True]
