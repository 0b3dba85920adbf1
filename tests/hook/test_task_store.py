"""Tasks, changed: ours, and in whatever shape an older layout has them."""

import json
import os
import threading
from pathlib import Path

import pytest

from hook.task_kit import OLDER, asked, database
from untildone.errors import UsageError
from untildone.hook.older_state import note_turn
from untildone.hook.task_reading import read_tasks
from untildone.hook.task_store import Tasks, task_file


def test_the_database_is_made_with_the_first_task_and_git_leaves_it_alone(tmp_path: Path) -> None:
    with Tasks(str(tmp_path)) as tasks:
        task = tasks.add("  one\nline ", sprint="1", description="how")
    assert (task.key, task.title, task.status, task.sprint, task.description) == (
        "TASK-001",
        "one line",
        "pending",
        "1",
        "how",
    )
    assert (tmp_path / ".untildone/.gitignore").read_text().endswith("*\n")
    assert [found.key for found in read_tasks(task_file(str(tmp_path)))] == ["TASK-001"]


def test_numbers_go_on_after_the_highest(tmp_path: Path) -> None:
    with Tasks(str(tmp_path)) as tasks:
        assert [tasks.add("x").key for _ in range(3)] == ["TASK-001", "TASK-002", "TASK-003"]


def test_a_task_waits_for_what_it_depends_on(tmp_path: Path) -> None:
    with Tasks(str(tmp_path)) as tasks:
        tasks.add("one")
        second = tasks.add("two", depends=["1"])
        assert tasks.waits_for(second) == ["TASK-001"]
        tasks.change("task-001", status="completed")
        assert tasks.waits_for(second) == []


def test_trouble_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    with Tasks(str(tmp_path)) as tasks:
        tasks.add("one")

    def break_off() -> None:
        with Tasks(str(tmp_path)) as tasks:
            tasks.add("two")
            tasks.change("9", status="completed")

    with pytest.raises(UsageError, match="no task '9'"):
        break_off()
    assert len(read_tasks(task_file(str(tmp_path)))) == 1


def test_two_may_make_the_folder_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Tasks(str(tmp_path)) as tasks:
        tasks.add("one")
    # The moment between the look and the writing: somebody else's file is there, and was not seen.
    seen = os.path.lexists
    monkeypatch.setattr(os.path, "lexists", lambda path: not str(path).endswith(".gitignore") and seen(path))
    with Tasks(str(tmp_path)) as tasks:
        tasks.add("two")
    assert len(read_tasks(task_file(str(tmp_path)))) == 2


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(5):
            with Tasks(str(tmp_path)) as tasks:
                tasks.add("x")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({task.key for task in read_tasks(task_file(str(tmp_path)))}) == 20


@pytest.mark.parametrize(
    "script", ["CREATE TABLE tasks (a)", "CREATE VIEW tasks AS SELECT 1 AS id, 2 AS title, 3 AS status"]
)
def test_a_table_of_something_else_is_not_written(tmp_path: Path, script: str) -> None:
    database(tmp_path / ".untildone/tasks.db", script)
    with pytest.raises(UsageError, match="no table of tasks"), Tasks(str(tmp_path)) as tasks:
        tasks.add("x")


def test_a_spoilt_database_and_a_link_are_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / ".untildone/tasks.db"
    path.parent.mkdir()
    path.write_bytes(b"no database" * 100)
    with pytest.raises(UsageError, match="cannot be used"), Tasks(str(tmp_path)):
        pass
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(UsageError, match="is a link"), Tasks(str(tmp_path)):
        pass
    assert not (tmp_path / "elsewhere.db").exists()


# --- the older layout --------------------------------------------------------------------------------------------


def test_where_the_older_database_is_that_one_is_changed(tmp_path: Path) -> None:
    path = database(tmp_path / ".devteam/devteam.db", OLDER)
    with Tasks(str(tmp_path)) as tasks:
        tasks.add("one", sprint="S1")
        tasks.change("1", status="in_progress", note="has no place there")
    assert asked(path, "SELECT id, sprint_id, name, status FROM tasks") == [("TASK-001", "S1", "one", "in_progress")]
    assert asked(path, "SELECT mine FROM v_current_session") == [("50",)]
    assert not (tmp_path / ".untildone").exists()


def test_an_empty_older_database_gets_its_layout(tmp_path: Path) -> None:
    path = tmp_path / ".devteam/devteam.db"
    path.parent.mkdir()
    path.touch()
    with Tasks(str(tmp_path)) as tasks:
        tasks.add("one")
        tasks.remember(max_iterations="100")
    [row] = asked(path, "SELECT max_iterations, pending_tasks, completed_tasks FROM v_current_session")
    assert row == ("100", 1, 0)


def test_numbered_tasks_keep_their_numbers(tmp_path: Path) -> None:
    table = "CREATE TABLE tasks (id INTEGER PRIMARY KEY, title TEXT, status TEXT DEFAULT 'pending')"
    path = database(tmp_path / ".devteam/devteam.db", table)
    with Tasks(str(tmp_path)) as tasks:
        assert tasks.add("one").key == "1"
        tasks.change("1", status="completed")
    assert asked(path, "SELECT * FROM tasks") == [(1, "one", "completed")]


def test_a_refusal_of_theirs_is_one_clear_line(tmp_path: Path) -> None:
    database(
        tmp_path / ".devteam/devteam.db", "CREATE TABLE tasks (id TEXT, title TEXT, status TEXT, owner TEXT NOT NULL)"
    )
    with pytest.raises(UsageError, match="refuses that"), Tasks(str(tmp_path)) as tasks:
        tasks.add("x")


def test_a_turn_is_noted_where_the_older_layout_keeps_it(tmp_path: Path) -> None:
    path = database(tmp_path / ".devteam/devteam.db", OLDER)
    session = tmp_path / ".multi-agent/session.json"
    session.parent.mkdir()
    session.write_text('{"mine": 1, "current_iteration": 3}')
    note_turn(str(tmp_path), turn=4, limit=100, failures=5, point="task: T1", now=0.0)
    state = dict(asked(path, "SELECT key, value FROM session_state"))
    assert (state["current_iteration"], state["max_iterations"], state["autonomous_mode_enabled"]) == (
        "4",
        "100",
        "true",
    )
    breaker = {"consecutive_failures": 5, "max_failures": 5, "last_failure_point": "task: T1", "state": "open"}
    assert json.loads(str(state["circuit_breaker"])) == breaker
    assert state["session_last_activity"] == "1970-01-01T00:00:00Z"
    written = json.loads(session.read_text())
    assert (written["mine"], written["current_iteration"], written["consecutive_failures"]) == (1, 4, 5)


def test_a_turn_is_noted_nowhere_else(tmp_path: Path) -> None:
    note_turn(str(tmp_path), turn=4, limit=100, failures=0, point="", now=0.0)
    assert list(tmp_path.iterdir()) == []
    for name in (".multi-agent/session.json", ".devteam/devteam.db"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("nonsense, whatever it should be")
    note_turn(str(tmp_path), turn=4, limit=100, failures=0, point="", now=0.0)
    assert (tmp_path / ".multi-agent/session.json").read_text() == "nonsense, whatever it should be"
