"""waive, land, rewind, fork, worktrees: with real git, and runs written into the store as a driver would."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.cli_kit import DONE, SUSPENDED, Runs, Say
from core.night_kit import committed, validation
from core.run_kit import after, completed, now_of, started
from untildone.cli.delivering import refuse_if_nothing_to_land
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.findings import Finding
from untildone.core.policy import Landing, Policy, RunSpec
from untildone.errors import UsageError
from untildone.git.workspace import open_workspace

RUN = "abc123def456"


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, capture_output=True, check=True, timeout=30)
    return os.fsdecode(done.stdout).rstrip("\n")


@pytest.fixture
def repo(project: Path) -> Path:
    git(project, "init", "-q", "-b", "main")
    git(project, "config", "user.name", "Ada")
    git(project, "config", "user.email", "ada@example.org")
    (project / "a.txt").write_text("start\n")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "first")
    return project


def night(runs: Runs, repo: Path, store: Path, *last: ev.Event, iterations: int = 3, **spec: Any) -> list[ev.Event]:
    """A run whose iterations each wrote a file and changed another, with the snapshots a driver leaves."""

    async def work() -> list[ev.Event]:
        wanted = RunSpec(goal="a goal", cwd=str(repo), name="night", **spec)
        workspace = await open_workspace(wanted, run_id=RUN, private=store / "folders")
        place = await workspace.prepare()
        told: list[ev.Event] = [ev.LandingPrepared(branch=place.branch, base=place.base, start=place.start)]
        for number in range(1, iterations + 1):
            before = await workspace.observe()
            (repo / "a.txt").write_text(f"iteration {number}\n")
            (repo / f"new{number}.txt").write_text("new\n")
            settled = await workspace.settle(before, iteration_num=number, message=f"work {number}")
            told += [
                ev.IterationStarted(iteration_num=number),
                ev.IterationCompleted(iteration_num=number, cost_usd=0.1),
            ]
            if settled.commit:
                told.append(
                    ev.LandingCommitted(
                        iteration_num=number, commit=settled.commit, branch=place.branch, message="work"
                    )
                )
        return told

    events = [*asyncio.run(work()), *last]
    status = "completed" if last and isinstance(last[-1], ev.ContinuousCompleted) else "suspended"
    runs.begin(repo, *events, status=status, **spec)
    return events


# --- waive ---------------------------------------------------------------------------------------

SKIP = Finding(kind="skip_added", path="tests/test_a.py", line=3, text="@skip", blocking=True)
CI = Finding(kind="ci_changed", path=".github/workflows/ci.yml", line=1, blocking=True)


def refused(*findings: Finding) -> tuple[ev.Event, ...]:
    return (
        ev.IterationStarted(iteration_num=1),
        ev.IterationCompleted(iteration_num=1, cost_usd=0.1),
        ev.IterationValidation(iteration_num=1, passed=False, feedback="no", findings=findings),
        SUSPENDED,
    )


def test_a_waiver_is_recorded_and_says_what_it_lets_pass(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *refused(SKIP, CI))
    said = say("waive", "night", "tests/**")
    assert said.code == 0
    assert said.out.splitlines() == [
        "lets pass  tests/test_a.py:3: skip added @skip",
        "blocks     .github/workflows/ci.yml:1: ci changed",
        "night: tests/** may change",
    ]
    assert runs.last() == ev.WaiverGiven(by="cli", patterns=("tests/**",))
    told = json.loads(say("waive", "night", "docs/**", "--json").out)
    assert (told["waived"], told["lets_pass"], len(told["blocks"])) == (["docs/**"], [], 2)
    assert runs.state().waived == ("tests/**", "docs/**")
    assert "nothing that was found last is meant by that" in say("waive", "night", "nowhere").out


def test_waivers_that_mean_nothing_are_refused(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *refused(SKIP))
    assert "an empty pattern" in say("waive", "night", " ").err
    assert "Missing argument" in say("waive", "night").err
    runs.begin(project, DONE, name="over", run_id="ffff23def456", status="completed")
    assert "over is done" in say("waive", "over", "x").err


# --- land ----------------------------------------------------------------------------------------


def test_what_cannot_be_landed_is_refused_with_a_way_out(say: Say, runs: Runs, repo: Path, store: Path) -> None:
    night(runs, repo, store, SUSPENDED)
    said = say("land", "night")
    assert (said.code, said.err) == (
        2,
        "untildone: night lands nothing (--land commit): say `untildone land night --land merge`, or --land pr\n",
    )
    assert "night is not done, so there is nothing to land yet" in say("land", "night", "--land", "merge").err
    runs.begin(repo, SUSPENDED, name="idle", run_id="eeee23def456", landing=Landing(land="merge"))
    assert "idle has committed nothing" in say("land", "idle").err


def test_a_landing_that_failed_can_be_tried_again_and_a_rejected_one_is_the_agents_turn() -> None:
    done = (committed(1, "c0ffee"), validation(1, passed=True, commit="c0ffee"))
    begun = (started(1), completed(1), *done, ev.LandingBegun(commit="c0ffee", because="validation_passed"))
    given_up = (ev.LandingGaveUp(reason="403"), ev.ContinuousSuspended(stop_reason="landing_failed"))
    wanted = {"checks": ("make",), "landing": Landing(land="pr")}
    state = after(*begun, *given_up, **wanted)
    refuse_if_nothing_to_land("it", state, [], now_of(state))
    rejected = after(*begun, ev.LandingRejected(cause="ci", detail="red"), SUSPENDED, **wanted)
    with pytest.raises(UsageError, match="untildone resume it"):
        refuse_if_nothing_to_land("it", rejected, [], now_of(rejected))


def proven(commit: str) -> list[ev.Event]:
    return [
        ev.IterationValidation(iteration_num=1, passed=True, commit=commit, room="clean"),
        ev.ContinuousCompleted(stop_reason="validation_passed", verified=True),
    ]


def test_what_was_only_committed_can_be_merged_afterwards(say: Say, runs: Runs, repo: Path, store: Path) -> None:
    contract = Contract(checks=commands("true"), guard="off")
    events = night(runs, repo, store, iterations=1, contract=contract)
    commit = next(event.commit for event in events if isinstance(event, ev.LandingCommitted))
    runs.begin(repo, *events, *proven(commit), name="done", run_id=RUN[::-1], status="completed", contract=contract)
    said = say("land", "done", "--land", "merge", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["exit_reason"] == "validation_passed"
    assert git(repo, "show", "main:new1.txt") == "new"
    assert isinstance(runs.last(RUN[::-1]), ev.ContinuousCompleted)
    assert "is in main already" in say("land", "done").err
    status = say("status", "done").out
    assert "landed in main" in status


# --- rewind --------------------------------------------------------------------------------------


def test_rewind_says_first_and_then_does_it(say: Say, runs: Runs, repo: Path, store: Path) -> None:
    night(runs, repo, store, SUSPENDED)
    (repo / "mine.txt").write_text("mine\n")
    plan = say("rewind", "night", "1", "--dry-run").out
    assert sorted(plan.splitlines()) == ["changes a.txt", "removes mine.txt", "removes new2.txt", "removes new3.txt"]
    assert (repo / "new3.txt").exists()
    assert not any(isinstance(record.event, ev.Rewound) for record in runs.read())
    said = say("rewind", "night", "1")
    assert said.code == 0, said.err
    assert sorted(path.name for path in repo.glob("*.txt")) == ["a.txt", "new1.txt"]
    assert (repo / "a.txt").read_text() == "iteration 1\n"
    event = runs.last()
    assert isinstance(event, ev.Rewound)
    assert (event.by, event.iteration_num) == ("cli", 1)
    assert git(repo, "show", f"{event.saved}:mine.txt") == "mine"
    assert event.saved in said.out
    assert "untildone resume night" in said.out
    told = json.loads(say("rewind", "night", "3", "--json").out)
    assert (told["to"], (repo / "a.txt").read_text()) == (3, "iteration 3\n")


def test_rewind_refuses_what_there_is_not(say: Say, runs: Runs, repo: Path, store: Path) -> None:
    night(runs, repo, store, SUSPENDED)
    assert "night has had 3 iterations" in say("rewind", "night", "4").err
    assert say("rewind", "night", "-1").code == 2
    git(repo, "switch", "-q", "main")
    said = say("rewind", "night", "1")
    assert said.code == 1
    assert "git switch untildone/night" in said.err
    assert not any(isinstance(record.event, ev.Rewound) for record in runs.read())


# --- fork and worktrees --------------------------------------------------------------------------


def test_a_fork_has_the_tree_of_that_iteration_on_a_branch_of_its_own(
    say: Say, runs: Runs, repo: Path, store: Path, tmp_path: Path
) -> None:
    night(runs, repo, store, SUSPENDED)
    head = git(repo, "rev-parse", "HEAD")
    said = say("fork", "night", "--from", "2", "--no-start", "--worktree-base-dir", str(tmp_path / "trees"), "--json")
    assert said.code == 0, said.err
    place = Path(json.loads(said.out)["folder"])
    assert place.parent == tmp_path / "trees"
    assert sorted(path.name for path in place.glob("*.txt")) == ["a.txt", "new1.txt", "new2.txt"]
    assert git(place, "branch", "--show-current") == "untildone/night-from-2"
    assert (git(repo, "rev-parse", "HEAD"), git(repo, "status", "--porcelain")) == (head, "")
    assert "nothing would limit the new run" in say("fork", "night", "--from", "1", "-m", "0", "--max-cost", "0").err


def test_worktrees_are_listed_and_only_what_may_go_goes(
    say: Say, runs: Runs, repo: Path, store: Path, tmp_path: Path
) -> None:
    night(runs, repo, store, SUSPENDED)
    base = ("--worktree-base-dir", str(tmp_path / "trees"))
    for number in ("0", "2"):
        assert say("fork", "night", "--from", number, "--no-start", *base).code == 0
    listed = {tree["branch"]: tree for tree in json.loads(say("worktrees", "ls", "--json").out)}
    assert {branch: tree["reclaimable"] for branch, tree in listed.items()} == {
        "untildone/night": False,
        "untildone/night-from-0": True,
        "untildone/night-from-2": False,
    }
    assert "2 commits are not in main" in say("worktrees", "ls").out
    assert say("run", "--list-worktrees").out == say("worktrees", "ls").out
    asked = say("worktrees", "reclaim").out
    assert "nothing was removed: --yes does it" in asked
    assert (tmp_path / "trees" / "untildone-night-from-0").is_dir()
    assert "removed 1 worktree" in say("worktrees", "reclaim", "--yes").out
    assert not (tmp_path / "trees" / "untildone-night-from-0").exists()
    assert (tmp_path / "trees" / "untildone-night-from-2").is_dir()
    assert git(repo, "rev-parse", "-q", "--verify", "untildone/night-from-0")


def test_a_folder_without_git_has_no_worktrees(say: Say, project: Path) -> None:
    assert "is in no git repository" in say("worktrees", "ls").err
    said = say("run", "a goal", "-m", "1", "--worktree")
    assert said.code == 1
    assert "is not a git repository" in said.err


def test_a_goal_after_worktree_is_not_taken_for_a_branch(say: Say, repo: Path) -> None:
    assert "put the goal before it" in say("run", "--worktree", "make it work", "-m", "1").err
    assert "put the goal before it" in say("run", "g", "--worktree", "make it work", "-m", "1").err


def test_the_plan_says_how_it_is_proven_and_where_it_goes(say: Say, repo: Path) -> None:
    plan = say(
        "run", "g", "-m", "1", "--check", "make", "--hidden-check", "psst", "--setup", "npm ci", "--land", "merge",
        "--base", "dev", "--review", "--worktree", "fix:dev", "--dry-run",
    ).out.split("--- rules ---")[0]  # fmt: skip
    for part in (
        "make; hidden check 1", "a fresh checkout of the commit, prepared by `npm ci`", "changed CI block done",
        "before it counts as done", "merged here into dev (squash)", "on the new branch fix, from dev",
    ):  # fmt: skip
        assert part in plan
    assert "psst" not in plan


def test_a_limit_that_was_typed_reaches_the_fork(say: Say, runs: Runs, repo: Path, store: Path) -> None:
    night(runs, repo, store, SUSPENDED, iterations=1)
    said = say("fork", "night", "--from", "1", "-m", "ten", "--no-start")
    assert "--max-runs must be a whole number" in said.err
    assert runs.state().policy == Policy(max_runs=5, max_cost_usd=2.0)
