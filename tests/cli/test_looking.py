import json
from pathlib import Path

from cli.cli_kit import DONE, FIRST, LIMITED, SUSPENDED, Runs, Say
from untildone.core.events import ContinuousWarning, IterationCompleted, IterationStarted
from untildone.core.trace import AgentMessage

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
    assert " iteration  1, 1 succeeded\n" in say("status").out


def test_a_run_whose_driver_died_is_called_interrupted(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, FIRST[0], status="running")
    assert "interrupted" in say("status").out
    assert "interrupted" in say("ls").out
    assert "Not done yet: interrupted (its driver is gone)" in say("brief").out


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


def test_replay_shows_iterations_and_what_other_limits_would_have_done(say: Say, runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, *SECOND, LIMITED)
    table = say("replay").out
    assert len(table.splitlines()) == 3
    said = say("replay", "--set", "max_runs=1").out
    assert "With max_runs = 1 the run would have stopped in iteration 1" in said
    assert "That is 1 iteration, $0.25" in said
    assert "instead of 2 iterations, $0.75" in said
    assert "gone on beyond" in say("replay", "--set", "max_runs=0", "--set", "max_cost_usd=0").out
