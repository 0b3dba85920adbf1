from pathlib import Path

import pytest

from cli.cli_kit import DONE, FIRST, SUSPENDED, Runs, Say
from untildone.core.events import LimitsChanged, MessageReceived, ResetRequested, SteeringRefused
from untildone.core.policy import Policy

OPERATOR_COMMANDS = [
    ["stop"], ["pause"], ["skip-wait"], ["resume"], ["message", "hello"],
    ["limits"], ["limits", "-m", "9"], ["reset"], ["config", "trust"], ["run", "x", "-m", "1"], ["rehearse"],
    ["waive", "night", "x"], ["land"], ["rewind", "night", "0"], ["fork", "night", "--from", "0"],
    ["worktrees", "reclaim"],
]  # fmt: skip


@pytest.mark.parametrize("argv", OPERATOR_COMMANDS, ids=" ".join)
def test_an_agent_cannot_steer_its_own_run(
    say: Say, runs: Runs, project: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    (project / "untildone.toml").write_text("")
    before = runs.read()
    monkeypatch.setenv("UNTILDONE_RUN", "abc123def456")
    said = say(*argv)
    assert said.code == 5
    assert said.err.startswith("untildone: an agent may not")
    *unchanged, tried = runs.read()
    assert unchanged == before
    assert isinstance(tried.event, SteeringRefused)


def test_what_does_not_run_cannot_be_stopped_or_paused(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, SUSPENDED)
    for command in ("stop", "pause", "skip-wait"):
        said = say(command, "night")
        assert said.code == 2
        assert "night is not running" in said.err
    assert runs.last() == SUSPENDED


def test_a_message_waits_for_the_next_prompt(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, SUSPENDED)
    assert say("message", "night", "use tabs").out == "night reads it in its next prompt\n"
    assert runs.last() == MessageReceived(by="cli", content="use tabs")
    assert say("message", "the newest run here").code == 0
    assert runs.last() == MessageReceived(by="cli", content="the newest run here")


def test_limits_are_shown_and_changed(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    shown = say("limits").out
    assert "max_runs         1 of 5" in shown
    assert "max_cost_usd     $0.25 of $2.00" in shown
    assert "max_tokens" not in shown
    said = say("limits", "night", "-m", "9", "--max-cost", "0", "--max-duration", "2h")
    assert said.out == "night: max_runs = 9, max_cost_usd = no limit, max_duration = 2h\n"
    assert runs.last() == LimitsChanged(by="cli", changes={"max_runs": 9, "max_cost_usd": None, "max_duration": 7200.0})
    assert "1 of 9" in say("limits").out


def test_the_environment_does_not_change_limits(
    say: Say, runs: Runs, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.begin(project, SUSPENDED)
    monkeypatch.setenv("UNTILDONE_MAX_RUNS", "99")
    say("limits", "--max-cost", "3")
    assert runs.last() == LimitsChanged(by="cli", changes={"max_cost_usd": 3.0})


@pytest.mark.parametrize(
    ("flags", "cleared", "event"),
    [
        ([], "breaker", ResetRequested(by="cli")),
        (["--session"], "session", ResetRequested(by="cli", circuit=False, session=True)),
        (["--history", "--circuit"], "breaker, streaks and fault counters", ResetRequested(by="cli", history=True)),
        (
            ["--all"],
            "breaker, session, streaks and fault counters",
            ResetRequested(by="cli", session=True, history=True),
        ),
    ],
)
def test_reset_says_what_it_clears(
    say: Say, runs: Runs, project: Path, *, flags: list[str], cleared: str, event: ResetRequested
) -> None:
    runs.begin(project, SUSPENDED)
    assert say("reset", "night", *flags).out == f"night: cleared {cleared}\n"
    assert runs.last() == event
    assert say("reset", "-q").out == ""


def test_a_finished_run_is_not_resumed(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, DONE, status="completed")
    said = say("resume", "night")
    assert said.code == 2
    assert "night is done" in said.err


@pytest.mark.parametrize("argv", [["message", "night", "hello"], ["limits", "night", "-m", "9"], ["reset", "night"]])
def test_nothing_is_asked_of_a_finished_run(say: Say, runs: Runs, project: Path, argv: list[str]) -> None:
    runs.begin(project, *FIRST, DONE, status="completed")
    said = say(*argv)
    assert (said.code, said.out) == (2, "")
    assert "night is done" in said.err
    assert runs.last() == DONE


def test_the_last_limit_is_not_lifted_by_the_way(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED, policy=Policy(max_runs=5))
    for command in ("limits", "resume"):
        said = say(command, "night", "-m", "0")
        assert said.code == 2
        assert "night would have no limit left" in said.err
        assert "--unbounded" in said.err
    assert runs.last() == SUSPENDED
    assert say("limits", "night", "-m", "0", "--max-cost", "1").code == 0
    assert runs.state().policy.max_cost_usd == 1.0


def test_a_run_that_lost_its_limits_is_not_taken_up_without_a_word(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED, LimitsChanged(by="u", changes={"max_runs": None}), policy=Policy(max_runs=5))
    said = say("resume", "night")
    assert said.code == 2
    assert "--unbounded" in said.err


def test_an_unbounded_run_may_stay_so(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED, policy=Policy(max_runs=5, unbounded=True))
    assert say("limits", "night", "-m", "0").code == 0


def test_a_run_is_found_by_the_beginning_of_its_id(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, SUSPENDED)
    assert say("limits", "abc1").code == 0
