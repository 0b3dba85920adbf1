"""untildone as a library, on a scripted agent: no key, no Claude."""

import itertools
import subprocess
from pathlib import Path

import pytest

from untildone import Outcome, Policy, Reason, Report, ScriptedAgent, UntildoneError, run


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
