"""The part of the program that comes with the plugin, started the way an agent starts it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hook.stop_kit import HOOK, Stage

PROGRAM = HOOK.parent / "bin" / "untildone"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def run(stage: Stage, *words: str, program: Path = PROGRAM) -> subprocess.CompletedProcess[str]:
    argv = ["sh", str(program), *words]
    env = {**stage.env, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(argv, cwd=stage.project, env=env, capture_output=True, text=True, timeout=240, check=False)


def test_it_can_be_called_by_its_name_alone(stage: Stage) -> None:
    env = {**stage.env, "PATH": f"{stage.env['PATH']}{os.pathsep}{PROGRAM.parent}"}
    found = shutil.which("untildone", path=str(PROGRAM.parent))
    assert found == str(PROGRAM)
    argv = [found, "task", "ls"]
    assert (
        subprocess.run(argv, cwd=stage.project, env=env, capture_output=True, timeout=240, check=False).returncode == 0
    )


def test_tasks_change_without_the_rest_of_the_program(stage: Stage) -> None:
    assert run(stage, "task", "add", "Write the parser").stdout.startswith("TASK-001")
    assert run(stage, "task", "start", "TASK-001").returncode == 0
    assert run(stage, "task", "done", "TASK-001").returncode == 0
    assert "1/1" in run(stage, "task", "ls").stdout


def test_a_copy_of_the_plugin_alone_is_enough(stage: Stage, tmp_path: Path) -> None:
    copy = tmp_path / "cache" / "0.1.0"
    shutil.copytree(HOOK.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "bin" / "untildone").chmod(0o644)
    done = run(stage, "task", "add", "Write the parser", program=copy / "bin" / "untildone")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_question_for_the_human(stage: Stage) -> None:
    refused = run(stage, "ask", "why?")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    stage.start()
    assert "Noted for the human: why?" in run(stage, "ask", "why?").stdout
    assert stage.told("asked")[0]["by"] == "agent"
    assert "- why?" in run(stage, "ask").stdout


@pytest.mark.parametrize("words", [(), ("run", "x"), ("loop", "stop"), ("task", "dance"), ("task", "done", "TASK-9")])
def test_what_it_cannot_do_is_one_line(stage: Stage, words: tuple[str, ...]) -> None:
    done = run(stage, *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("untildone: ")


def test_help(stage: Stage) -> None:
    assert "untildone task" in run(stage, "task", "--help").stdout
