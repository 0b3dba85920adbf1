"""Whose folder it is: taken up only if it is free, left alone by a landing, never committed to a strange branch."""

import asyncio
import subprocess

import pytest

from core.run_kit import with_contract
from engine.rig import FastClock, Rig, claim, idle, writes
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent, Step
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.decide import LOCK_PATIENCE
from untildone.core.outcome import FaultEvidence, Order, Outcome
from untildone.core.policy import Landing, Policy, Tending
from untildone.core.trace import AgentToolUse
from untildone.core.views import result_json, run_view
from untildone.errors import DirtyWorkspace
from untildone.git import locks

pytestmark = pytest.mark.anyio

MERGE = Landing(land="merge")


class OnMain(Rig):
    branch = "main"


@pytest.fixture
def rig(tmp_path) -> Rig:
    return OnMain(tmp_path)


async def land(rig: Rig, steps) -> tuple:
    spec = rig.spec(checks=("true",), landing=MERGE)
    asked = [ev.SettingsChanged(by="cli", policy=Policy(max_runs=10), spec=spec)]
    agent = ScriptedAgent(steps)
    return await wiring.resume_run(rig.run_id, rig.around(agent), asked=asked), agent


async def test_a_run_that_cannot_be_taken_up_says_so_and_stays_as_it_was(rig: Rig) -> None:
    await rig.run([writes(rig.repo / "f1", "1\n")], Policy(max_runs=1))
    rig.git("switch", "-q", "main")
    (rig.repo / "a.txt").write_text("mine\n")
    records = len(rig.records)
    with pytest.raises(DirtyWorkspace, match=r"not this run's: a\.txt;"):
        await rig.resume([idle()])
    assert len(rig.records) == records
    assert rig.git("branch", "--show-current") == "main\n"


async def test_a_landing_leaves_the_folder_and_what_lies_there_alone(rig: Rig) -> None:
    await rig.run([writes(rig.repo / "f1", "1\n", claim())], checks=("true",))
    rig.git("switch", "-q", "main")
    (rig.repo / "private.txt").write_text("mine\n")
    state, agent = await land(rig, [idle()])
    assert (state.phase, agent.orders) == ("completed", [])
    assert rig.git("branch", "--show-current") == "main\n"
    assert rig.git("show", "--format=", "--name-only", "main") == "f1\n"
    assert rig.git("status", "--porcelain") == "?? private.txt\n"


async def test_a_landing_that_needs_the_agent_takes_the_folder_only_if_it_is_free_and_goes_back(rig: Rig) -> None:
    await rig.run([writes(rig.repo / "a.txt", "left\n", claim())], checks=("true",))
    rig.git("switch", "-q", "main")
    (rig.repo / "a.txt").write_text("right\n")
    rig.git("commit", "-qam", "human")
    (rig.repo / "private.txt").write_text("mine\n")
    state, agent = await land(rig, [idle()])
    assert (state.stop_reason, agent.orders) == ("surroundings_failed", [])
    assert "not this run's: private.txt; commit it, or let it go along with `--dirty keep`" in state.stop_detail
    assert rig.git("branch", "--show-current") == "main\n"
    (rig.repo / "private.txt").unlink()
    rig.git("switch", "-q", "untildone/it")
    rig.git("switch", "-q", "main")

    def merges(_: Order) -> Outcome:
        rig.git("merge", "-q", "-X", "ours", "--no-edit", "main")
        return claim()

    state, _ = await rig.resume([merges])
    assert state.phase == "completed"
    assert "private.txt" not in rig.git("ls-tree", "--name-only", "main")


async def test_nothing_is_committed_on_the_base_and_nothing_counts_as_done_there(rig: Rig) -> None:
    base = rig.git("rev-parse", "main")

    def strays(_: Order) -> Outcome:
        rig.git("switch", "-q", "main")
        (rig.repo / "f2").write_text("2\n")
        return claim()

    def comes_back(_: Order) -> Outcome:
        rig.git("switch", "-q", "untildone/it")
        return claim()

    ran = AgentToolUse(iteration_num=2, tool="Bash", tool_use_id="t")
    steps = [writes(rig.repo / "f1", "1\n"), strays, comes_back]
    spec = with_contract({"checks": ("true",), "landing": MERGE})
    bases = []

    def looks(step) -> Step:
        def act(order: Order) -> Outcome:
            bases.append(rig.git("rev-parse", "main"))
            return step(order) if callable(step) else step

        return Step(outcome=act, events=(ran,) if step is strays else ())

    state, agent = await rig.run([looks(step) for step in steps], **spec)
    assert state.phase == "completed"
    assert bases == [base] * 3
    [failed, *_] = rig.seen(ev.LandingFailed)
    assert failed.reason.startswith("the folder is on branch main now, this run's commits go to branch untildone/it")
    assert "git switch untildone/it" in agent.orders[2].prompt
    assert [event.passed for event in rig.seen(ev.IterationValidation)] == [False, True]
    assert rig.git("ls-tree", "--name-only", "main").split() == ["a.txt", "f1", "f2"]


async def test_a_branch_that_a_human_switched_is_waited_for_and_its_work_is_committed_without_another_iteration(
    rig: Rig,
) -> None:
    def human_switches(_: Order) -> Outcome:
        (rig.repo / "f2").write_text("2\n")
        rig.git("switch", "-q", "main")
        return claim()

    rig.clock = FastClock(20)
    agent = ScriptedAgent([writes(rig.repo / "f1", "1\n"), human_switches])
    spec = rig.spec(checks=("test -f f2",), landing=MERGE)
    running = asyncio.create_task(
        wiring.start_run(spec, Policy(max_runs=2), rig.around(agent), run_id=rig.run_id)
    )  # fmt: skip
    await rig.until(ev.ContinuousWaiting)
    (held,) = rig.seen(ev.LandingHeld)
    assert held.cause == rig.seen(ev.ContinuousWaiting)[0].cause == "branch_switched"
    assert "`git switch untildone/it`; or end the run with `untildone stop`" in held.said
    rig.git("switch", "-q", "untildone/it")
    state = await running
    assert (state.stop_reason, len(agent.orders), state.commit_trouble) == ("validation_passed", 2, "")
    assert rig.git("show", "main:f2") == "2\n"


async def test_a_branch_switched_between_two_iterations_buys_none_and_a_stop_says_what_is_open(rig: Rig) -> None:
    agent = ScriptedAgent([writes(rig.repo / "f1", "1\n")])
    spec = rig.spec(tending=Tending(after_iteration="git switch -q main"))
    running = asyncio.create_task(
        wiring.start_run(spec, Policy(max_runs=9), rig.around(agent), run_id=rig.run_id)
    )  # fmt: skip
    await rig.until(ev.ContinuousWaiting)
    await rig.say(ev.StopRequested(by="cli"))
    state = await running
    assert (state.stop_reason, len(agent.orders), state.attempts) == ("stop_requested", 1, 1)
    assert rig.git("branch", "--show-current") == "main\n"


async def test_a_lock_that_stays_stops_the_run_and_what_is_owed_is_committed_when_it_is_gone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A git in the repository holds it, so it is not removed."""
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    holder = subprocess.Popen(["git", "cat-file", "--batch"], cwd=rig.repo, stdin=subprocess.PIPE)
    try:
        lock = rig.repo / ".git" / "index.lock"

        def leaves_it_locked(_: Order) -> Outcome:
            (rig.repo / "f1").write_text("1\n")
            lock.touch()
            return claim()

        agent = ScriptedAgent([leaves_it_locked])
        spec = rig.spec(contract=Contract(checks=commands("test -f f1")))
        running = asyncio.create_task(
            wiring.start_run(spec, Policy(max_runs=1), rig.around(agent), run_id=rig.run_id)
        )  # fmt: skip
        await rig.until(ev.ContinuousWaiting)
        rig.clock.skip(LOCK_PATIENCE)
        state = await running
    finally:
        holder.communicate(b"")
    told = result_json(run_view(state, rig.clock.now()))
    assert (state.stop_reason, state.attempts, told["success"]) == ("surroundings_failed", 1, False)
    assert told["error"].startswith(f"{lock} is in the way (git, process {holder.pid})")
    assert f"rm {lock}" in told["error"]
    lock.unlink()
    state, again = await rig.resume([])
    assert (state.stop_reason, state.verified, again.orders) == ("validation_passed", True, [])
    assert rig.git("show", "--format=", "--name-only", "untildone/it") == "f1\n"


@pytest.mark.parametrize("how", ["no login", "stopped"])
async def test_a_run_that_made_nothing_leaves_no_branch_behind(rig: Rig, how: str) -> None:
    refused = idle(failure=FaultEvidence(api_error_status=401))
    state, _ = await rig.run([refused] if how == "no login" else [idle()], Policy(max_runs=1))
    assert state.stop_reason == ("authentication" if how == "no login" else "max_runs_reached")
    assert rig.git("branch", "--format=%(refname:short)").split() == ["main"]
    assert rig.git("branch", "--show-current") == "main\n"
    asked = [ev.LimitsChanged(by="cli", changes={"max_runs": 2})]
    agent = ScriptedAgent([writes(rig.repo / "f1", "1\n"), idle()])
    await wiring.resume_run(rig.run_id, rig.around(agent), asked=asked)
    assert rig.git("branch", "--show-current") == "untildone/it\n"
    assert rig.git("rev-parse", "untildone/it^", "main").split()[0] == rig.git("rev-parse", "main").strip()
