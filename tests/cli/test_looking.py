import json
from pathlib import Path

import pytest

from cli.cli_kit import DONE, FIRST, LIMITED, SUSPENDED, Runs, Say
from untildone.core.events import (
    ContinuousWarning,
    Event,
    IterationCompleted,
    IterationFailed,
    IterationStarted,
    IterationValidation,
    PauseRequested,
    SettingsChanged,
    SteeringRefused,
    StoreTampered,
)
from untildone.core.outcome import CheckResult
from untildone.core.policy import Policy, RunSpec
from untildone.core.trace import AgentMessage, AgentSession

WAITS = IterationFailed(
    iteration_num=1, error="later", error_type="usage_limit", retry_allowed=True, cost_usd=0.0, retry_at=4e9
)
SECOND = (IterationStarted(iteration_num=2), IterationCompleted(iteration_num=2, cost_usd=0.5, duration_seconds=4.0))


def test_status_of_nothing_is_no_error(say: Say) -> None:
    assert json.loads(say("status", "--json").out) == {"exists": False}
    said = say("status")
    assert said.code == 0
    assert "no run in" in said.out


def test_status_says_where_a_run_stands(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED, goal="Port the parser")
    text = say("status").out
    for piece in ("night (abc123def456)", "Port the parser", "suspended", "$0.25", "1 of 5", "untildone resume night"):
        assert piece in text
    found = json.loads(say("status", "night", "--json").out)
    assert found["exists"] is True
    assert (found["run_id"], found["attempts"], found["total_cost_usd"]) == ("abc123def456", 1, 0.25)


def test_status_counts_iterations_without_a_second_limit_beside_the_gauges(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    assert " iteration  1\n" in say("status").out


def test_a_run_whose_driver_died_is_called_interrupted(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, FIRST[0], status="running")
    assert "interrupted" in say("status").out
    assert "interrupted" in say("ls").out
    assert "Not done yet: interrupted (the program that ran it is gone)" in say("brief").out


def test_ls_lists_all_runs(say: Say, runs: Runs, project: Path, tmp_path: Path) -> None:
    assert "untildone rehearse" in say("ls").out
    assert json.loads(say("ls", "--json").out) == []
    other = tmp_path / "other"
    other.mkdir()
    runs.begin(project, SUSPENDED)
    runs.begin(other, DONE, name="day", run_id="fff000", status="completed")
    text = say("ls").out
    assert "night" in text
    assert "day" in text
    rows = json.loads(say("ls", "--json").out)
    assert {row["name"]: row["status"] for row in rows} == {"night": "suspended", "day": "completed"}


@pytest.mark.parametrize("command", ["ls", "status", "log", "brief", "stop"])
def test_a_store_that_does_not_exist_is_one_line_and_nothing_is_made(say: Say, tmp_path: Path, command: str) -> None:
    typo = tmp_path / "typo"
    said = say(command, "--store", str(typo))
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert f"--store {typo} does not exist" in said.err
    assert not typo.exists()


def test_log_shows_lines_and_json(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, AgentMessage(iteration_num=1, text="evil \x1b[31mred"), SUSPENDED)
    lines = say("log").out.splitlines()
    assert len(lines) >= 3
    assert "evil" not in "".join(lines)
    verbose = say("log", "-v").out
    assert "evil" in verbose
    assert "\x1b" not in verbose
    records = [json.loads(line) for line in say("log", "--json").out.splitlines()]
    assert records[0]["event_type"] == "continuous.started"
    assert [record["seq"] for record in records] == sorted(record["seq"] for record in records)
    assert len(say("log", "--json", "-n", "2").out.splitlines()) == 2


def test_following_a_run_that_stopped_ends_at_once(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    assert say("log", "-f").code == 0


def test_brief_goes_to_the_terminal_or_a_file(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, ContinuousWarning(message="careful"), LIMITED)
    text = say("brief").out
    assert text.startswith("# ")
    assert say("brief", "-o", "report.md").out == ""
    assert (project / "report.md").read_text().startswith("# ")
    said = say("brief", "-o", "nowhere/report.md")
    assert (said.code, said.err.count("\n")) == (2, 1)


def test_brief_for_programs_names_the_file_of_every_check_and_nothing_of_a_hidden_one(
    say: Say, runs: Runs, project: Path
) -> None:
    open_one = CheckResult(name="tests", command="make", passed=False, log="/logs/1.log", notes=("shared: x",))
    hidden = CheckResult(name="hidden check 1", command="psst", passed=False, log="/psst", hidden=True)
    failed = IterationValidation(iteration_num=1, passed=False, checks=(open_one, hidden))
    runs.begin(project, *FIRST, failed, SUSPENDED)
    first, second = json.loads(say("brief", "--json").out)["evidence"]
    assert (first["name"], first["log"], first["notes"]) == ("tests", "/logs/1.log", ["shared: x"])
    assert (second["name"], second["log"], second["command"]) == ("hidden check 1", "", "(hidden)")


def test_replay_shows_iterations_and_what_other_limits_would_have_done(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, *SECOND, LIMITED)
    table = say("replay").out
    assert len(table.splitlines()) == 3
    said = say("replay", "--set", "max_runs=1").out
    assert "With max_runs = 1 the run would have stopped in iteration 1" in said
    assert "That is 1 iteration, $0.25" in said
    assert "instead of 2 iterations, $0.75" in said
    assert "gone on beyond" in say("replay", "--set", "max_runs=0", "--set", "max_cost_usd=0").out


SECRET_URL = "https://user:pass@hooks.example.com/T0K3N?key=T0K3N"


def test_status_and_brief_say_who_paid_and_what_trouble_cost(say: Say, runs: Runs, project: Path) -> None:
    session = AgentSession(iteration_num=1, session_id="s", lane="none")
    broken = IterationFailed(
        iteration_num=2, error="529", error_type="overloaded", retry_allowed=True, cost_usd=0.5, duration_seconds=4.0
    )
    meddling = (StoreTampered(detail="record 3 was forged"), SteeringRefused(command="stop"))
    runs.begin(project, FIRST[0], session, FIRST[1], SECOND[0], broken, *meddling, SUSPENDED)
    lines = say("status").out.splitlines()
    assert "    paid by  subscription $0.75 (nominal)" in lines
    assert "       lost  $0.50 to retries: overloaded $0.50" in lines
    assert sum(line.startswith("    warning  the ") for line in lines) == 2
    found = json.loads(say("brief", "--json").out)
    assert (found["spend_by_lane"], found["lost_usd"]) == ({"subscription": 0.75}, {"overloaded": 0.5})
    assert [row["cost_usd"] for row in found["iterations"]] == [0.25, 0.5]
    assert "paid by" not in say("status", "--cwd", str(project.parent)).out


def test_no_command_shows_the_address_of_a_channel(say: Say, runs: Runs, project: Path) -> None:
    spec = RunSpec(goal="g", cwd=str(project), name="night", notify=(SECRET_URL,))
    runs.begin(project, SettingsChanged(by="me", policy=Policy(max_runs=1), spec=spec), SUSPENDED)
    assert runs.state().spec.notify == (SECRET_URL,)
    records = [json.loads(line) for line in say("log", "--json").out.splitlines()]
    changed = next(record for record in records if record["event_type"] == "continuous.settings_changed")
    assert "https://hooks.example.com/…" in json.dumps(changed, ensure_ascii=False)
    planned = ("run", "g", "-m", "1", "--notify", SECRET_URL, "--dry-run")
    told = [say(*planned), say(*planned, "--json"), say("log"), say("log", "--json"), say("log", "-v", "--json")]
    told += [say("status", "--json"), say("ls", "--json"), say("brief"), say("brief", "--json"), say("replay")]
    assert all(said.code == 0 for said in told)
    assert not any("T0K3N" in said.out + said.err or "user:pass" in said.out + said.err for said in told)


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ((IterationStarted(iteration_num=1),), "running"),
        ((PauseRequested(by="ada"),), "paused"),
        ((IterationStarted(iteration_num=1), WAITS), "waiting"),
    ],
)
def test_ls_tells_what_a_driven_run_does_as_status_does(
    say: Say, runs: Runs, project: Path, events: tuple[Event, ...], status: str
) -> None:
    with runs.driven(project, *events):
        assert json.loads(say("ls", "--json").out)[0]["status"] == status
        assert f"  {status}  " in say("ls").out
        assert json.loads(say("status", "--json").out)["status"] == status
