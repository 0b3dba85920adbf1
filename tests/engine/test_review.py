"""Reviews on real git and a real store: findings come back, nothing is done against them, every cent is booked."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.rig import FastClock, Rig, Steps, claim, idle, writes
from patience import PATIENCE
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent, Step
from untildone.core import events as ev
from untildone.core.claims import Report, report_from
from untildone.core.outcome import FaultEvidence, Order, Outcome, Usage
from untildone.core.policy import Policy, Review, Tending
from untildone.core.reviewing import REVIEWER_WROTE
from untildone.core.state import LoopState
from untildone.core.trace import AgentReply

pytestmark = pytest.mark.anyio

APPROVE = idle("All is well.\n\nREVIEW: APPROVE", session_id="r")
CHANGES = idle("a.txt:1 says the wrong thing\n\nREVIEW: CHANGES", session_id="r")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def run(
    rig: Rig, steps: Steps, reviews: Steps, policy: Policy | None = None, **changes: Any
) -> tuple[LoopState, ScriptedAgent, ScriptedAgent]:
    worker, reviewer = ScriptedAgent(steps), ScriptedAgent(reviews)
    review = changes.pop("review", Review(when="landing"))
    state = await wiring.start_run(
        rig.spec(review=review, **changes),
        policy or Policy(max_runs=10),
        rig.around(worker, reviewer),
        run_id=rig.run_id,
    )
    return state, worker, reviewer


async def resume(rig: Rig, steps: Steps, reviews: Steps) -> tuple[LoopState, ScriptedAgent, ScriptedAgent]:
    worker, reviewer = ScriptedAgent(steps), ScriptedAgent(reviews)
    return await wiring.resume_run(rig.run_id, rig.around(worker, reviewer)), worker, reviewer


def done(rig: Rig, text: str) -> Any:
    return writes(rig.repo / "b.txt", text, claim(session_id="w"))


async def test_a_reviewer_asks_for_changes_once_and_then_approves(rig: Rig) -> None:
    steps, reviews = [done(rig, "1\n"), done(rig, "2\n")], [CHANGES, APPROVE]
    state, worker, reviewer = await run(rig, steps, reviews, checks=("test -f b.txt",))
    assert (state.stop_reason, state.verified, state.approved) == ("validation_passed", True, True)
    assert (state.attempts, state.successes, state.commits) == (2, 2, 2)
    assert "> a.txt:1 says the wrong thing" in worker.orders[1].prompt
    assert "> a.txt:1 says the wrong thing" in reviewer.orders[1].prompt
    assert "a.txt:1" not in reviewer.orders[0].prompt
    assert [order.iteration_num for order in reviewer.orders] == [1, 2]
    assert f"git diff {state.arrival.start} {rig.git('rev-parse', 'HEAD').strip()}" in reviewer.orders[1].prompt
    assert "- b.txt: created (+1 -0)" in reviewer.orders[1].prompt
    assert state.spend.cost_usd == pytest.approx(4 * 0.1)


async def test_a_review_has_rules_of_its_own_and_is_no_iteration_of_work(rig: Rig) -> None:
    tending = Tending(before_iteration=rig.hook("hooked"))
    state, worker, reviewer = await run(
        rig, [done(rig, "1\n")], [APPROVE], Policy(max_runs=1), checks=("true",), tending=tending
    )
    assert state.stop_reason == "validation_passed", "the last work that a limit allows is still reviewed"
    assert len(rig.hook_facts("hooked")) == 1
    assert reviewer.orders[0].rules != worker.orders[0].rules
    started, closed = rig.seen(ev.IterationStarted), rig.seen(ev.IterationCompleted)
    assert [(event.iteration_num, event.review) for event in started] == [(1, False), (1, True)]
    assert [event.verdict is not None for event in closed] == [False, True]
    assert (closed[1].claim.form, state.streak) == ("none", 1)


async def test_nothing_is_done_against_a_reviewers_last_word(rig: Rig) -> None:
    """The worker insists and changes nothing; it is reviewed again, although no iteration changed anything."""
    state, worker, reviewer = await run(
        rig, [done(rig, "1\n"), claim(), claim()], [CHANGES, CHANGES, CHANGES], checks=("true",),
        review=Review(when="iteration"),
    )  # fmt: skip
    assert (state.stop_reason, len(worker.orders), len(reviewer.orders)) == ("review_stalemate", 3, 3)
    assert state.stop_detail == "a.txt:1 says the wrong thing"
    assert state.phase == "suspended"


async def test_a_stalemate_can_be_taken_up_again(rig: Rig) -> None:
    review = Review(when="landing", rounds=1)
    state, _, _ = await run(rig, [done(rig, "1\n")], [CHANGES], checks=("true",), review=review)
    assert state.stop_reason == "review_stalemate"
    state, worker, reviewer = await resume(rig, [done(rig, "2\n")], [APPROVE])
    assert state.stop_reason == "validation_passed"
    assert "> a.txt:1 says the wrong thing" in worker.orders[0].prompt
    assert len(reviewer.orders) == 1


async def test_each_iteration_that_changed_something_is_reviewed_once(rig: Rig) -> None:
    steps = [
        writes(rig.repo / "b.txt", "1\n"),
        idle("looked around"),
        writes(rig.repo / "b.txt", "2\n", claim()),
        claim(),
    ]
    state, worker, reviewer = await run(rig, steps, [APPROVE] * 3, review=Review(when="iteration"))
    assert state.stop_reason == "completion_signal"
    assert [order.iteration_num for order in reviewer.orders] == [1, 3], "an approval holds while nothing changes"
    assert not any("REVIEWER ASKS" in order.prompt for order in worker.orders)


@pytest.mark.soak
async def test_when_the_last_work_is_not_approved_the_limit_holds(rig: Rig) -> None:
    state, _, _ = await run(rig, [done(rig, "1\n")], [CHANGES], Policy(max_runs=1), checks=("true",))
    assert (state.stop_reason, state.verified) == ("max_runs_reached", False)


@pytest.mark.soak
async def test_what_the_checks_refuse_is_not_reviewed(rig: Rig) -> None:
    steps = [done(rig, "1\n"), done(rig, "2\n")]
    state, worker, reviewer = await run(
        rig, steps, [APPROVE], checks=("grep 2 b.txt",), review=Review(when="iteration")
    )
    assert (state.stop_reason, len(reviewer.orders)) == ("validation_passed", 1)
    assert "DOES NOT HOLD" in worker.orders[1].prompt


@pytest.mark.soak
async def test_silence_approves_nothing(rig: Rig) -> None:
    review = Review(when="landing", rounds=1)
    state, _, _ = await run(rig, [done(rig, "1\n")], [idle("nice work")], checks=("true",), review=review)
    assert state.stop_reason == "review_stalemate"


async def test_a_limit_in_mid_review_waits_and_goes_on_in_the_reviewers_session(tmp_path: Path) -> None:
    rig = Rig(tmp_path, clock=FastClock(100))
    limited = Outcome(
        session_id="r", cost_usd=0.05, failure=FaultEvidence(is_error=True, api_error_status=429, retry_after=1.0)
    )
    policy = Policy(max_runs=10, session="resume")
    state, worker, reviewer = await run(
        rig, [done(rig, "1\n"), done(rig, "2\n")], [limited, CHANGES, APPROVE], policy, checks=("true",)
    )
    assert (state.stop_reason, state.attempts) == ("validation_passed", 2)
    assert [order.resume_session for order in reviewer.orders] == [None, "r", None]
    assert [order.resume_session for order in worker.orders] == [None, "w"], "nobody works in a reviewer's session"
    assert [event.retry for event in rig.seen(ev.IterationStarted) if event.review] == [0, 1, 0]
    assert state.spend.cost_usd == pytest.approx(4 * 0.1 + 0.05)


@pytest.mark.parametrize(
    ("crashes", "reason"), [(1, "validation_passed"), pytest.param(3, "consecutive_errors", marks=pytest.mark.soak)]
)
async def test_a_reviewer_that_breaks_is_tried_again_and_in_the_end_counts(
    tmp_path: Path, crashes: int, reason: str
) -> None:
    rig = Rig(tmp_path, clock=FastClock(100))
    crash = Outcome(failure=FaultEvidence(has_result=False, exit_code=139, text="segfault"))
    state, worker, _ = await run(rig, [done(rig, "1\n")], [*[crash] * crashes, APPROVE], checks=("true",))
    assert (state.stop_reason, len(worker.orders), state.attempts) == (reason, 1, 1)


async def test_a_budget_cuts_a_review_without_a_hand_over(rig: Rig) -> None:
    dear = AgentReply(iteration_num=1, message_id="m", model="m", usage=Usage(1), cost_usd=5.0)
    step = Step(outcome=APPROVE, events=(dear,), delay=300.0)
    state, worker, reviewer = await run(rig, [done(rig, "1\n")], [step], Policy(max_cost_usd=1.0), checks=("true",))
    assert (state.stop_reason, len(worker.orders), len(reviewer.orders)) == ("max_cost_reached", 1, 1)
    assert state.spend.cost_usd == pytest.approx(5.1)


async def test_an_urgent_message_is_for_the_one_who_works(rig: Rig) -> None:
    said = ev.MessageReceived(by="u", content="use tabs", urgent=True)
    driving = asyncio.create_task(
        run(rig, [done(rig, "1\n"), done(rig, "2\n")], [Step(outcome=APPROVE, delay=300.0), APPROVE], checks=("true",))
    )
    await rig.until(ev.IterationStarted, 2)
    await rig.say(said)
    async with asyncio.timeout(PATIENCE):
        state, worker, reviewer = await driving
    assert (state.stop_reason, state.attempts) == ("validation_passed", 2)
    assert "use tabs" in worker.orders[1].prompt
    assert [order.iteration_num for order in reviewer.orders] == [1, 2]
    assert not any("use tabs" in order.prompt for order in reviewer.orders)


async def test_what_a_reviewer_writes_is_told_and_gets_into_no_commit_unseen(rig: Rig) -> None:
    stray = writes(rig.repo / "stray.txt", "oops\n", CHANGES)
    state, worker, _ = await run(rig, [done(rig, "1\n"), done(rig, "2\n")], [stray, APPROVE], checks=("true",))
    warned = [event.message for event in rig.seen(ev.ContinuousWarning) if REVIEWER_WROTE in event.message]
    assert warned == [f"{REVIEWER_WROTE}, and are left as they are: stray.txt"]
    assert "## STRANGE CHANGES" in worker.orders[1].prompt
    assert "- stray.txt" in worker.orders[1].prompt
    (saved,) = [event for event in rig.seen(ev.LandingSnapshot) if event.reason]
    assert rig.git("show", f"{saved.commit}:stray.txt") == "oops\n"
    assert state.stop_reason == "validation_passed"


@pytest.mark.soak
async def test_stray_files_of_an_approving_reviewer_are_in_no_commit(rig: Rig) -> None:
    stray = writes(rig.repo / "stray.txt", "oops\n", APPROVE)
    state, _, _ = await run(rig, [done(rig, "1\n")], [stray], checks=("true",))
    assert state.stop_reason == "validation_passed"
    assert "stray.txt" not in rig.git("ls-tree", "--name-only", "HEAD")
    assert (rig.repo / "stray.txt").exists()


async def test_who_moves_head_during_a_review_has_approved_nothing(rig: Rig) -> None:
    def commits(_: Order) -> Outcome:
        (rig.repo / "b.txt").write_text("mine\n")
        rig.git("commit", "-qam", "mine")
        return APPROVE

    state, worker, reviewer = await run(rig, [done(rig, "1\n"), done(rig, "2\n")], [commits, APPROVE], checks=("true",))
    assert (state.stop_reason, len(reviewer.orders)) == ("validation_passed", 2)
    assert f"> The approval does not count: {REVIEWER_WROTE}." in worker.orders[1].prompt


@pytest.mark.soak
async def test_nor_who_changes_work_that_is_in_no_commit(rig: Rig) -> None:
    meddles = writes(rig.repo / "b.txt", "mine\n", APPROVE)
    steps = [done(rig, "1\n"), done(rig, "2\n")]
    state, worker, reviewer = await run(rig, steps, [meddles, APPROVE], checks=("true",), commit=False)
    assert (state.stop_reason, len(reviewer.orders)) == ("validation_passed", 2)
    assert "The approval does not count" in worker.orders[1].prompt


async def test_a_whole_message_of_the_agents_own_is_the_commits(rig: Rig) -> None:
    message = "Add b\n\nIt was missing.\n\n🤖 Generated with [Claude Code](https://x)\n\nCo-Authored-By: Claude <n@a>"

    def act(_: Order) -> Outcome:
        (rig.repo / "b.txt").write_text("b\n")
        return idle(report=report_from({"status": "IN_PROGRESS", "summary": "s", "commit_message": message}))

    await rig.run([act], Policy(max_runs=1), commit_message="agent")
    assert rig.git("log", "-1", "--format=%B").strip() == "Add b\n\nIt was missing."


async def test_without_one_the_summary_serves(rig: Rig) -> None:
    report = Report(summary="Write b", commit_message="Not asked for")
    act = writes(rig.repo / "b.txt", "b\n", idle(report=report))
    await rig.run([act], Policy(max_runs=1))
    assert rig.git("log", "-1", "--format=%B").strip() == "Write b"
    rig.run_id = "run2"
    again = writes(rig.repo / "b.txt", "c\n", idle(report=Report(summary="Write c")))
    await rig.run([again], Policy(max_runs=1), commit_message="agent")
    assert rig.git("log", "-1", "--format=%B").strip() == "Write c"


async def test_a_tree_that_is_in_no_commit_is_found_from_the_log(rig: Rig) -> None:
    state, _ = await rig.run([writes(rig.repo / "b.txt", "1\n")], Policy(max_runs=1), commit=False)
    (saved,) = rig.seen(ev.LandingSnapshot)
    assert (saved.iteration_num, saved.reason, saved.head) == (1, "", rig.git("rev-parse", "HEAD").strip())
    assert rig.git("show", f"{saved.commit}:b.txt") == "1\n"
    assert (state.half_done, state.unsettled) == (None, None)


async def test_a_commit_is_its_own_snapshot(rig: Rig) -> None:
    await rig.run([writes(rig.repo / "b.txt", "1\n")], Policy(max_runs=1))
    assert (len(rig.seen(ev.LandingCommitted)), rig.seen(ev.LandingSnapshot)) == (1, [])


async def test_each_iteration_has_a_branch_of_its_own_where_that_is_wanted(rig: Rig) -> None:
    steps = [writes(rig.repo / "b.txt", "1\n"), writes(rig.repo / "b.txt", "2\n")]
    await rig.run(steps, Policy(max_runs=2), branch_per="iteration")
    branches = [event.branch for event in rig.seen(ev.IterationStarted)]
    assert [branch.rpartition("/")[0] for branch in branches] == ["untildone/iteration-1", "untildone/iteration-2"]
    assert [event.branch for event in rig.seen(ev.LandingCommitted)] == branches
