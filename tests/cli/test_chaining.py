import json
import signal
from pathlib import Path

import pytest

from cli.background_kit import Background, cut_chain
from cli.cli_kit import Runs, Say
from patience import eventually
from untildone import config
from untildone.core.chain import next_policy, next_run_id
from untildone.core.events import ContinuousStarted
from untildone.core.policy import Policy
from untildone.core.state import LoopState, Spend


@pytest.fixture
def goals(project: Path) -> list[str]:
    for name in ("second", "third"):
        (project / f"{name}.md").write_text(f"The {name} goal\n")
    return ["--then", "second.md", "--then", "third.md"]


def chain(runs: Runs, first: str) -> list[LoopState]:
    """The runs of a chain that were started."""
    states = []
    state = runs.state(first)
    while state.run_id:
        states.append(state)
        state = runs.state(next_run_id(state.run_id))
    return states


def first_of(runs: Runs) -> str:
    return min(runs.list(), key=lambda row: row.created_at).run_id


def test_one_goal_after_the_other_and_one_budget_for_all(
    say: Say, runs: Runs, project: Path, background: Background, goals: list[str]
) -> None:
    background.let_go()
    said = say("run", "The first goal", *background.flags, *goals, "--max-cost", "2", "--max-duration", "1h", "--json")
    assert said.code == 0, said.err
    states = chain(runs, first_of(runs))
    assert [state.spec.goal for state in states] == ["The first goal", "The second goal", "The third goal"]
    assert [state.phase for state in states] == ["completed"] * 3
    assert [state.spec.name for state in states] == [config.run_name(project, state.spec.goal) for state in states]
    assert [state.policy.max_cost_usd for state in states] == pytest.approx([2.0, 1.75, 1.5])
    assert [state.policy.max_runs for state in states] == [9, 9, 9]
    left = [state.policy.max_duration or 0.0 for state in states]
    assert left == sorted(left, reverse=True)
    assert left[0] > left[2] > 3000
    assert [len(state.spec.then) for state in states] == [2, 1, 0]
    assert states[2].spec.checks == ("true",)
    result = json.loads(said.out)
    assert said.out.count("\n") == 1
    assert (result["run_id"], result["success"]) == (states[2].run_id, True)


def test_a_goal_that_is_not_reached_starts_nothing(say: Say, runs: Runs, tmp_path: Path, goals: list[str]) -> None:
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    flags = ("--agent", "claude_cli", "--claude", str(program), "--error-threshold", "1", "-m", "9")
    assert say("run", "The first goal", *flags, *goals).code == 1
    assert len(runs.list()) == 1


def test_a_spent_budget_lets_the_next_goal_stop_at_once(
    say: Say, runs: Runs, background: Background, goals: list[str]
) -> None:
    background.let_go()
    said = say("run", "The first goal", *background.flags, *goals, "--max-cost", "0.2", "--json")
    states = chain(runs, first_of(runs))
    result = json.loads(said.out)
    assert (said.code, result["exit_reason"], result["success"]) == (3, "max_cost_reached", False)
    assert [(state.phase, state.attempts) for state in states] == [("completed", 1), ("suspended", 0)]
    advice = say("attach", states[1].run_id).out
    assert "--max-cost N" in advice, "0 would mean no limit"
    # To resume the chain is to resume the run of it that is open.
    more = say("resume", states[0].run_id, "--max-cost", "5", "--json")
    assert more.code == 0, more.err
    states = chain(runs, first_of(runs))
    assert [state.phase for state in states] == ["completed"] * 3
    begun = [record for state in states for record in runs.read(state.run_id)]
    assert sum(isinstance(record.event, ContinuousStarted) for record in begun) == 3


def test_a_goal_that_cannot_be_read_is_said_before_anything_starts(
    say: Say, store: Path, background: Background, project: Path
) -> None:
    said = say("run", "The first goal", *background.flags, "--then", "nowhere.md")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "nowhere.md cannot be read" in said.err
    (project / "empty.md").touch()
    assert "is empty" in say("run", "The first goal", *background.flags, "--then", "empty.md").err
    assert not store.exists()


@pytest.mark.parametrize(
    "meddle",
    ["echo EVIL | tee second.md third.md", pytest.param("rm -f second.md third.md", marks=pytest.mark.soak)],
)
def test_nobody_who_writes_the_goal_files_chooses_the_next_goal(
    say: Say, runs: Runs, background: Background, goals: list[str], meddle: str
) -> None:
    background.let_go()
    said = say("run", "The first goal", *background.flags, "--check", meddle, *goals)
    assert said.code == 0, said.err
    # People see every result and how to go on.
    assert said.out.count("1 iteration ·") == 3
    assert said.out.count("Next goal: ") == 2
    assert "second.md" in said.out
    assert "untildone resume" in said.out
    states = chain(runs, first_of(runs))
    assert [state.spec.goal for state in states] == ["The first goal", "The second goal", "The third goal"]
    assert [len(state.spec.then_goals) for state in states] == [2, 1, 0]


def test_a_chain_cut_between_two_goals_says_so_and_goes_on_with_resume(
    say: Say, runs: Runs, project: Path, background: Background, goals: list[str]
) -> None:
    background.let_go()
    first = cut_chain(runs, background, "Second", "Third")
    told = f"was not started: `untildone resume {first}` starts it"
    assert told in say("status").out
    assert told in json.loads(say("status", "--json").out)["advice"]
    again = say("resume", first, "--json", "--check", "true")
    assert again.code == 0, again.err
    states = chain(runs, first)
    assert [state.spec.goal for state in states] == ["The first goal", "Second", "Third"]
    assert json.loads(again.out)["run_id"] == states[2].run_id
    assert "is done" in say("resume", first).err
    assert "not started" not in say("status", first).out


def test_the_same_command_continues_a_chain_where_its_loop_was_killed(
    say: Say, runs: Runs, background: Background, goals: list[str]
) -> None:
    first = cut_chain(runs, background, "The second goal", "The third goal")
    command = ("run", "The first goal", "--name", "night", *background.flags, *goals)
    for times in (1, 2):  # nothing of the second goal is in the log; its agent was working
        killed = background.popen(*command)
        background.working(times)
        killed.kill()
        killed.communicate()
        assert [state.phase for state in chain(runs, first)] == ["completed", "running"]
    background.let_go()
    said = say(*command, "--json")
    assert said.code == 0, said.err
    assert "goal 2 of 3" in said.err
    assert [state.phase for state in chain(runs, first)] == ["completed"] * 3
    assert len(runs.list()) == 3, "no goal was begun twice"
    assert "resuming" not in say(*command, "--new").err
    assert len(runs.list()) == 6


def test_other_goals_after_the_first_are_another_chain(
    say: Say, runs: Runs, background: Background, goals: list[str]
) -> None:
    cut_chain(runs, background, "The second goal", "Something else")
    background.let_go()
    assert say("run", "The first goal", "--name", "night", *background.flags, *goals).code == 0
    assert len(runs.list()) == 4


@pytest.mark.soak
def test_a_chain_of_an_older_version_reads_its_files_and_says_when_it_cannot(
    say: Say, runs: Runs, project: Path, background: Background, goals: list[str]
) -> None:
    background.let_go()
    first = cut_chain(runs, background)
    (project / "second.md").unlink()
    assert "second.md cannot be read" in say("resume", first).err
    assert "second.md cannot be read" in say("resume", "--interrupted").err
    assert "was not started" in say("status").out
    (project / "second.md").write_text("Refined\n")
    assert say("resume", first, "--json").code == 0
    assert [state.spec.goal for state in chain(runs, first)] == ["The first goal", "Refined", "The third goal"]


@pytest.mark.soak
def test_other_goals_can_be_named_when_a_run_is_taken_up(
    say: Say, runs: Runs, project: Path, background: Background, goals: list[str]
) -> None:
    background.let_go()
    first = cut_chain(runs, background, "Second", "Third")
    (project / "fourth.md").write_text("The fourth goal\n")
    assert say("resume", first, "--then", "fourth.md", "--json").code == 0
    assert [state.spec.goal for state in chain(runs, first)] == ["The first goal", "Second", "The fourth goal"]


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_a_stop_after_the_last_word_still_starts_nothing(
    runs: Runs, say: Say, background: Background, goals: list[str], number: signal.Signals
) -> None:
    """The goal is reached and a command of the user's is running when somebody wants it all to end."""
    ending, go = background.gate.with_name("ending"), background.gate.with_name("go")
    background.let_go()
    on_stop = f"touch '{ending}'; until [ -e '{go}' ]; do sleep 0.05; done"
    child = background.popen("run", "The first goal", *background.flags, *goals, "--on-stop", on_stop, "--json")
    eventually(ending.exists, "the end of the first goal")
    child.send_signal(number)
    first = first_of(runs)
    eventually(lambda: runs.state(first).stop is not None, "the stop")
    go.touch()
    out, err = child.communicate(timeout=240)
    assert (child.returncode, json.loads(out)["success"]) == (0, True)
    assert f"untildone resume {first}" in err
    assert len(runs.list()) == 1
    after_reboot = say("resume", "--interrupted")
    assert ("no interrupted runs" in after_reboot.out) == (number == signal.SIGINT)
    if number == signal.SIGINT:
        assert say("resume", first).code == 0
    assert [state.phase for state in chain(runs, first)] == ["completed"] * 3


def test_goals_named_in_a_project_file_need_trust(say: Say, project: Path, background: Background) -> None:
    (project / "secret.md").write_text("something private\n")
    (project / "untildone.toml").write_text('then = ["secret.md"]\n')
    said = say("run", "The first goal", *background.flags, "--dry-run")
    assert said.code == 2
    assert "untildone config trust" in said.err


def test_what_is_left_is_never_below_nothing() -> None:
    policy = Policy(max_cost_usd=1.0, max_tokens=10, max_duration=5.0, deadline=99.0, max_runs=3, max_iterations=4)
    spent = LoopState(policy=policy, spend=Spend(cost_usd=3.0), active_seconds=8.0)
    left = next_policy(spent, now=50.0)
    assert (left.max_cost_usd, left.max_tokens, left.max_duration) == (0.0, 10, 0.0)
    assert (left.deadline, left.max_runs, left.max_iterations) == (99.0, 3, 4)
