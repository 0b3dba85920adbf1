"""untildone as a library, on a scripted agent: no key, no Claude."""

import itertools
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from patience import PATIENCE
from untildone import (
    CheckSpec,
    Contract,
    Landing,
    Outcome,
    Policy,
    Reason,
    Report,
    Review,
    ScriptedAgent,
    UntildoneError,
    run,
)
from untildone.core.events import ContinuousStarted, Record


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "work", "."], cwd=folder, check=True)
    return folder


def _claim() -> Outcome:
    return Outcome(final_text="done", report=Report(status="COMPLETE", exit_signal=True), cost_usd=0.25)


def test_a_goal_a_policy_and_an_honest_result(repo: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    def work(_: object) -> Outcome:
        (repo / "b.txt").write_text("b")
        return _claim()

    result = run(
        "make b.txt",
        Policy(max_runs=5),
        cwd=repo,
        checks=["test -f b.txt"],
        agent=ScriptedAgent([work]),
        store=tmp_path / "store",
        on_event=lambda record: seen.append(record.event.TYPE),
    )
    assert (result.reason, result.success, result.verified, result.exit_code) == (
        Reason.VALIDATION_PASSED,
        True,
        True,
        0,
    )
    assert (result.attempts, result.cost_usd) == (1, 0.25)
    assert result.commit is not None
    assert seen[0] == "continuous.started"
    assert seen[-1] == "continuous.completed"


def test_a_broken_observer_does_not_break_the_run(repo: Path, tmp_path: Path) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    result = run(
        "x", Policy(max_runs=5), cwd=repo, agent=ScriptedAgent(itertools.repeat(_claim())), store=tmp_path / "s",
        on_event=broken,
    )  # fmt: skip
    assert result.success


@pytest.mark.parametrize(("goal", "policy", "says"), [(" ", Policy(max_runs=1), "empty"), ("x", Policy(), "limit")])
def test_wrong_use_is_said_in_one_line(goal: str, policy: Policy, says: str) -> None:
    with pytest.raises(UntildoneError, match=says):
        run(goal, policy)


def test_the_next_goal_starts_when_one_is_reached(repo: Path, tmp_path: Path) -> None:
    begun: list[tuple[str, float | None]] = []

    def note(record: Record) -> None:
        if isinstance(record.event, ContinuousStarted):
            begun.append((record.event.goal, record.event.policy.max_cost_usd))

    (tmp_path / "second.md").write_text("The second goal\n")
    (tmp_path / "third.md").write_text("The third goal\n")
    result = run(
        "The first goal",
        Policy(max_runs=5, max_cost_usd=2.0),
        cwd=repo,
        checks=["true"],
        agent=lambda: ScriptedAgent([_claim()]),
        store=tmp_path / "s",
        then=[tmp_path / "second.md", str(tmp_path / "third.md")],
        on_event=note,
    )
    assert begun == [("The first goal", 2.0), ("The second goal", 1.75), ("The third goal", 1.5)]
    assert (result.success, result.attempts) == (True, 1)


def test_a_goal_that_is_not_reached_starts_nothing(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "second.md").write_text("The second goal\n")
    goals: list[str] = []
    result = run(
        "The first goal",
        Policy(max_runs=1),
        cwd=repo,
        checks=["false"],
        agent=lambda: ScriptedAgent(itertools.repeat(_claim())),
        store=tmp_path / "s",
        then=[tmp_path / "second.md"],
        on_event=lambda r: goals.append(r.event.goal) if isinstance(r.event, ContinuousStarted) else None,
    )
    assert (result.success, goals) == (False, ["The first goal"])


def test_a_chain_that_cannot_be_is_said_before_anything_starts(repo: Path, tmp_path: Path) -> None:
    store, goal = tmp_path / "s", tmp_path / "second.md"
    with pytest.raises(UntildoneError, match=r"second\.md cannot be read"):
        run("x", Policy(max_runs=1), cwd=repo, store=store, then=[goal])
    goal.write_text("The second goal\n")
    with pytest.raises(UntildoneError, match="makes an agent for each goal"):
        run("x", Policy(max_runs=1), cwd=repo, store=store, then=[goal], agent=ScriptedAgent([_claim()]))
    assert not store.exists()


def test_two_stores_do_not_work_in_one_folder(repo: Path, tmp_path: Path) -> None:
    second: list[str] = []

    def start_another(record: Record) -> None:
        if isinstance(record.event, ContinuousStarted):
            # In a thread: there is an event loop here already.
            with ThreadPoolExecutor() as elsewhere:
                other = elsewhere.submit(
                    run, "y", Policy(max_runs=1), cwd=repo, store=tmp_path / "t", agent=ScriptedAgent([_claim()])
                )
                second.append(str(other.exception(timeout=PATIENCE)))

    result = run(
        "x", Policy(max_runs=1), cwd=repo, checks=["true"], store=tmp_path / "s", agent=ScriptedAgent([_claim()]),
        on_event=start_another,
    )  # fmt: skip
    assert result.success
    assert len(second) == 1
    assert f"untildone stop {result.run_id} --store {tmp_path / 's'}" in second[0]


def test_proof_review_and_landing_can_be_said_too(repo: Path, tmp_path: Path) -> None:
    (repo / "a.txt").write_text("a")
    subprocess.run(["git", "add", "."], cwd=repo, check=True)
    identity = ["-c", "user.name=A", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, "commit", "-qm", "first"], cwd=repo, check=True)

    def work(_: object) -> Outcome:
        (repo / "b.txt").write_text("b")
        return _claim()

    reviewer = ScriptedAgent([Outcome(final_text="REVIEW: CHANGES"), Outcome(final_text="Fine.\n\nREVIEW: APPROVE")])
    result = run(
        "make b.txt",
        Policy(max_runs=5),
        cwd=repo,
        checks=["test -f b.txt", CheckSpec(name="again", command="test -s b.txt")],
        contract=Contract(checks=(CheckSpec(name="first", command="test -f a.txt"),), fail_to_pass=False),
        landing=Landing(land="merge"),
        review=Review(when="landing"),
        agent=ScriptedAgent([work, _claim()]),
        reviewer=reviewer,
        store=tmp_path / "s",
    )
    assert (result.success, result.verified, result.attempts, len(reviewer.orders)) == (True, True, 2, 2)
    assert result.landed is not None
    assert result.pull_request is None
    there = subprocess.run(["git", "show", "work:b.txt"], cwd=repo, check=True, capture_output=True, text=True)
    assert there.stdout == "b"


def test_a_contract_that_cannot_be_is_refused_before_anything_starts(repo: Path, tmp_path: Path) -> None:
    store = tmp_path / "s"
    twins = Contract(checks=(CheckSpec(name="tests", command="make"),))
    with pytest.raises(UntildoneError, match="two different checks called 'tests'"):
        run("x", Policy(max_runs=1), cwd=repo, store=store, contract=twins, checks=[CheckSpec(name="tests")])
    with pytest.raises(UntildoneError, match="--share must be inside of the project, not '/etc'"):
        run("x", Policy(max_runs=1), cwd=repo, store=store, contract=Contract(share=("/etc",)))
    with pytest.raises(UntildoneError, match="nothing to review"):
        run("x", Policy(max_runs=1), cwd=repo, store=store, reviewer=ScriptedAgent([]))
    assert not store.exists()
