"""Whether tasks are done: only where there are some, all completed, and readable."""

from pathlib import Path

import pytest

from hook.task_kit import OLDER, database
from untildone.hook.task_gate import tasks_left
from untildone.hook.task_store import Tasks


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def test_no_tasks_are_no_proof(project: Path) -> None:
    assert tasks_left(str(project)).startswith("there are no tasks")
    with Tasks(str(project)):
        pass
    assert tasks_left(str(project)).startswith("there are no tasks")


def test_open_ones_are_named_and_counted_to_the_last(project: Path) -> None:
    with Tasks(str(project)) as tasks:
        tasks.add("first")
    assert tasks_left(str(project)) == "a task is open:\nTASK-001 (pending): first"
    with Tasks(str(project)) as tasks:
        for number in range(12):
            tasks.add(f"more {number}")
        tasks.change("1", status="completed")
        tasks.change("2", status="failed")
    said = tasks_left(str(project)).splitlines()
    assert (said[0], said[-1], len(said)) == ("12 tasks are open:", "and 2 more", 12)


def test_done_is_when_every_task_is(project: Path) -> None:
    below = project / "src"
    below.mkdir()
    with Tasks(str(project)) as tasks:
        tasks.add("first")
        tasks.change("1", status="completed")
    assert tasks_left(str(project)) == tasks_left(str(below)) == ""


def test_what_cannot_be_read_is_not_done(project: Path) -> None:
    (project / ".untildone").mkdir()
    (project / ".untildone/tasks.db").write_text("no database")
    assert tasks_left(str(project)).startswith("the tasks cannot be read")


def test_the_older_layout_counts_too(project: Path) -> None:
    row = "INSERT INTO tasks (id, name, status) VALUES ('A', 'theirs', {!r});"
    older = database(project / ".devteam/devteam.db", OLDER + row.format("blocked"))
    assert tasks_left(str(project)) == "a task is open:\nA (blocked): theirs"
    database(older, "UPDATE tasks SET status = 'completed'")
    assert tasks_left(str(project)) == ""
