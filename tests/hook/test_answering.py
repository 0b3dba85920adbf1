"""Whatever goes wrong in a hook, Claude Code goes on; a stop that could not be decided says so."""

from pathlib import Path

import pytest

from hook.stop_kit import OTHER, STOP, Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def spoil_lock(stage: Stage) -> None:
    (lock,) = (stage.home / "loops").glob("*.lock")
    lock.unlink()
    lock.mkdir()


def test_a_stop_that_cannot_be_written_down_is_told(stage: Stage) -> None:
    stage.start()
    before = stage.file.read_bytes()
    spoil_lock(stage)
    said = stage.launched("Stop", {**STOP, "cwd": str(stage.project)})
    assert set(said) == {"systemMessage"}
    assert "Is a directory" in said["systemMessage"]
    assert "say anything to go on" in said["systemMessage"]
    assert stage.file.read_bytes() == before
    assert "IsADirectoryError" in stage.log


def test_it_is_told_where_not_even_the_log_can_be_written(stage: Stage) -> None:
    stage.start()
    spoil_lock(stage)
    (stage.home / "hook.log").mkdir()
    assert "could not be decided" in stage.launched("Stop", {**STOP, "cwd": str(stage.project)})["systemMessage"]


def test_other_events_stay_silent(stage: Stage) -> None:
    stage.start(iteration_seconds=5.0)
    spoil_lock(stage)
    assert stage.launched("UserPromptSubmit", {**STOP, "cwd": str(stage.project), "prompt": "x"}) == {}
    assert stage.log != ""


@pytest.mark.parametrize("stdin", [b"", b"{", b"[1]", b"\xff", b"null"])
def test_what_is_no_event_is_no_word(stage: Stage, stdin: bytes) -> None:
    stage.start()
    done = stage.launch("Stop", stdin)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_mark_of_the_outer_loop_frees_no_session_that_a_loop_holds(stage: Stage) -> None:
    stage.start()
    stage.env["UNTILDONE_RUN"] = "1"
    stop = {**STOP, "cwd": str(stage.project)}
    assert stage.launched("Stop", stop) != {}
    assert stage.turn == 2
    denied = stage.launched("PreToolUse", {**stop, "tool_name": "Bash", "tool_input": {"command": "rm -rf .untildone"}})
    assert denied["hookSpecificOutput"]["permissionDecision"] == "deny"


@pytest.mark.parametrize("event", ["Stop", "UserPromptSubmit", "SessionStart", "UserPromptExpansion", "PreToolUse"])
def test_inside_a_run_of_the_outer_loop_others_are_left_alone(stage: Stage, event: str) -> None:
    stage.env["UNTILDONE_RUN"] = "1"
    given = {
        **STOP,
        "cwd": str(stage.project),
        "command_name": "untildone:loop",
        "command_args": "x",
        "source": "resume",
    }
    stage.put(".stravinsky/continuation-loop.md", "---\nactive: true\ncompletion_promise: X\n---\ngoal\n")
    assert stage.launched(event, given) == {}
    assert stage.entry is None
    stage.start()
    assert stage.launched(event, {**given, "session_id": OTHER}) == {}
    assert (stage.turn, stage.log) == (1, "")
