"""waive, land, rewind, fork, worktrees: with real git, and runs written into the store as a driver would."""

import asyncio
import json
import os
import pwd
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.cli_kit import DONE, LIMITED, SUSPENDED, Runs, Say
from core.night_kit import committed, reported, validation
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
    done = subprocess.run(["git", *args], cwd=folder, capture_output=True, check=True, timeout=240)
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
        told: list[ev.Event] = [
            ev.LandingPrepared(branch=place.branch, base=place.base, start=place.start, history=place.history)
        ]
        for number in range(1, iterations + 1):
            await workspace.begin_iteration(number)
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
                        iteration_num=number, commit=settled.commit, branch=settled.tree.branch, message="work"
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
        "resume it with `untildone resume night`",
    ]
    assert runs.last() == ev.WaiverGiven(by="cli", patterns=("tests/**",), user=pwd.getpwuid(os.getuid()).pw_name)
    told = json.loads(say("waive", "night", "docs/**", "--json").out)
    assert (told["waived"], told["lets_pass"], len(told["blocks"])) == (["docs/**"], [], 1)
    assert runs.state().waived == ("tests/**", "docs/**")
    assert "nothing that was found last is meant by that" in say("waive", "night", "nowhere").out


def test_a_waiver_is_seen_by_status_at_once(say: Say, runs: Runs, project: Path) -> None:
    claimed = completed(1, claim=reported("all", done=True))
    runs.begin(project, started(1), claimed, *refused(SKIP)[2:])
    assert "blocked by  1 problem blocks completion: tests/test_a.py:3 skip added" in say("status", "night").out
    assert "`untildone waive night tests/test_a.py`" in say("status", "night").out
    assert "which checks again first" in say("waive", "night", "tests").out
    assert "in the way" not in say("status", "night").out


def test_a_fork_that_was_not_started_says_how_to_and_keeps_its_name(
    say: Say, runs: Runs, repo: Path, store: Path
) -> None:
    night(runs, repo, store, SUSPENDED)
    first, second = (say("fork", "night", "--from", "1", "--no-start").out for _ in range(2))
    assert "works in" not in first
    place = repo.parent / "project-worktrees"
    assert f"`untildone run 'a goal' --cwd {place}/untildone-night-from-1 --name night-from-1 -m N`" in first
    assert "--name night-from-1-2 -m N`" in second


def test_a_fork_of_a_run_in_a_worktree_lies_beside_the_repository(
    say: Say, runs: Runs, repo: Path, store: Path
) -> None:
    tree = repo.parent / "project-worktrees" / "untildone-night"
    git(repo, "worktree", "add", "-q", "-b", "untildone/night", str(tree))
    night(runs, tree, store, SUSPENDED, repository=str(repo))
    made = json.loads(say("fork", "night", "--from", "1", "--no-start", "--json").out)
    assert Path(made["folder"]) == repo.parent / "project-worktrees" / "untildone-night-from-1"


def test_going_back_names_a_command_that_goes_on(say: Say, runs: Runs, repo: Path, store: Path) -> None:
    night(runs, repo, store, LIMITED)
    assert "`untildone resume night --max-runs 10`" in say("rewind", "night", "1").out


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
    assert said.code == 2
    assert "git switch untildone/night" in said.err
    assert not any(isinstance(record.event, ev.Rewound) for record in runs.read())


def test_a_dry_run_refuses_what_the_real_one_refuses(say: Say, runs: Runs, repo: Path, store: Path) -> None:
    night(runs, repo, store, SUSPENDED)
    git(repo, "switch", "-q", "main")
    said = say("rewind", "night", "1", "--dry-run")
    assert (said.code, said.out) == (2, "")
    assert "git switch untildone/night" in said.err
    git(repo, "branch", "-q", "-D", "untildone/night")
    for dry in ((), ("--dry-run",)):
        said = say("rewind", "night", "1", *dry)
        assert "branch untildone/night, where the run worked, is gone: `untildone fork`" in said.err
        assert "git switch" not in said.err


def test_a_rewind_checks_out_the_branch_of_that_iteration_and_moves_no_other(
    say: Say, runs: Runs, repo: Path, store: Path
) -> None:
    night(runs, repo, store, SUSPENDED, branch_per="iteration")
    branches = git(repo, "for-each-ref", "refs/heads")
    [first] = [name for name in git(repo, "branch", "--format=%(refname:short)").split() if "iteration-1/" in name]
    for number in ("1", "2", "1"):
        assert say("rewind", "night", number).code == 0
        assert f"iteration-{number}/" in git(repo, "branch", "--show-current")
        assert (repo / "a.txt").read_text() == f"iteration {number}\n"
        assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "for-each-ref", "refs/heads") == branches
    said = say("rewind", "night", "0")
    assert "HEAD is detached" in said.err
    assert git(repo, "rev-parse", "HEAD") == git(repo, "rev-parse", "main")
    git(repo, "switch", "-q", first)
    git(repo, "commit", "-q", "--allow-empty", "-m", "by hand")
    git(repo, "switch", "-q", "--detach")
    moved = git(repo, "for-each-ref", "refs/heads")
    assert say("rewind", "night", "1").code == 0
    assert git(repo, "for-each-ref", "refs/heads") == moved, "a branch that somebody moved on is left alone"


def test_without_git_the_commands_that_are_told_work(say: Say, runs: Runs, project: Path, store: Path) -> None:
    (project / "a.txt").write_text("start\n")
    night(runs, project, store, SUSPENDED)
    said = say("rewind", "night", "1")
    assert said.code == 0, said.err
    compares, brings_back = re.findall("`(git --git-dir=[^`]*)`", said.out)
    told = subprocess.run(shlex.split(compares), cwd=project, capture_output=True, check=True, timeout=240)
    assert b"iteration 3" in told.stdout
    subprocess.run(shlex.split(brings_back), cwd=project, check=True, timeout=240)
    assert (project / "a.txt").read_text() == "iteration 3\n"
    [shown] = re.findall("See the changes: `(git --git-dir=[^`]*)`", say("brief", "night").out)
    assert (
        b"work 1" in subprocess.run(shlex.split(shown), cwd=store, capture_output=True, check=True, timeout=240).stdout
    )


# --- fork and worktrees --------------------------------------------------------------------------


def test_forks_of_a_folder_without_git_are_known_and_go_when_they_hold_nothing(
    say: Say, runs: Runs, project: Path, store: Path
) -> None:
    (project / "a.txt").write_text("start\n")
    night(runs, project, store, SUSPENDED)
    assert "only those have worktrees" in say("worktrees", "ls").err
    places = []
    for number in ("1", "2"):
        made = say("fork", "night", "--from", number, "--no-start", "--json")
        places.append(Path(json.loads(made.out)["folder"]))
    (places[1] / "node_modules").mkdir()
    (places[1] / "node_modules/mine.js").write_text("ignored, and nobody else has it\n")
    listed = say("worktrees", "ls").out
    assert f"{places[0]}" in listed
    assert "may go: it holds nothing but what it was made from" in listed
    assert "1 file is not as in what it was made from" in listed
    assert "removed 1 worktree" in say("worktrees", "reclaim", "--yes").out
    assert [place.is_dir() for place in places] == [False, True]
    assert str(places[0]) not in say("worktrees", "ls").out


def test_a_run_whose_worktree_is_gone_is_forked_from_its_repository(
    say: Say, runs: Runs, repo: Path, store: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "trees" / "untildone-night"
    git(repo, "worktree", "add", "-q", "-b", "untildone/night", str(tree))
    night(runs, tree, store, SUSPENDED, repository=str(repo))
    git(repo, "worktree", "remove", "--force", str(tree))
    said = say("rewind", "night", "1")
    assert said.code == 2
    assert "is gone, so there is no tree to put back: `untildone fork night --from 1`" in said.err
    made = say("fork", "night", "--from", "2", "--no-start", "--json")
    assert made.code == 0, made.err
    place = Path(json.loads(made.out)["folder"])
    assert (place / "a.txt").read_text() == "iteration 2\n"
    assert git(place, "config", "branch.untildone/night-from-2.untildone-base") == "main"


def test_finished_work_whose_worktree_is_gone_lands_from_its_repository(
    say: Say, runs: Runs, repo: Path, store: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "trees" / "untildone-night"
    git(repo, "worktree", "add", "-q", "-b", "untildone/night", str(tree))
    spec = {"repository": str(repo), "contract": Contract(checks=commands("true"))}
    head = night(runs, tree, store, iterations=1, **spec)[-1]
    assert isinstance(head, ev.LandingCommitted)
    runs.path.unlink()
    git(repo, "worktree", "remove", "--force", str(tree))
    (repo / "private.txt").write_text("mine\n")
    there = git(repo, "status", "--porcelain")
    passed = ev.IterationValidation(iteration_num=1, passed=True, feedback="", commit=head.commit)
    begun = ev.LandingPrepared(branch="untildone/night", base="main", start=None)
    first = (ev.IterationStarted(iteration_num=1), ev.IterationCompleted(iteration_num=1, cost_usd=0.1))
    runs.begin(tree, begun, *first, head, passed, DONE, status="completed", **spec)
    said = say("land", "night", "--land", "merge")
    assert said.code == 0, said.err + said.out
    assert git(repo, "show", "main:new1.txt") == "new"
    assert (git(repo, "status", "--porcelain"), git(repo, "branch", "--show-current")) == (there, "main")


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
    assert said.code == 2
    assert "is not a git repository" in said.err


def test_the_plan_says_how_it_is_proven_and_where_it_goes(say: Say, repo: Path) -> None:
    plan = say(
        "run", "g", "-m", "1", "--check", "make", "--hidden-check", "psst", "--setup", "npm ci", "--land", "merge",
        "--base", "dev", "--review", "--worktree", "fix:dev", "--dry-run",
    ).out.split("--- rules ---")[0]  # fmt: skip
    for part in (
        "make; hidden check 1", "a fresh checkout of the commit, prepared by `npm ci`", "judge the new code as well",
        "before it counts as done", "merged here into dev (squash)", "on the new branch fix, from dev",
    ):  # fmt: skip
        assert part in plan
    assert "psst" not in plan


def test_a_limit_that_was_typed_reaches_the_fork(say: Say, runs: Runs, repo: Path, store: Path) -> None:
    night(runs, repo, store, SUSPENDED, iterations=1)
    said = say("fork", "night", "--from", "1", "-m", "ten", "--no-start")
    assert "--max-runs must be a whole number" in said.err
    assert runs.state().policy == Policy(max_runs=5, max_cost_usd=2.0)
