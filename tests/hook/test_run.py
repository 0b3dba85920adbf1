"""The launcher: what it starts, what it does not, and what it says where Python does not work."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from hook.stop_kit import STOP, Stage

TOLD = ("SessionStart", "UserPromptExpansion")
SILENT = ("Stop", "StopFailure", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure")
BROKEN = {
    "missing": None,
    "no version": "echo 'pyenv: python3: command not found' >&2; exit 127",
    "fails": "echo 'Traceback' >&2; exit 1",
}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path)
    made.start()
    return made


def with_python(stage: Stage, tmp_path: Path, body: str | None) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    if body is not None:
        (folder / "python3").write_text(f"#!/bin/sh\ncat >/dev/null\n{body}\n")
        (folder / "python3").chmod(0o755)
    stage.env["PATH"] = str(folder)


def called(stage: Stage, event: str) -> "subprocess.CompletedProcess[bytes]":
    given = {**STOP, "hook_event_name": event, "cwd": str(stage.project)}
    return stage.launch(event, given)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_python_that_does_not_work_is_told_once_and_never_in_the_way(stage: Stage, tmp_path: Path, kind: str) -> None:
    with_python(stage, tmp_path, BROKEN[kind])
    for event in (*TOLD, *SILENT):
        done = called(stage, event)
        assert (done.returncode, done.stderr) == (0, b""), event
        if event in TOLD:
            assert "python3" in json.loads(done.stdout)["systemMessage"]
        else:
            assert done.stdout == b"", event


def test_a_hook_that_claude_code_ended_says_nothing(stage: Stage, tmp_path: Path) -> None:
    with_python(stage, tmp_path, "kill -TERM $$")
    done = called(stage, "SessionStart")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    "name", [".claude/todo_state.json", ".untildone/tasks.db", ".devteam/devteam.db", ".untildone/loop.md"]
)
def test_each_list_of_work_starts_the_reminder(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    with_python(stage, tmp_path, "echo started")
    assert called(stage, "UserPromptSubmit").stdout == b""
    stage.put(name, "")
    assert called(stage, "UserPromptSubmit").stdout == b"started\n"
    assert (called(stage, "Stop").stdout == b"") is (name != ".untildone/loop.md")
