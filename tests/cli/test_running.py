import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cli_kit import DONE, FIRST, LIMITED, SUSPENDED, Runs, Say
from untildone import config
from untildone.core.events import ResetRequested, SettingsChanged, StopRequested
from untildone.core.policy import Policy
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import parse_scenario, shipped_scenario

RESULT_KEYS = [
    "run_id", "name", "exit_reason", "success", "verified", "loops_completed", "attempts", "total_cost_usd",
    "elapsed_seconds", "total_tasks_completed", "total_files_modified", "final_status", "rate_limit_hit", "error",
]  # fmt: skip


@pytest.fixture
def failing(tmp_path: Path) -> list[str]:
    """Flags for an agent that dies at once: the shortest honest run there is."""
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\necho no such luck >&2\nexit 7\n")
    program.chmod(0o755)
    return ["--agent", "claude_cli", "--claude", str(program), "--error-threshold", "1", "--max-iterations", "9"]


def name_of(project: Path, goal: str) -> str:
    return config.run_name(project.resolve(), goal)


# --- what would be done ----------------------------------------------------------------------------


def test_a_refused_start_takes_no_name_and_leaves_nothing(
    say: Say, runs: Runs, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    git = ("git", "-C", str(project), "-c", "user.name=A", "-c", "user.email=a@b")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    (project / "mine.txt").write_text("mine")
    runs.begin(project, LIMITED)
    said = say("run", "another goal", "-m", "9", "--name", "night", "--new")
    assert said.code == 2, said.err
    assert [row.run_id for row in runs.list()] == ["abc123def456"]
    assert "night (abc123def456)" in say("status", "night").out


def test_a_dry_run_shows_what_would_be_asked_and_starts_nothing(say: Say, project: Path, store: Path) -> None:
    (project / "SHARED_TASK_NOTES.md").write_text("remember \x1b[31mthis")
    said = say(
        "run", "Port it", "-m", "3", "--check", "make test", "--max-cost", "5", "--dry-run", "--", "--effort", "high"
    )
    assert said.code == 0
    for piece in (
        "Port it",
        "max_runs 3",
        "$5.00",
        "make test",
        "--effort high",
        "remember this",
        name_of(project, "Port it"),
    ):
        assert piece in said.out
    assert "\x1b" not in said.out
    assert not store.exists()


@pytest.mark.parametrize("folder", ["/etc", "../x", "~/x", ".", "./"])
def test_only_what_lies_in_the_folder_can_be_shared(say: Say, project: Path, folder: str) -> None:
    said = say("run", "x", "-m", "1", "--check", "true", "--share", folder)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "--share must" in said.err


def test_what_is_to_be_shared_and_is_not_there_yet_is_told_before_anything_runs(say: Say, project: Path) -> None:
    (project / "vendor").mkdir()
    flags = ("--check", "true", "--share", "vendor", "--share", "node_modules")
    said = say("run", "x", "-m", "1", *flags, "--dry-run").err
    assert f"--share node_modules: there is no node_modules in {project} yet" in said
    assert "--share vendor" not in said


def test_a_dry_run_for_programs_holds_every_value(say: Say, project: Path) -> None:
    found = json.loads(say("run", "-p", "Port it", "-m", "3", "--dry-run", "--json", "--timeout", "90s").out)
    assert found["spec"]["goal"] == "Port it"
    assert found["spec"]["cwd"] == str(project)
    assert (found["policy"]["max_runs"], found["policy"]["iteration_timeout"]) == (3, 90.0)


def test_goals_come_from_files_and_task_files_become_goals(say: Say, project: Path) -> None:
    (project / "goal.md").write_text("\n  Port the parser\nall of it\n\n")
    (project / "TODO.md").write_text("- [ ] one\n")
    (project / "how.txt").write_text("Do it: %s")
    goal = json.loads(say("run", "--prompt-file", "goal.md", "-m", "1", "--dry-run", "--json").out)
    assert goal["spec"]["goal"] == "Port the parser\nall of it"
    tasks = json.loads(say("tasks", "TODO.md", "-m", "1", "--dry-run", "--json", "--task-prompt-file", "how.txt").out)
    assert (tasks["spec"]["task_file"], tasks["spec"]["task_prompt"]) == ("TODO.md", "Do it: %s")


def test_another_folder_and_another_name(say: Say, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    found = json.loads(say("run", "x", "-m", "1", "--cwd", str(other), "--name", "mine", "--dry-run", "--json").out)
    assert (found["spec"]["cwd"], found["spec"]["name"]) == (str(other), "mine")


def test_a_dry_run_tells_the_truth_about_the_branch(say: Say, project: Path) -> None:
    def commits(*flags: str) -> str:
        shown = say("run", "x", "-m", "1", "--dry-run", *flags).out
        return next(line for line in shown.splitlines() if line.strip().startswith("commits"))

    assert "history kept outside of the folder" in commits()
    subprocess.run(["git", "init", "-q", "-b", "topic", "."], cwd=project, check=True)
    either = "on the new branch untildone/night if topic is the default branch, else on topic"
    assert commits("--name", "night").endswith(either)
    assert "untildone/..." in commits("--name", "../../../x")
    assert commits("--disable-branches").endswith("on branch topic")
    assert commits("--disable-commits").endswith("off")


def test_a_bare_timeout_says_how_it_is_read(say: Say) -> None:
    said = say("run", "x", "-m", "1", "--timeout", "15", "--dry-run")
    assert said.err == "untildone: --timeout 15 is read as 15 minutes; write 15m or 15s to be clear\n"


# --- runs that fail quickly ------------------------------------------------------------------------


def test_no_claude_is_one_line(say: Say) -> None:
    said = say("run", "x", "-m", "1", "--agent", "claude_cli", "--claude", "no-such-claude", "-q")
    assert said.code == 2
    assert said.err == "untildone: there is no program 'no-such-claude' to run: check --claude, or leave it out\n"


def test_the_result_is_one_object_and_the_exit_code_tells(say: Say, failing: list[str]) -> None:
    said = say("run", "x", *failing, "--json")
    assert said.code == 1
    result = json.loads(said.out)
    assert list(result) == RESULT_KEYS
    assert (result["exit_reason"], result["success"], result["attempts"]) == ("consecutive_errors", False, 1)
    assert "no such luck" in result["error"]


def test_quiet_prints_the_reason_and_format_what_was_asked(say: Say, failing: list[str]) -> None:
    assert say("run", "x", *failing, "-q").out == "consecutive_errors\n"
    said = say("run", "y", *failing, "--format", "{name} {exit_reason} {success}")
    assert said.out.endswith(" consecutive_errors false\n")
    assert said.out.count("\n") == 1


def test_plain_lines_show_what_happens(say: Say, failing: list[str]) -> None:
    out = say("run", "x", *failing).out
    assert "iteration 1 started" in out
    assert "untildone resume" in out


def test_the_same_command_again_resumes(say: Say, runs: Runs, failing: list[str]) -> None:
    first = json.loads(say("run", "x", *failing, "--json").out)
    again = say("run", "x", *failing, "--json", "--reset-circuit", "--max-cost", "3")
    assert f"resuming {first['name']} after 1 iteration (--new starts afresh)" in again.err
    result = json.loads(again.out)
    assert (result["run_id"], result["attempts"]) == (first["run_id"], 2)
    events = [record.event for record in runs.read(first["run_id"])]
    (changed,) = [event for event in events if isinstance(event, SettingsChanged)]
    assert (changed.policy.max_cost_usd, changed.spec.name) == (3.0, first["name"])
    assert ResetRequested(by="cli") in events
    fresh = json.loads(say("run", "x", *failing, "--json", "--new").out)
    assert fresh["run_id"] != first["run_id"]
    resumed = json.loads(say("resume", first["run_id"], "--json").out)
    assert (resumed["run_id"], resumed["attempts"]) == (first["run_id"], 3)


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        (LIMITED, "suspended", "with a higher limit continues the last run"),
        (DONE, "completed", ""),
    ],
)
def test_a_run_that_reached_a_limit_or_its_goal_is_not_resumed_by_itself(
    say: Say, runs: Runs, project: Path, failing: list[str], *, ending: object, status: str, said: str
) -> None:
    runs.begin(project, *FIRST, ending, name=name_of(project, "x"), goal="x", status=status)
    answer = say("run", "x", *failing, "--json")
    assert json.loads(answer.out)["run_id"] != "abc123def456"
    assert said in answer.err


def test_an_expired_run_is_not_resumed_by_itself(say: Say, runs: Runs, project: Path, failing: list[str]) -> None:
    policy = Policy(max_runs=5, session_expiry=0.0)
    runs.begin(project, *FIRST, SUSPENDED, name=name_of(project, "x"), goal="x", policy=policy)
    answer = say("run", "x", *failing, "--json")
    assert json.loads(answer.out)["run_id"] != "abc123def456"
    assert "starting anew" in answer.err


def test_an_interrupted_run_is_resumed_the_way_this_command_says(
    say: Say, runs: Runs, project: Path, failing: list[str]
) -> None:
    runs.begin(project, FIRST[0], name=name_of(project, "x"), goal="x", status="running")
    result = json.loads(say("run", "x", *failing, "--json").out)
    assert (result["run_id"], result["attempts"]) == ("abc123def456", 2)
    assert "no such luck" in result["error"], "the agent of this command was started"


@pytest.mark.parametrize(
    ("answer", "code", "attempts"),
    [("resume", 1, 2), ("quit", 130, 1), pytest.param("new", 1, 1, marks=pytest.mark.soak)],
)
def test_on_a_terminal_it_asks(
    runs: Runs, project: Path, failing: list[str], *, answer: str, code: int, attempts: int
) -> None:
    runs.begin(project, *FIRST, SUSPENDED, name=name_of(project, "x"), goal="x")
    controller, terminal = pty.openpty()
    argv = [sys.executable, "-m", "untildone", "run", "x", *failing, "-q"]
    with subprocess.Popen(argv, stdin=terminal, stdout=terminal, stderr=terminal) as child:
        os.close(terminal)
        os.write(controller, f"{answer}\n".encode())
        assert child.wait(timeout=240) == code
    shown = os.read(controller, 1 << 16).decode()
    os.close(controller)
    assert "unfinished run" in shown
    newest = max(runs.list(), key=lambda row: row.created_at)
    assert (newest.run_id != "abc123def456") == (answer == "new")
    assert runs.state(newest.run_id).attempts == attempts


def test_the_plan_shows_what_the_agent_may_do_and_what_not(say: Say) -> None:
    plan = say("run", "x", "-m", "1", "--at", "2090-01-31T01:00", "--allow-tool", "Bash(docker:*)", "--dry-run").out
    words = " ".join(plan.split())
    assert "begins 2090-01-31 01:00" in words
    assert "Edit(//tmp/**), Bash(docker:*); not: git push, gh, " in words
    assert "dropdb (--allow-tool RULE adds to it)" in words
    assert "docker-compose, podman" in words
    assert ", docker, " not in words
    narrow = say("run", "x", "-m", "1", "--allow-tool", "Bash(docker ps:*)", "--dry-run")
    assert "--allow-tool 'Bash(docker ps:*)' does nothing" in narrow.err


def test_resume_takes_other_settings(say: Say, runs: Runs, project: Path, failing: list[str]) -> None:
    runs.begin(project, *FIRST, SUSPENDED, policy=Policy(max_runs=5, same_error_threshold=7))
    result = json.loads(say("resume", "night", *failing, "--json", "--check", "true", "--model", "opus").out)
    assert (result["run_id"], result["exit_reason"]) == ("abc123def456", "consecutive_errors")
    (changed,) = [record.event for record in runs.read() if isinstance(record.event, SettingsChanged)]
    assert (changed.spec.checks, changed.spec.options.model, changed.spec.goal) == (("true",), "opus", "a goal")
    assert (changed.policy.max_runs, changed.policy.max_iterations, changed.policy.same_error_threshold) == (5, 9, 7)


def test_nothing_is_called_resumed_that_was_not(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED, name=name_of(project, "x"), goal="x")
    said = say("run", "x", "-m", "3", "--claude", "no-such-claude")
    assert said.code == 2
    assert "resuming" not in said.err


def test_a_run_goes_on_in_a_folder_that_was_moved(
    say: Say, runs: Runs, tmp_path: Path, project: Path, failing: list[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    runs.begin(old, *FIRST, SUSPENDED)
    old.rename(new)
    lost = say("resume", "night")
    assert lost.code == 2
    assert f"{old} is gone: if it was moved, say `untildone resume abc123def456 --cwd FOLDER`" in lost.err
    result = json.loads(say("resume", "night", "--cwd", str(new), *failing, "--json").out)
    assert (result["run_id"], result["attempts"]) == ("abc123def456", 2)
    assert runs.state().spec.cwd == str(new)
    (row,) = runs.list()
    assert row.folder == str(new)
    assert ResetRequested(by="cli", circuit=False, session=True) in [record.event for record in runs.read()]


# --- on the real Claude Code -----------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedModel]:
    with ScriptedModel(shipped_scenario("done")) as model:
        use(model, tmp_path, monkeypatch)
        yield model


def use(model: ScriptedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name, value in claude_environment(home, model.url, path=os.environ["PATH"]).items():
        monkeypatch.setenv(name, value)


@pytest.mark.claude
def test_a_whole_run(say: Say, runs: Runs, model: ScriptedModel) -> None:
    said = say("run", "Say hello", "-m", "3", "--completion-threshold", "1", "--json")
    result = json.loads(said.out)
    assert (said.code, result["success"], result["exit_reason"]) == (0, True, "completion_signal")
    assert result["attempts"] == 1
    assert len(model.ledger.served()) >= 1


SLOW = """
[[iteration]]
[[iteration.reply]]
text = "thinking about it"
latency = 60.0
"""


@pytest.mark.soak  # tests/cli/test_signals.py does it with a small program in place of Claude
@pytest.mark.claude
def test_ctrl_c_stops_the_run_and_it_can_be_resumed(
    say: Say, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedModel(parse_scenario(SLOW)) as model:
        use(model, tmp_path, monkeypatch)
        argv = [sys.executable, "-m", "untildone", "run", "x", "-m", "3", "--name", "slow"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if "iteration 1 started" in line:
                    child.send_signal(signal.SIGINT)
                    break
            rest, _ = child.communicate(timeout=240)
    assert child.returncode == 130, rest
    assert "untildone resume slow" in rest
    run_id = json.loads(say("status", "slow", "--json").out)["run_id"]
    stops = [r.event for r in runs.read(run_id) if isinstance(r.event, StopRequested)]
    assert [stop.signal for stop in stops] == ["SIGINT"]
