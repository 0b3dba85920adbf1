"""Landing by merge, as a whole run: done means arrived, and what keeps work from arriving goes back to the agent."""

import asyncio
import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bell import bell
from engine.rig import Rig, claim, idle, writes
from git.landing_kit import files_of, work_on
from patience import soon
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.lines import event_line
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Landing, Policy
from untildone.core.state import LoopState
from untildone.git.merging import Work
from untildone.git.queue import Queue

pytestmark = pytest.mark.anyio

MERGE = Landing(land="merge")
Told = ev.LandingBegun | ev.ContinuousWaiting
GOAL = "make it work"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def subjects(rig: Rig, ref: str = "work") -> list[str]:
    return rig.git("log", "--first-parent", "--format=%s", ref).splitlines()


def meanwhile(rig: Rig, files: dict[str, str], then: Callable[[Order], Outcome]) -> Callable[[Order], Outcome]:
    """Somebody commits on the base while the agent works."""

    def act(order: Order) -> Outcome:
        work_on(rig.repo, "work", files, message="meanwhile")
        return then(order)

    return act


def merges_and(rig: Rig, path: str, text: str) -> Callable[[Order], Outcome]:
    """The agent does as it is told: merges the base, resolves, commits."""

    def act(_: Order) -> Outcome:
        subprocess.run(["git", "merge", "-q", "work"], cwd=rig.repo, check=False, capture_output=True)
        (rig.repo / path).write_text(text)
        rig.git("add", "-A")
        rig.git("commit", "-q", "-m", "bring both together")
        return claim()

    return act


async def run(rig: Rig, *steps: Any, check: str = "true", **changes: Any) -> tuple[LoopState, list[str]]:
    """The state at the end, and all prompts."""
    contract = changes.pop("contract", Contract(checks=commands(check), guard="off"))
    state, agent = await rig.run(steps, Policy(max_runs=10), **{"landing": MERGE, "contract": contract, **changes})
    return state, [order.prompt for order in agent.orders]


async def test_done_means_arrived(rig: Rig) -> None:
    start = rig.git("rev-parse", "HEAD").strip()
    first = writes(rig.repo / "b.txt", "b\n")
    state, _ = await run(rig, first, writes(rig.repo / "c.txt", "c\n", claim()), check="test -f c.txt")
    assert (state.stop_reason, state.verified, state.phase) == ("validation_passed", True, "completed")
    (merged,) = rig.seen(ev.LandingMerged)
    assert merged.merged == rig.git("rev-parse", "work").strip()
    assert (merged.commit, merged.base, merged.strategy) == (state.last_commit, "work", "squash")
    assert subjects(rig) == [GOAL, "first"]
    assert rig.git("show", "-s", "--format=%P", "work").strip() == start
    assert files_of(rig.repo, "work") == {"a.txt", "b.txt", "c.txt"}
    assert rig.git("branch", "--show-current").strip() == "work"
    assert rig.git("status", "--porcelain") == ""
    kinds = [type(record.event) for record in rig.records]
    assert kinds.index(ev.LandingBegun) < kinds.index(ev.LandingMerged) < kinds.index(ev.ContinuousCompleted)


async def test_who_waits_for_its_turn_says_for_whom(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("untildone.git.lander.NOTICEABLE", 0.02)
    line = rig.repo / ".git" / "untildone" / "queue" / "work"
    line.mkdir(parents=True)
    with (line / "turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        other = Work(run_id="r2", commit="c" * 40, message="m", strategy="squash", name="importer")
        with Queue(rig.repo / ".git", "work").standing(other):
            running = asyncio.ensure_future(run(rig, writes(rig.repo / "b.txt", "b\n", claim())))
            await rig.until(ev.ContinuousWaiting)
    state, _ = await running
    assert state.stop_reason == "validation_passed"
    told = [event_line(record) for record in rig.records if isinstance(record.event, Told)]
    short = (state.last_commit or "")[:8]
    assert told == [
        f"landing {short}",
        "waiting for its turn to land: 1 before us (importer)",
        f"landing {short}",
    ]


async def test_a_conflict_goes_to_the_agent_and_is_mended(rig: Rig) -> None:
    mine = writes(rig.repo / "a.txt", "mine\n", claim())
    state, prompts = await run(
        rig, meanwhile(rig, {"a.txt": "theirs\n"}, mine), merges_and(rig, "a.txt", "both\n"), check="test -f a.txt"
    )
    assert state.stop_reason == "validation_passed"
    assert [event.cause for event in rig.seen(ev.LandingRejected)] == ["conflict"]
    assert "git merge work" in prompts[1]
    assert "a.txt" in prompts[1]
    assert rig.git("show", "work:a.txt") == "both\n"
    assert subjects(rig) == [GOAL, "meanwhile", "first"]


async def test_a_red_merged_tree_goes_to_the_agent_and_is_mended(rig: Rig) -> None:
    """Green alone, red together."""
    check = "! { test -f x.txt && test -f y.txt; }"
    x = writes(rig.repo / "x.txt", "x\n", claim())

    def without_x(order: Order) -> Outcome:
        (rig.repo / "x.txt").unlink()
        return writes(rig.repo / "z.txt", "z\n", claim())(order)

    state, prompts = await run(rig, meanwhile(rig, {"y.txt": "y\n"}, x), without_x, check=check)
    assert state.stop_reason == "validation_passed"
    assert [event.cause for event in rig.seen(ev.LandingRejected)] == ["checks"]
    assert "merged with the newest work" in prompts[1]
    assert check in prompts[1]
    assert files_of(rig.repo, "work") == {"a.txt", "y.txt", "z.txt"}


async def test_who_cannot_mend_it_is_not_asked_for_ever(rig: Rig) -> None:
    mine = meanwhile(rig, {"a.txt": "theirs\n"}, writes(rig.repo / "a.txt", "mine\n", claim()))
    state, prompts = await run(rig, mine, claim(), claim(), landing=Landing(land="merge", fixes=1))
    assert state.stop_reason == "landing_failed"
    assert "conflicts with work in a.txt (after 1 try to fix it)" in state.stop_detail
    assert len(prompts) == 2
    assert subjects(rig) == ["meanwhile", "first"]
    assert state.arrival.landed is None


MOVES_THE_BASE = """
blob=$(echo $1 | git hash-object -w --stdin)
tree=$(printf '%s\\n100644 blob %s\\t%s\\n' "$(git ls-tree work)" $blob $1 | git mktree)
git update-ref refs/heads/work $(git -c user.name=B -c user.email=b@b commit-tree $tree -p work -m "human $2")
"""


async def test_a_red_base_is_reverted_and_the_run_told(rig: Rig) -> None:
    """A base that never stands still is landed on unseen; what is red then is taken back."""
    moves = iter(["m1.txt", "m2.txt", "y.txt"])

    def move(_: str) -> str:
        if name := next(moves, ""):
            number = str(["m1.txt", "m2.txt", "y.txt"].index(name) + 1)
            subprocess.run(["sh", "-c", MOVES_THE_BASE, "sh", name, number], cwd=rig.repo, check=True)
        return ""

    def without_x(order: Order) -> Outcome:
        (rig.repo / "x.txt").unlink()
        return writes(rig.repo / "z.txt", "z\n", claim())(order)

    x = writes(rig.repo / "x.txt", "x\n", claim())
    with bell(move) as base:
        is_merged = '[ "$(git log -1 --format=%s)" = "make it work" ]'
        check = f"! {{ test -f x.txt && test -f y.txt; }} && {{ ! {is_merged} || {base.ring()}; }}"
        state, prompts = await run(rig, x, without_x, check=check)
    assert state.stop_reason == "validation_passed"
    (reverted,) = rig.seen(ev.LandingReverted)
    assert subjects(rig) == [GOAL, f'Revert "{GOAL}"', GOAL, "human 3", "human 2", "human 1", "first"]
    assert rig.git("rev-parse", "work~1").strip() == reverted.revert
    assert "the checks fail" in prompts[1]
    assert files_of(rig.repo, "work") == {"a.txt", "m1.txt", "m2.txt", "y.txt", "z.txt"}
    assert len(rig.seen(ev.LandingMerged)) == 1, "only what stays has arrived"


async def test_a_stop_calls_it_off_and_the_next_driver_lands(rig: Rig) -> None:
    is_merged = f"[ \"$(git log -1 --format=%s)\" = '{GOAL}' ]"
    old = rig.git("rev-parse", "work")
    answers = iter(["wait"])
    with bell(lambda _: next(answers, "go")) as looking:
        slow = f"! {is_merged} || [ $({looking.ring()}) = go ] || sleep 600"
        task = asyncio.ensure_future(run(rig, writes(rig.repo / "b.txt", "b\n", claim()), check=slow))
        await soon(lambda: looking.rung)
        await rig.say(ev.StopRequested(by="u"))
        state, _ = await task
        assert state.stop_reason == "stop_requested"
        assert rig.git("rev-parse", "work") == old
        assert rig.seen(ev.LandingMerged) == []
        state, agent = await rig.resume([])
    assert (state.stop_reason, agent.orders) == ("validation_passed", [])
    assert subjects(rig) == [GOAL, "first"]
    assert len(rig.seen(ev.LandingMerged)) == 1


@pytest.mark.parametrize(
    "strategy", ["squash", *(pytest.param(rare, marks=pytest.mark.soak) for rare in ("merge", "rebase"))]
)
async def test_every_iteration_lands(rig: Rig, strategy: str) -> None:
    """The run goes on from its own branch, and changes the same lines again and again."""
    steps = [writes(rig.repo / "a.txt", f"{n}\n", idle(f"Step {n}")) for n in range(1)]
    last = meanwhile(rig, {"other.txt": "o\n"}, writes(rig.repo / "a.txt", "3\n", claim()))
    landing = Landing(land="merge", every="iteration", strategy=strategy)  # type: ignore[arg-type]
    state, prompts = await run(rig, *steps, last, landing=landing, check="test -f a.txt")
    assert (state.stop_reason, len(prompts)) == ("validation_passed", 2)
    assert [event.base for event in rig.seen(ev.LandingMerged)] == ["work"] * 2
    assert len(subjects(rig)) == len({*subjects(rig)}) == 4, "each piece has words of its own"
    assert rig.git("show", "work:a.txt") == "3\n"
    assert rig.seen(ev.LandingRejected) == []


@pytest.mark.soak
async def test_every_iteration_lands_from_a_branch_of_its_own(rig: Rig) -> None:
    steps = [writes(rig.repo / "a.txt", f"{n}\n", idle(f"Step {n}")) for n in range(1)]
    last = writes(rig.repo / "a.txt", "2\n", claim())
    landing = Landing(land="merge", every="iteration")
    state, _ = await run(rig, *steps, last, landing=landing, check="test -f a.txt", branch_per="iteration")
    assert state.stop_reason == "validation_passed"
    assert len(subjects(rig)) == 3
    assert rig.git("show", "work:a.txt") == "2\n"


async def test_what_the_user_has_lying_there_is_in_the_way_till_it_is_not(rig: Rig) -> None:
    """The base is checked out in the user's own tree, with changes in the very file."""
    users = rig.tmp / "users"

    def act(_: Order) -> Outcome:
        rig.git("worktree", "add", "-q", str(users), "work")
        (users / "a.txt").write_text("in the middle of a thought\n")
        (rig.repo / "a.txt").write_text("of the run\n")
        return claim()

    state, _ = await run(rig, act)
    assert state.stop_reason == "landing_failed"
    assert str(users) in state.stop_detail
    assert "a.txt" in state.stop_detail
    assert (users / "a.txt").read_text() == "in the middle of a thought\n"
    assert subjects(rig) == ["first"]
    subprocess.run(["git", "checkout", "-q", "a.txt"], cwd=users, check=True)
    state, agent = await rig.resume([])
    assert (state.stop_reason, agent.orders) == ("validation_passed", [])
    assert (users / "a.txt").read_text() == "of the run\n"


async def test_checks_that_run_in_the_tree_see_the_base_before_it_lands(rig: Rig) -> None:
    contract = Contract(checks=commands("test -f b.txt"), guard="off", room="tree")
    mine = meanwhile(rig, {"other.txt": "o\n"}, writes(rig.repo / "b.txt", "b\n", claim()))
    state, prompts = await run(rig, mine, merges_and(rig, "c.txt", "c\n"), contract=contract)
    assert state.stop_reason == "validation_passed"
    assert "only in your own tree" in prompts[1]
    assert files_of(rig.repo, "work") == {"a.txt", "b.txt", "c.txt", "other.txt"}


@pytest.mark.soak
async def test_three_runs_land_at_once(tmp_path: Path) -> None:
    """Each in a worktree of its own, all on one base, with checks of their own."""
    main = Rig(tmp_path)
    rigs = []
    for name in "abc":
        (tmp_path / name).mkdir()
        one = Rig(tmp_path / name, run_id=f"run-{name}")
        place = tmp_path / f"tree-{name}"
        main.git("worktree", "add", "-q", "-b", f"branch-{name}", str(place))
        one.repo = place
        rigs.append(one)
    main.git("switch", "-q", "--detach")
    landing = Landing(land="merge", base="work")
    states = await asyncio.gather(
        *(
            run(
                one,
                writes(one.repo / f"{one.run_id}.txt", "x\n", claim()),
                check=f"test -f {one.run_id}.txt",
                landing=landing,
            )
            for one in rigs
        )
    )
    assert [state.stop_reason for state, _ in states] == ["validation_passed"] * 3
    assert files_of(main.repo, "work") == {"a.txt", "run-a.txt", "run-b.txt", "run-c.txt"}
    assert subjects(main) == [GOAL] * 3 + ["first"]
    assert main.git("fsck", "--no-dangling") == ""
