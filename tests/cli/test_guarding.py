import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.cli_kit import FIRST, SUSPENDED, Runs, Say
from untildone.cli.guarding import is_inside_agent
from untildone.core.events import SteeringRefused

RUN = "abc123def456"


def ask(shell: str, **env: str) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -m untildone"
    return subprocess.run(
        ["/bin/sh", "-c", shell.replace("untildone", program, 1)],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_person_is_no_agent() -> None:
    assert not is_inside_agent()


def test_the_mark_in_our_own_environment_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNTILDONE_RUN", RUN)
    assert is_inside_agent()
    monkeypatch.setenv("UNTILDONE_RUN", "")
    assert not is_inside_agent()


def test_what_a_check_runs_may_have_been_written_by_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNTILDONE_CHECK_OF", RUN)
    assert is_inside_agent()


@pytest.mark.parametrize(
    "shell",
    [
        pytest.param("env -u UNTILDONE_RUN untildone limits; exit $?", marks=pytest.mark.soak),
        pytest.param("env -u UNTILDONE_RUN sh -c 'untildone limits; exit $?'; exit $?", marks=pytest.mark.soak),
        "env -i PATH=$PATH HOME=$HOME UNTILDONE_HOME=$UNTILDONE_HOME setsid --wait untildone limits; exit $?",
    ],
)
def test_taking_the_mark_out_hides_nothing(runs: Runs, project: Path, shell: str) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    said = ask(shell, UNTILDONE_RUN=RUN)
    assert (said.returncode, said.stdout) == (5, "")
    assert said.stderr.startswith("untildone: an agent may not start or steer a run")
    assert ask(shell).returncode == 0, "the same chain of processes without an agent in it"


@pytest.mark.parametrize("command", ["run x -m 1", "tasks TODO.md -m 1", "rehearse", "run x -m 1 --dry-run"])
def test_an_agent_starts_no_runs(
    say: Say, project: Path, store: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (project / "TODO.md").write_text("- [ ] a\n")
    monkeypatch.setenv("UNTILDONE_RUN", RUN)
    said = say(*command.split())
    assert (said.code, said.out) == (5, "")
    assert not store.exists()


def test_a_refusal_is_recorded_in_the_agents_own_run(runs: Runs, project: Path) -> None:
    run_id = runs.begin(project, *FIRST, SUSPENDED)
    said = ask("env -u UNTILDONE_RUN untildone limits --max-cost 1000; exit $?", UNTILDONE_RUN=run_id)
    assert said.returncode == 5
    assert [record.event for record in runs.read()][-1] == SteeringRefused(command="limits --max-cost 1000")


def test_an_agent_of_no_known_run_is_refused_all_the_same(
    say: Say, runs: Runs, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    monkeypatch.setenv("UNTILDONE_RUN", "nobody")
    said = say("stop")
    assert (said.code, said.err.count("\n")) == (5, 1)
    assert not any(isinstance(record.event, SteeringRefused) for record in runs.read())
