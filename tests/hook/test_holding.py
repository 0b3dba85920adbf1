"""Which Claude Code has the session of a loop open, and whether it still lives."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hook.stop_kit import OTHER, SESSION, Stage
from untildone.hook import commanding, prompting
from untildone.hook.answering import Call
from untildone.hook.holding import is_left, leave, note_holder


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def claude() -> "Iterator[subprocess.Popen[bytes]]":
    """A process that stands for Claude Code."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=240)


def begin(stage: Stage, source: str, session: str) -> None:
    event = {"session_id": session, "cwd": str(stage.project), "hook_event_name": "SessionStart", "source": source}
    prompting.on_sessionstart(Call(event, stage.env, 9.0))


def typed(stage: Stage, words: str) -> Any:
    event = {"session_id": SESSION, "command_name": "untildone:loop", "command_args": words, "command_source": "plugin"}
    return commanding.on_userpromptexpansion(Call(event, stage.env, 9.0))


@pytest.mark.parametrize("way", ["start", "adopt", "stop", "resume"])
def test_a_session_is_open_as_long_as_its_claude_lives(
    stage: Stage, claude: "subprocess.Popen[bytes]", way: str
) -> None:
    stage.env["CLAUDE_PID"] = str(claude.pid)
    if way == "start":
        typed(stage, "a goal")
    elif way == "adopt":
        stage.start(session="")
        typed(stage, "--adopt")
    else:
        stage.start()
        assert not is_left(stage.entry)
        if way == "stop":
            stage.stop("half")
        else:
            begin(stage, "resume", SESSION)
    assert stage.entry["holder"][0] == str(claude.pid)
    assert not is_left(stage.entry)
    claude.kill()
    claude.wait(60)
    assert is_left(stage.entry)


def test_another_process_with_the_same_number_is_not_it(stage: Stage) -> None:
    entry: Any = {"session": SESSION}
    assert note_holder(entry, {"CLAUDE_PID": str(os.getpid())})
    assert not note_holder(entry, {"CLAUDE_PID": str(os.getpid())})
    assert not is_left(entry)
    entry["holder"][1] = "1"
    assert is_left(entry)


def test_a_process_that_waits_for_its_burial_is_dead(claude: "subprocess.Popen[bytes]") -> None:
    entry: Any = {"session": SESSION}
    note_holder(entry, {"CLAUDE_PID": str(claude.pid)})
    claude.kill()
    os.waitid(os.P_PID, claude.pid, os.WEXITED | os.WNOWAIT)
    assert is_left(entry)


@pytest.mark.parametrize("holder", [None, [], "x", ["1"], [1, 2, 3], ["99999999999", "1", ""], ["-5", "1", ""]])
def test_what_nobody_wrote_down_says_nothing(holder: Any) -> None:
    entry: Any = {"session": SESSION, "holder": holder}
    assert not is_left(entry)
    assert not leave(entry, {"CLAUDE_PID": "7"})


def test_numbers_of_another_machine_say_nothing(claude: "subprocess.Popen[bytes]") -> None:
    entry: Any = {"session": SESSION}
    note_holder(entry, {"CLAUDE_PID": str(claude.pid)})
    entry["holder"][2] = "elsewhere"
    claude.kill()
    claude.wait(60)
    assert not is_left(entry)


@pytest.mark.parametrize("number", ["", "x", "0", "1", "٣", "99999999999"])
def test_what_is_no_number_is_not_written_down(number: str) -> None:
    entry: Any = {"session": SESSION}
    assert not note_holder(entry, {"CLAUDE_PID": number})
    assert "holder" not in entry


def test_a_claude_that_begins_another_session_has_left_this_one(stage: Stage) -> None:
    stage.env["CLAUDE_PID"] = str(os.getpid())
    typed(stage, "a goal")
    begin(stage, "clear", OTHER)
    assert is_left(stage.entry)
    begin(stage, "resume", SESSION)
    assert not is_left(stage.entry)


def test_another_claude_in_the_same_folder_changes_nothing(stage: Stage, claude: "subprocess.Popen[bytes]") -> None:
    stage.env["CLAUDE_PID"] = str(os.getpid())
    typed(stage, "a goal")
    before = stage.entry
    stage.env["CLAUDE_PID"] = str(claude.pid)
    begin(stage, "startup", OTHER)
    assert stage.entry == before


def test_the_goal_comes_back_where_that_cannot_be_written_down(stage: Stage) -> None:
    stage.start("The goal")
    (lock,) = (stage.home / "loops").glob("*.lock")
    lock.unlink()
    lock.mkdir()
    stage.env["CLAUDE_PID"] = str(os.getpid())
    event = {"session_id": SESSION, "cwd": str(stage.project), "hook_event_name": "SessionStart", "source": "resume"}
    said = stage.launched("SessionStart", event)
    assert "The goal" in said["hookSpecificOutput"]["additionalContext"]
