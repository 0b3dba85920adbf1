"""`untildone task`: for people and for agents."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.cli_kit import Say
from untildone.hook import register, spool, starting


def test_a_task_from_its_beginning_to_its_end(say: Say, project: Path) -> None:
    assert say("task", "add", "Write it", "--sprint", "1").out == "TASK-001 added: Write it\n"
    assert say("task", "add", "Test it", "--depends", "TASK-001").out == "TASK-002 added: Test it\n"
    early = say("task", "start", "2")
    assert (early.code, early.err) == (2, "untildone: 2 waits for TASK-001: do that first\n")
    assert say("task", "start", "1").code == 0
    assert "attempt 1" in say("task", "fail", "1", "--note", "no luck").out
    assert say("task", "done", "1").out == "TASK-001 is done; 1 more open\n"
    assert say("task", "done", "TASK-002").out == "TASK-002 is done; nothing is open any more\n"
    listed = json.loads(say("task", "ls", "--json").out)
    assert listed["open"] == 0
    assert [(task["status"], task["attempts"], task["notes"]) for task in listed["tasks"]] == [
        ("completed", 1, "no luck"),
        ("completed", 0, ""),
    ]


def test_tasks_can_be_planned_and_listed_by_sprint(say: Say, project: Path) -> None:
    for title in ("one", "two", "three"):
        say("task", "add", title)
    assert say("task", "plan", "1", "2", "--sprint", "A").code == 0
    assert say("task", "plan", "2", "--depends", "1").code == 0
    assert "wait for itself" in say("task", "plan", "1", "--depends", "2").err
    said = say("task", "ls", "--sprint", "A").out
    assert "one" in said
    assert "three" not in said
    assert "sprint A: 0/2 completed" in said


def test_a_blocked_task_stays_open_and_is_no_failure(say: Say, project: Path) -> None:
    say("task", "add", "x", "--json")
    task = json.loads(say("task", "fail", "1", "--blocked", "--note", "needs a key", "--json").out)
    assert (task["status"], task["attempts"]) == ("blocked", 0)
    assert json.loads(say("task", "ls", "--open", "--json").out)["open"] == 1


def test_failing_again_and_again_at_the_same_point_counts_for_the_loop(say: Say, store: Path, project: Path) -> None:
    entry = starting.start(str(store), str(project), goal="g", session="s", now=time.time(), mode="autonomous")
    say("task", "add", "x")
    say("task", "add", "y")
    for number in range(1, 3):
        assert f"{number} of 5 failures in a row" in say("task", "fail", "1").out
    assert "1 of 5" in say("task", "fail", "2").out
    assert "1 of 5" in say("task", "fail", "1").out
    found = register.find(str(store), str(project))
    assert found is not None
    assert (found["failures"], found["failure_point"]) == (1, "task: TASK-001")
    say("task", "done", "2")
    found = register.find(str(store), str(project))
    assert found is not None
    assert (found["failures"], found["failure_point"]) == (0, "")
    lines, _ = spool.since(str(store), entry["loop"], 0)
    assert [line["failures"] for line in lines if line["what"] == "failed"] == [1, 2, 1, 1]


def test_from_a_folder_below_the_project(say: Say, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say("task", "add", "x")
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    assert "TASK-001" in say("task", "ls").out


@pytest.mark.parametrize(
    "argv",
    [
        ("nonsense",),
        ("add",),
        ("add", " "),
        ("done", "7"),
        ("ls", "--bogus"),
        ("ls", "--status", "x"),
        ("add", "x", "--depends", "9"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_one_line(say: Say, project: Path, argv: tuple[str, ...]) -> None:
    said = say("task", *argv)
    assert said.code == 2
    assert said.err.startswith("untildone: ")
    assert said.err.count("\n") == 1
    assert not (project / ".untildone/tasks.db").exists() or say("task", "ls").out.startswith("no tasks yet")


def test_help_and_an_empty_project(say: Say, project: Path) -> None:
    assert "add" in say("task").out
    assert "--sprint" in say("task", "add", "--help").out
    assert say("task", "ls").out.startswith("no tasks yet")
    assert not (project / ".untildone").exists()


def test_a_hostile_title_meets_no_terminal(say: Say, project: Path) -> None:
    say("task", "add", "\x1b[2J\x07evil\u202e")
    said = say("task", "ls").out
    assert "evil" in said
    assert said.replace("\n", "").isprintable()


def test_it_needs_nothing_but_python(project: Path, store: Path) -> None:
    hook = Path(register.__file__).parent
    code = (
        "import sys, os, time; p = type(sys)('untildone'); p.__path__ = [sys.argv[1]]; sys.modules['untildone'] = p\n"
        "from untildone.hook.task_command import run_task\n"
        "print(run_task(['add', 'x'], os.environ, time.time()))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(hook.parent)],
        cwd=project,
        env={"UNTILDONE_STORE": str(store), "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout == "TASK-001 added: x\n"
