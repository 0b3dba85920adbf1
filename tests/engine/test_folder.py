"""Whose folder it is: taken up only if it is free, left alone by a landing, never committed to a strange branch."""

import pytest

from core.run_kit import with_contract
from engine.rig import Rig, claim, idle, writes
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent
from untildone.core import events as ev
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Landing, Policy
from untildone.errors import DirtyWorkspace

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

    steps = [writes(rig.repo / "f1", "1\n"), strays, claim(), comes_back]
    spec = with_contract({"checks": ("true",), "landing": MERGE})
    bases = []

    def looks(step):
        def act(order: Order) -> Outcome:
            bases.append(rig.git("rev-parse", "main"))
            return step(order) if callable(step) else step

        return act

    state, agent = await rig.run([looks(step) for step in steps], **spec)
    assert state.phase == "completed"
    assert bases == [base] * 4
    [failed, *_] = rig.seen(ev.LandingFailed)
    assert failed.reason.startswith("the folder is on branch main now, this run's commits go to branch untildone/it")
    assert "git switch untildone/it" in agent.orders[2].prompt
    assert [event.passed for event in rig.seen(ev.IterationValidation)] == [False, False, True]
    assert rig.git("ls-tree", "--name-only", "main").split() == ["a.txt", "f1", "f2"]
