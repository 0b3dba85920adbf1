"""The last question: what is left, asked in the same session before the agent's word alone ends a run."""

from pathlib import Path

import pytest

from engine.rig import Rig, claim, idle, writes
from untildone.agents.scripted import Step
from untildone.core import events as ev
from untildone.core.claims import Report
from untildone.core.outcome import FaultEvidence, Outcome
from untildone.core.policy import COMPLETION_SIGNAL, Policy, Tending

pytestmark = pytest.mark.anyio
LEFT = idle(
    report=Report(status="IN_PROGRESS", exit_signal=False, remaining=("the CLI has no --json",)), session_id="s"
)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_only_a_yes_ends_the_run_and_a_no_goes_into_the_next_prompt(rig: Rig) -> None:
    said = claim(session_id="s")
    tending = Tending(before_iteration=rig.hook("b"), after_iteration=rig.hook("a"))
    state, agent = await rig.run([said, said, said, said], Policy(max_runs=4), [LEFT, said], tending=tending)
    assert (state.stop_reason, state.verified, state.successes, state.attempts) == ("completion_signal", False, 4, 4)
    assert [(order.resume_session, order.iteration_num) for order in agent.questions] == [("s", 2), ("s", 4)]
    assert "Is the ENTIRE goal reached?" in agent.questions[0].prompt
    assert "make it work" in agent.questions[0].prompt
    assert "the CLI has no --json" in agent.orders[2].prompt
    assert "the CLI has no --json" not in agent.orders[3].prompt
    assert state.spend.cost_usd == pytest.approx(0.6), "what a question costs is booked"
    assert [len(rig.hook_facts(name)) for name in "ab"] == [4, 4], "it is no iteration"


async def test_a_phrase_is_asked_for_a_report_and_the_report_decides(rig: Rig) -> None:
    phrase, yes = idle(f"**{COMPLETION_SIGNAL}.**", session_id="s"), claim(session_id="s")
    state, agent = await rig.run([phrase, phrase], Policy(max_runs=9), [yes, yes])
    assert (state.stop_reason, state.attempts, len(agent.questions)) == ("completion_signal", 2, 2)
    rig.run_id = "phrases"
    state, agent = await rig.run([phrase] * 3, Policy(max_runs=9), [phrase] * 3)
    assert (state.stop_reason, state.attempts) == ("completion_signal", 3), (
        "an agent without reports needs more of them"
    )
    rig.run_id = "left"
    state, agent = await rig.run([phrase] * 2, Policy(max_runs=2), [LEFT] * 2)
    assert (state.stop_reason, state.attempts) == ("max_runs_reached", 2)


async def test_checks_and_older_systems_ask_nothing(rig: Rig) -> None:
    state, agent = await rig.run([claim()], Policy(max_runs=9), [], checks=("true",))
    assert (state.stop_reason, agent.questions) == ("validation_passed", [])
    rig.run_id = "older"
    policy = Policy(max_runs=9, completion_match="published", completion_threshold=1)
    state, agent = await rig.run([claim()], policy, [])
    assert (state.stop_reason, agent.questions) == ("completion_signal", [])


async def test_a_question_that_fails_is_asked_again_and_what_it_changes_is_committed(rig: Rig) -> None:
    broken = Outcome(session_id="s", failure=FaultEvidence(has_result=False, exit_code=1, text="gone"))
    late = writes(rig.repo / "late.txt", "late", claim(session_id="s"))
    policy = Policy(max_runs=1, completion_threshold=1)
    state, agent = await rig.run([claim(session_id="s")], policy, [broken, Step(outcome=late)])
    assert (state.stop_reason, len(agent.questions), state.commits) == ("completion_signal", 2, 1)
    assert rig.git("status", "--short") == ""


async def test_a_message_that_came_with_the_last_claim_is_heard_first(rig: Rig) -> None:
    said = ev.MessageReceived(by="u", content="and the docs, please")
    last = Step(outcome=claim(), events=(said,))
    state, agent = await rig.run([last, claim()], checks=("true",))
    assert (state.stop_reason, state.attempts) == ("validation_passed", 2)
    assert "and the docs, please" in agent.orders[1].prompt
    rig.run_id = "unheard"
    state, agent = await rig.run([last], Policy(max_runs=1), checks=("true",))
    assert (state.stop_reason, state.stop_detail) == ("max_runs_reached", "1 message the agent has not heard")
