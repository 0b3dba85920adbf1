"""When git, the folder, a hook or a second driver gets in the way: nothing is lost, and the words are true."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from engine.rig import Rig, claim, idle, writes
from patience import PATIENCE, soon
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent, Step
from untildone.core import events as ev
from untildone.core.outcome import Order, Outcome, Usage
from untildone.core.policy import Policy, Tending
from untildone.core.trace import AgentReply, AgentSession, AgentStarted
from untildone.engine.journal import load_state
from untildone.errors import RunBusy

pytestmark = pytest.mark.anyio


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def hook(rig: Rig, text: str, name: str = "pre-commit") -> Path:
    path = rig.repo / ".git" / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


async def test_work_that_cannot_be_committed_is_not_done_and_the_agent_hears_why(rig: Rig) -> None:
    lint = hook(rig, "test -f lint-ok || { echo 'lint: tabs in b.txt'; exit 1; }")
    mend = writes(rig.repo / "lint-ok", "", claim())
    state, agent = await rig.run(
        [writes(rig.repo / "b.txt", "b", claim()), mend], Policy(max_runs=5), checks=("test -f b.txt",)
    )
    assert lint.exists()
    assert (state.stop_reason, state.attempts, state.verified) == ("validation_passed", 2, True)
    assert "lint: tabs in b.txt" in agent.orders[1].prompt
    assert [verdict.passed for verdict in rig.seen(ev.IterationValidation)] == [False, True]
    assert "b.txt" in rig.git("show", "--stat", state.verified_commit or "")


def killing_git(rig: Rig, times: int) -> None:
    """The first commits are killed while they hold the lock."""
    hook(
        rig,
        f"""
n=$(cat '{rig.tmp}/n' 2>/dev/null || echo 0); echo $((n + 1)) > '{rig.tmp}/n'
[ "$n" -ge {times} ] || kill -9 $PPID""",
    )


async def test_a_git_that_is_killed_is_started_once_more(rig: Rig) -> None:
    killing_git(rig, 1)
    state, _ = await rig.run([writes(rig.repo / "b.txt", "b")], Policy(max_runs=1))
    assert (state.stop_reason, state.commits, state.commit_trouble) == ("max_runs_reached", 1, "")


async def test_a_git_that_is_killed_after_its_commit_has_made_one(rig: Rig) -> None:
    hook(rig, "kill -9 $PPID", name="post-commit")
    state, _ = await rig.run([writes(rig.repo / "b.txt", "b")], Policy(max_runs=1))
    assert (state.stop_reason, state.commits, state.commit_trouble) == ("max_runs_reached", 1, "")
    (landed,) = rig.seen(ev.LandingCommitted)
    assert (landed.commit, landed.files_changed) == (rig.git("rev-parse", "HEAD").strip(), 1)


async def test_the_next_driver_commits_what_the_last_iteration_could_not(rig: Rig) -> None:
    killing_git(rig, 2)
    state, _ = await rig.run([writes(rig.repo / "b.txt", "b")], Policy(max_runs=1))
    assert (state.stop_reason, state.commits, state.commit_trouble[-21:]) == (
        "max_runs_reached",
        0,
        "git commit was killed",
    )
    for lock in (rig.repo / ".git").glob("*.lock"):
        os.utime(lock, (0, 0))  # of a git that died long ago
    state, agent = await rig.resume([])
    assert (state.stop_reason, state.commits, state.commit_trouble) == ("max_runs_reached", 1, "")
    assert agent.orders == []
    assert rig.git("show", "HEAD:b.txt") == "b"


async def test_a_repository_that_is_gone_stops_the_run_in_order(rig: Rig) -> None:
    def destroy(_: Order) -> Outcome:
        shutil.rmtree(rig.repo / ".git")
        return idle("oops")

    state, _ = await rig.run([destroy])
    assert (state.stop_reason, state.phase, state.open) == ("surroundings_failed", "suspended", None)
    assert state.spent_usd == pytest.approx(0.1), "money is booked before anything else can fail"
    assert "git" in state.stop_detail


async def test_a_folder_that_is_gone_stops_the_run_in_order(rig: Rig) -> None:
    def destroy(_: Order) -> Outcome:
        shutil.rmtree(rig.repo)
        return idle("oops")

    state, _ = await rig.run([destroy])
    assert (state.stop_reason, state.phase) == ("surroundings_failed", "suspended")


async def test_who_is_refused_the_lease_changes_nothing(rig: Rig) -> None:
    gate = asyncio.Event()
    run = asyncio.create_task(rig.run([claim(), claim()], checks=("true",), gate=gate))
    await rig.until(AgentStarted)
    other = wiring.open_log(rig.tmp / "state", rig.clock)
    around = wiring.Surroundings(
        log=other, state_dir=rig.tmp / "state", env={"HOME": "/"}, clock=rig.clock, agent=ScriptedAgent([])
    )
    weaker = ev.SettingsChanged(by="u", policy=Policy(unbounded=True), spec=rig.spec(checks=()))
    with pytest.raises(RunBusy):
        await wiring.resume_run(rig.run_id, around, asked=[weaker])
    await other.close()
    gate.set()
    state, _ = await run
    assert (state.stop_reason, state.spec.checks) == ("validation_passed", ("true",))
    assert rig.seen(ev.SettingsChanged) == []


async def test_what_is_asked_on_the_way_in_counts_from_the_start(rig: Rig) -> None:
    await rig.run([idle()], Policy(max_iterations=1))
    asked = ev.SettingsChanged(by="u", policy=Policy(max_iterations=2), spec=rig.spec(checks=("false",)))
    agent = ScriptedAgent([claim()])
    state = await wiring.resume_run(rig.run_id, rig.around(agent), asked=[asked])
    assert (state.attempts, state.verified) == (2, False)
    assert "DOES NOT HOLD" not in agent.orders[0].prompt
    assert (await load_state(rig.log, rig.run_id)).spec.checks == ("false",)


async def test_the_reserve_pays_for_a_hand_over_in_the_same_session(rig: Rig) -> None:
    dear = AgentReply(iteration_num=1, message_id="m", model="m", usage=Usage(1), cost_usd=0.97)
    cut = Step(outcome=claim(), events=(AgentSession(iteration_num=1, session_id="s1"), dear), delay=300)
    notes = writes(rig.repo / "SHARED_TASK_NOTES.md", "half done", Outcome(final_text="noted", cost_usd=0.01))
    state, agent = await asyncio.wait_for(rig.run([cut, notes], Policy(max_cost_usd=1.0)), PATIENCE)
    assert (state.stop_reason, state.attempts, state.successes) == ("max_cost_reached", 1, 0)
    assert [order.resume_session for order in agent.orders] == [None, "s1"]
    assert "SHARED_TASK_NOTES.md" in agent.orders[1].prompt
    assert state.spent_usd == pytest.approx(0.98)


async def test_work_cut_off_while_it_was_being_committed_is_committed_at_the_next_start(rig: Rig) -> None:
    hook = rig.repo / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\ntouch {rig.tmp}/committing\nsleep 600\n")
    hook.chmod(0o755)
    work = writes(rig.repo / "b.txt", "b", claim())
    run = asyncio.create_task(rig.run([work], checks=("test -f b.txt",)))
    await soon((rig.tmp / "committing").exists, "the commit")
    run.cancel()
    state, _ = await run
    assert (state.phase, state.commits) == ("suspended", 0)
    hook.unlink()
    state, agent = await rig.resume([])
    assert (state.stop_reason, state.commits, agent.orders) == ("validation_passed", 1, [])
    assert state.verified_commit == rig.git("rev-parse", "HEAD").strip()
    assert rig.git("show", "HEAD:b.txt") == "b"


async def test_what_somebody_else_put_into_the_tree_after_a_stop_is_not_committed_as_the_agents(rig: Rig) -> None:
    steps = [Step(outcome=idle()), Step(outcome=idle(), delay=300)]
    run = asyncio.create_task(rig.run(steps, keep_dirty=True))
    await rig.until(AgentStarted, 2)
    await rig.say(ev.StopRequested(by="u"))
    await run
    (rig.repo / "mine.txt").write_text("a human's\n")
    run = asyncio.create_task(rig.resume([Step(outcome=idle(), delay=300)]))
    await rig.until(AgentStarted, 3)
    assert rig.git("status", "--porcelain") == "?? mine.txt\n"
    await rig.say(ev.StopRequested(by="u"))
    await run


async def test_leaving_in_a_hurry_does_not_take_back_that_it_is_done(rig: Rig) -> None:
    tending = Tending(on_stop=f"touch {rig.tmp}/stopping; sleep 600")
    run = asyncio.create_task(rig.run([claim()], checks=("true",), tending=tending))
    await soon((rig.tmp / "stopping").exists, "the end")
    run.cancel()
    state, _ = await run
    assert (state.phase, state.stop_reason) == ("completed", "validation_passed")
    assert rig.seen(ev.ContinuousSuspended) == []
