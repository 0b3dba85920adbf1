import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook.stop_kit import HOOK, OTHER, SESSION, STOP, Stage, goes_on, next_text
from untildone.core import loop_file
from untildone.hook import commanding
from untildone.hook.answering import Call
from untildone.hook.commanding import on_userpromptexpansion


class Typing(Stage):
    """Commands as a person types them."""

    def event(self, command: str, text: str, session: str = SESSION) -> dict[str, Any]:
        return {
            "session_id": session,
            "transcript_path": "/t.jsonl",
            "cwd": str(self.project),
            "hook_event_name": "UserPromptExpansion",
            "expansion_type": "slash_command",
            "command_name": f"untildone:{command}",
            "command_args": text,
            "command_source": "plugin",
            "prompt": f"/untildone:{command} {text}",
        }

    def type(self, command: str, text: str = "", session: str = SESSION, **env: str) -> dict[str, Any]:
        call = Call(self.event(command, text, session), {**self.env, **env}, time.time())
        return on_userpromptexpansion(call) or {}

    @property
    def loop(self) -> loop_file.LoopFile:
        found = loop_file.parse(self.file.read_text())
        assert found is not None
        return found


@pytest.fixture
def stage(tmp_path: Path) -> Typing:
    return Typing(tmp_path)


def context(answer: dict[str, Any]) -> str:
    """What the model is told."""
    said = answer["hookSpecificOutput"]
    assert said["hookEventName"] == "UserPromptExpansion"
    return str(said["additionalContext"])


def refused(answer: dict[str, Any]) -> str:
    """The one thing that is said where nothing goes to the model."""
    assert set(answer) == {"decision", "reason"}
    assert answer["decision"] == "block"
    return str(answer["reason"])


def test_installed_twice_a_prompt_is_answered_once(stage: Typing) -> None:
    events = [{**stage.event("loop", "make it work"), "prompt_id": name} for name in ("one", "one", "two")]
    begun, again, other = (on_userpromptexpansion(Call(event, stage.env, 1.0)) for event in events)
    assert (begun is not None and "the loop holds this session" in begun["systemMessage"], again) == (True, None)
    assert "a loop is at work in this folder" in refused(other or {})


OURS = HOOK.parent / "plugin" / "commands" / "loop.md"
COPY, SKILL = ".claude/commands/untildone/loop.md", ".claude/skills/untildone:loop/SKILL.md"


@pytest.mark.parametrize(
    ("source", "files", "works"),
    [
        ("plugin", {}, True),
        ("userSettings", {f"../{COPY}": True}, True),
        ("userSettings", {f"../{COPY}": False}, False),
        ("userSettings", {}, False),
        ("projectSettings", {COPY: True}, True),
        ("projectSettings", {COPY: False}, False),
        ("projectSettings", {COPY: False, f"../{COPY}": True}, False),
        ("projectSettings", {SKILL: False}, False),
        ("projectSettings", {COPY: True, SKILL: False}, False),
        ("something new", {}, False),
    ],
)
def test_a_command_of_the_same_name_is_not_taken_for_ours(
    stage: Typing, source: str, files: dict[str, bool], works: bool
) -> None:
    for name, is_ours in files.items():
        stage.put(name, OURS.read_text() if is_ours else "Do EVIL with $ARGUMENTS")
    event = {**stage.event("loop", "make it work"), "command_source": source}
    answer = on_userpromptexpansion(Call(event, stage.env, 1.0)) or {}
    assert (stage.entry is not None) is works
    if not works:
        assert "/untildone:loop is not ours here, so it did nothing" in refused(answer)


def test_a_folder_above_the_project_can_hold_such_a_command_too(stage: Typing) -> None:
    stage.put(COPY, "EVIL")
    inner = stage.project / "packages" / "one"
    inner.mkdir(parents=True)
    event = {**stage.event("loop", "make it work"), "command_source": "projectSettings", "cwd": str(inner)}
    answer = on_userpromptexpansion(Call(event, {**stage.env, "CLAUDE_PROJECT_DIR": str(inner)}, 1.0)) or {}
    assert COPY in refused(answer)


def test_a_loop_is_set_up_as_it_was_typed(stage: Typing) -> None:
    answer = stage.type(
        "loop",
        "fix the user's login --max 5 --promise 'ALL DONE' --promise FINE --check 'test -e done' --next 'document it'",
    )
    assert (stage.loop.max_iterations, stage.loop.promises) == (5, ("ALL DONE", "FINE"))
    assert stage.loop.body.strip() == "fix the user's login"
    assert (stage.entry["checks"], stage.entry["session"]) == (["test -e done"], SESSION)
    for piece in ("Turn 1 of at most 5 turns", "fix the user's login", "  ALL DONE", "  FINE", "  test -e done"):
        assert piece in context(answer)
    assert answer["systemMessage"].startswith("untildone: the loop holds this session: at most 5 turns")
    assert "decision" not in answer


def test_it_works_through_the_launcher_and_then_holds_the_session(stage: Typing) -> None:
    answer = stage.launched("UserPromptExpansion", stage.event("loop", "make it work --max 3"))
    assert "make it work" in context(answer)
    stop = {**STOP, "cwd": str(stage.project)}
    assert goes_on(stage.launched("Stop", stop))
    assert stage.launched("Stop", {**stop, "session_id": OTHER}) == {}
    said = stage.launched("UserPromptExpansion", stage.event("cancel", ""))
    assert "called off" in refused(said)
    assert stage.launched("Stop", stop) == {}
    assert stage.log == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "needs a goal"),
        ("go --mx 3", "did you mean --max?"),
        ("go --max many", "--max needs a whole number"),
        ("go --max 0", "--max needs a whole number"),
        ("go --max -3", "--max needs a whole number"),
        ("go --max 99999999999999999999", "--max needs a whole number"),
        ("go --max 20000", "20000 turns"),
        ("go --deadline soon", "no moment"),
        ("go --deadline 2001-01-01T00:00", "over already"),
        ("go --time x", "not a duration"),
        ("go --time 1h --minutes 5", "give one of them"),
        ("go --minutes 0", "no time at all"),
        ("go --template no-such", "no template"),
        ("--from-todos", "no task is open"),
        ("--template tests --from-todos", "give one of them"),
        ("--adopt", "no loop waits"),
        ("--adopt go", "leave the goal"),
        ("go --promise ''", "one line"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_no_loop(stage: Typing, text: str, said: str) -> None:
    line = refused(stage.type("loop", text))
    assert said in line
    assert line.startswith("untildone: ")
    assert "\n" not in line
    assert (stage.entry, stage.file.exists(), stage.log) == (None, False, "")


@pytest.mark.parametrize("text", ["-h", "--help", " --help "])
@pytest.mark.parametrize("command", commanding._COMMANDS)
def test_help_is_help(stage: Typing, command: str, text: str) -> None:
    said = refused(stage.type(command, text))
    assert f"/untildone:{command}" in said
    assert stage.entry is None


def test_the_help_names_every_option(stage: Typing) -> None:
    for command, known in {
        "loop": commanding._LOOP,
        "implement": commanding._LIMITS,
        "sprint": commanding._SPRINT,
    }.items():
        said = refused(stage.type(command, "--help"))
        assert set(re.findall(r"--([a-z][a-z-]*)", said)) == set(known)


def test_a_session_that_nobody_has_open_is_told(stage: Typing) -> None:
    stage.type("loop", "goal", session=OTHER, CLAUDE_PID=str(os.getpid()))
    assert "not open" not in refused(stage.type("status"))
    stage.change_entry(holder=[str(os.getpid()), "1", stage.entry["holder"][2]])
    assert "which is not open: `/untildone:loop --adopt`" in refused(stage.type("status"))


def test_limits_of_time(stage: Typing) -> None:
    stage.type("loop", "go --time 1h30m --deadline 2999-01-01T00:00 --turn-time 10m")
    assert (stage.entry["total_seconds"], stage.entry["iteration_seconds"]) == (5400.0, 600.0)
    assert stage.loop.deadline is not None
    stage.type("cancel")
    stage.type("loop", "go --minutes 5 --deadline 07:30")
    assert stage.entry["total_seconds"] == 300.0
    assert stage.loop.deadline is not None
    assert 0 < stage.loop.deadline - time.time() <= 86_400 + 3600


def test_a_template_brings_its_goal_and_what_was_typed_wins(stage: Typing) -> None:
    stage.type("loop", "--template tests --max 4 only the parser")
    assert stage.loop.max_iterations == 4
    assert stage.loop.body.rstrip().endswith("\n\nonly the parser")
    assert stage.loop.promises


def test_a_loop_made_of_open_todos(stage: Typing) -> None:
    todos = [{"content": "Write the parser", "status": "pending"}, {"content": "Old", "status": "completed"}]
    stage.put(".claude/todo_state.json", json.dumps({"todos": todos}))
    answer = stage.type("loop", "--from-todos")
    assert "- [ ] Write the parser" in context(answer)
    assert "Old" not in stage.loop.body
    assert "Write the parser" in next_text(stage.stop("EXIT_SIGNAL: true"))


def test_the_cap_of_claude_code_is_told_before_it_bites(stage: Typing) -> None:
    assert "8 stops" in stage.type("loop", "go --max 20")["systemMessage"]
    stage.type("cancel")
    assert "8 stops" not in stage.type("loop", "go --max 20", CLAUDE_CODE_STOP_HOOK_BLOCK_CAP="100")["systemMessage"]
    stage.type("cancel")
    assert "8 stops" not in stage.type("loop", "go --max 9")["systemMessage"]


def test_a_loop_of_the_terminal_is_adopted_by_the_session_that_asks(stage: Typing) -> None:
    stage.start("from the terminal", session="")
    assert "from the terminal" in context(stage.type("loop", "--adopt"))
    assert goes_on(stage.stop())


def test_adopting_a_foreign_file_says_that_its_checks_do_not_count(stage: Typing) -> None:
    stage.put(".untildone/loop.md", '---\nmax_iterations: 3\nchecks: ["touch gotcha"]\n---\ngo\n')
    answer = stage.type("loop", "--adopt")
    assert "checks in .untildone/loop.md are not run" in answer["systemMessage"]
    assert "touch gotcha" not in context(answer)


def test_adopting_the_older_marker(stage: Typing) -> None:
    stage.put(".multi-agent/autonomous-mode", "")
    assert "untildone task" in context(stage.type("loop", "--adopt"))
    assert goes_on(stage.stop())


def test_status_goes_nowhere_but_to_the_person(stage: Typing) -> None:
    assert "no loop" in refused(stage.type("status"))
    stage.type("loop", "make \x1b[31mit\x1b[0m work --max 3 --check true")
    said = refused(stage.type("status"))
    for piece in ("turn 1 of 3, holds this session", "goal: make it work", "check: true", ".untildone/loop.md"):
        assert piece in said
    assert "\x1b" not in said
    assert "holds another session" in refused(stage.type("status", session=OTHER))
    assert "takes nothing" in refused(stage.type("status", "now"))
    stage.file.write_text("broken")
    assert "cannot be read" in refused(stage.type("status"))


def test_a_loop_that_is_called_off_is_recorded_as_not_done(stage: Typing) -> None:
    assert "no loop" in refused(stage.type("cancel"))
    stage.type("loop", "go")
    assert "takes nothing" in refused(stage.type("cancel", "please"))
    assert "another session" in refused(stage.type("cancel", session=OTHER))
    (told,) = stage.told("released")
    assert (told["reason"], told["done"]) == ("stop_requested", False)
    assert len(stage.history()) == 1


@pytest.mark.parametrize(
    ("command", "text", "turns", "goal"),
    [
        ("implement", "", 50, "Bring this project to completion"),
        ("implement", "a login page --max-iterations 7", 7, "a login page"),
        ("sprint", "all --autonomous", 50, "Execute all sprints"),
        ("sprint", "2 --autonomous --max-iterations 100", 100, "Execute sprint 2"),
    ],
)
def test_the_controller(stage: Typing, command: str, text: str, turns: int, goal: str) -> None:
    said = context(stage.type(command, text))
    assert (stage.loop.max_iterations, stage.entry["mode"]) == (turns, "autonomous")
    for piece in (goal, "EXIT_SIGNAL: true", "untildone task done ID", f"of at most {turns} turns"):
        assert piece in said
    assert goes_on(stage.stop("EXIT_SIGNAL: false"))


def test_a_sprint_without_autonomy_is_no_loop(stage: Typing) -> None:
    assert stage.type("sprint", "all") == {}
    assert "without --autonomous" in refused(stage.type("sprint", "all --max-iterations 5"))
    assert stage.entry is None


def test_a_question_is_kept_and_nobody_waits(stage: Typing) -> None:
    assert "no loop" in refused(stage.type("ask", "why?"))
    assert "no loop" in refused(stage.type("ask"))
    stage.type("loop", "go")
    assert "asked nothing" in refused(stage.type("ask"))
    assert "Do not wait" in context(stage.type("ask", "which\n  database?"))
    stage.type("ask", "which database?")
    (told,) = stage.told("asked")
    assert (told["question"], told["by"]) == ("which database?", "user")
    assert "- which database?" in refused(stage.type("ask"))


@pytest.mark.parametrize("name", ["untildone:dance", "loop", "other:loop", "", "untildone:"])
def test_what_is_not_ours_is_left_alone(stage: Typing, name: str) -> None:
    assert on_userpromptexpansion(Call({"command_name": name, "command_args": "go"}, stage.env, 1.0)) is None


def test_a_state_folder_that_cannot_be_written_is_one_line(stage: Typing) -> None:
    stage.home.write_text("not a folder")
    line = refused(stage.type("loop", "go"))
    assert ("cannot be written" in line, "\n" in line, stage.file.exists()) == (True, False, False)


@given(st.sampled_from(["loop", "implement", "sprint", "ask", "cancel", "status"]), st.text())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_is_typed_is_answered_or_refused(stage: Typing, command: str, text: str) -> None:
    stage.type(command, text)
    stage.type("cancel")
    assert stage.entry is None
