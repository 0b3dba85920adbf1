"""Open work, wherever it is written down, whoever wrote it."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from hook.task_kit import OLDER, database
from untildone.hook.task_store import Tasks
from untildone.hook.todo_capture import todo_path
from untildone.hook.work import all_todos, goal_from_todos, open_work

SESSION = "dd5d78c9-40ac-4541-a879-f014a7314b85"


def test_an_empty_project_has_no_open_work(tmp_path: Path) -> None:
    work = open_work(str(tmp_path), [])
    assert (work.open, work.lines, work.failed_point) == (0, [], "")


def test_boxes_of_a_file_are_open_work_and_optional_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "TODO.md").write_text("- [ ] one\n- [ ] two\n- [x] three\n\n# Optional\n- [ ] four\n")
    work = open_work(str(tmp_path), ["TODO.md"])
    assert (work.open, work.lines) == (2, ["TODO.md: one and 1 more"])


@pytest.mark.parametrize("make", ["nothing", "folder", "pipe", "huge"])
def test_a_file_that_cannot_be_read_shows_nothing_as_done(tmp_path: Path, make: str) -> None:
    path = tmp_path / "TODO.md"
    match make:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "huge":
            path.write_bytes(b"x" * (2 << 20))
    work = open_work(str(tmp_path), ["TODO.md"])
    assert work.open == 1
    assert "cannot be read" in work.lines[0]


def test_our_tasks_are_open_until_they_are_completed(tmp_path: Path) -> None:
    with Tasks(str(tmp_path)) as tasks:
        for title in ("one", "two", "three", "four", "five"):
            tasks.add(title)
        tasks.change("1", status="completed")
        tasks.change("2", status="in_progress")
        tasks.change("3", status="failed", attempts=2)
        tasks.change("4", status="blocked")
    work = open_work(str(tmp_path), ["tasks.db"])
    assert work.open == 4
    assert work.lines[0] == "TASK-002 (in_progress): two"
    assert work.failed_point == "TASK-003"


def test_tasks_of_an_older_layout_count_in_any_shape(tmp_path: Path) -> None:
    rows = "INSERT INTO tasks (id, name, status) VALUES ('T1', 'one', 'pending'), ('T2', 'two', 'completed')"
    database(tmp_path / ".devteam/devteam.db", f"{OLDER}; {rows}")
    work = open_work(str(tmp_path), [])
    assert (work.open, work.lines) == (1, ["T1 (pending): one"])


HOSTILE = {
    "view": "CREATE VIEW tasks AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT i AS id, 'x' AS title, 'pending' AS status FROM n",
    "no columns of tasks": "CREATE TABLE tasks (a, b)",
}


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE)
def test_what_only_looks_like_tasks_shows_nothing_as_done(tmp_path: Path, script: str) -> None:
    database(tmp_path / ".untildone/tasks.db", script)
    [line] = open_work(str(tmp_path), ["tasks.db"]).lines
    assert "its tasks are no table with id, title and status" in line


def test_a_database_without_tasks_holds_none(tmp_path: Path) -> None:
    database(tmp_path / ".untildone/tasks.db", "CREATE TABLE other (id, title, status)")
    assert open_work(str(tmp_path), ["tasks.db"]).open == 0


OPEN = [
    "todo",
    "TODO",
    "open",
    "in-progress",
    "In Progress",
    "wip",
    "review",
    "",
    "PENDING ",
    "queued",
    "blocked",
    "failed",
]
CLOSED = ["completed", "Complete", "done ", "DONE", "cancelled", "canceled", "skipped"]


@pytest.mark.parametrize(("status", "is_open"), [*((word, True) for word in OPEN), *((word, False) for word in CLOSED)])
def test_only_what_says_so_is_done(tmp_path: Path, status: str, is_open: bool) -> None:
    row = f"INSERT INTO tasks VALUES ('T1', 'one', '{status}')"
    database(tmp_path / ".devteam/devteam.db", f"CREATE TABLE tasks (id, title, status); {row}")
    write_todos(tmp_path / ".claude/todo_state.json", status)
    for source in (".devteam/devteam.db", ".claude/todo_state.json"):
        assert open_work(str(tmp_path), [source]).open == int(is_open), source


def test_a_task_without_any_status_is_open(tmp_path: Path) -> None:
    row = "INSERT INTO tasks VALUES ('T1', 'one', NULL)"
    database(tmp_path / ".devteam/devteam.db", f"CREATE TABLE tasks (id, title, status); {row}")
    assert open_work(str(tmp_path), []).lines == ["T1 (no status): one"]


def test_the_last_of_many_rows_counts_as_much_as_the_first(tmp_path: Path) -> None:
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) INSERT INTO tasks "
    rows = f"{many} SELECT i, 'x', 'completed' FROM n; INSERT INTO tasks VALUES ('LAST', 'x', 'pending')"
    database(tmp_path / ".untildone/tasks.db", f"CREATE TABLE tasks (id, title, status); {rows}")
    assert open_work(str(tmp_path), ["tasks.db"]).lines == ["LAST (pending): x"]
    assert [todo.key for todo in all_todos(str(tmp_path), home="", session="")] == ["LAST"]
    todos = [{"content": "x", "status": "completed"}] * 600 + [{"content": "last", "status": "pending"}]
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/todo_state.json").write_text(json.dumps({"todos": todos}))
    assert open_work(str(tmp_path), [".claude/todo_state.json"]).lines == ["pending: last"]


def test_a_list_that_is_a_link_out_of_the_project_shows_nothing(tmp_path: Path) -> None:
    elsewhere, project = tmp_path / "elsewhere.md", tmp_path / "project"
    elsewhere.write_text("nothing to do")
    project.mkdir()
    (project / "TODO.md").symlink_to(elsewhere)
    assert open_work(str(project), ["TODO.md"]).lines == ["TODO.md cannot be read, so nothing shows that it is done"]
    (project / "real.md").write_text("- [x] done")
    (project / "TODO.md").unlink()
    (project / "TODO.md").symlink_to("real.md")
    assert open_work(str(project), ["TODO.md"]).open == 0


@pytest.mark.parametrize("box", ["-[ ] x", "- [] x", "- [~] x", "- [/] x", "- [\u00a0] x"])
def test_careless_boxes_are_boxes(tmp_path: Path, box: str) -> None:
    (tmp_path / "TODO.md").write_text(f"- [x] one\n{box}\n")
    assert open_work(str(tmp_path), ["TODO.md"]).lines == ["TODO.md: x"]


def test_columns_that_are_computed_are_not_asked_for(tmp_path: Path) -> None:
    path = database(tmp_path / ".untildone/tasks.db", "CREATE TABLE tasks (id, status)")
    connection = sqlite3.connect(path)
    connection.executemany("INSERT INTO tasks VALUES (?, 'pending')", [(n,) for n in range(2000)])
    endless = "(length(replace(hex(zeroblob(9000000)), '00', 'a' || id)))"  # minutes for these rows
    connection.execute(f"ALTER TABLE tasks ADD COLUMN title AS {endless}")
    connection.commit()
    connection.close()
    [line] = open_work(str(tmp_path), ["tasks.db"]).lines
    assert "its tasks are no table" in line


def test_values_without_bound_are_not_read(tmp_path: Path) -> None:
    table = "CREATE TABLE tasks (id, title, status); INSERT INTO tasks VALUES (1, hex(zeroblob(4000000)), 'pending')"
    database(tmp_path / ".untildone/tasks.db", table)
    [line] = open_work(str(tmp_path), ["tasks.db"]).lines
    assert "cannot be read" in line


def test_rows_of_every_kind_are_text_in_the_end(tmp_path: Path) -> None:
    rows = "INSERT INTO tasks VALUES (x'ff00', x'1b5b324a', 'pending'), (NULL, NULL, 'pending'), (1.5, 2, 'PENDING')"
    database(tmp_path / ".untildone/tasks.db", f"CREATE TABLE tasks (id, title, status); {rows}")
    work = open_work(str(tmp_path), ["tasks.db"])
    assert work.open == 3
    assert all(line.isprintable() or "\ufffd" in line for line in work.lines)


@pytest.mark.parametrize(
    "content", [b"", b"not a database at all, but long enough to look like one " * 20, b"\0" * 4096]
)
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ".untildone/tasks.db"
    path.parent.mkdir()
    path.write_bytes(content)
    work = open_work(str(tmp_path), ["tasks.db"])
    assert work.open == (1 if content.strip(b"\0") else work.open)


def test_a_locked_database_shows_nothing_as_done_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    with Tasks(str(tmp_path)) as tasks:
        tasks.add("one")
    holder = sqlite3.connect(tmp_path / ".untildone/tasks.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    work = open_work(str(tmp_path), ["tasks.db"])
    holder.close()
    assert work.open == 1
    assert "cannot be read" in work.lines[0]


@pytest.mark.parametrize("make", ["link", "pipe", "folder"])
def test_a_database_that_is_no_file_of_this_project_is_not_opened(tmp_path: Path, make: str) -> None:
    path = tmp_path / ".untildone/tasks.db"
    path.parent.mkdir()
    if make == "link":
        path.symlink_to(database(tmp_path / "elsewhere.db", "CREATE TABLE tasks (id, title, status)"))
    elif make == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    work = open_work(str(tmp_path), ["tasks.db"])
    assert work.lines == ["tasks.db is a link or no file, so nothing shows that its tasks are done"]


def write_todos(path: Path, *statuses: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    todos = [{"content": f"item {n}", "status": status} for n, status in enumerate(statuses, 1)]
    path.write_text(json.dumps({"todos": todos}))


def test_the_lists_of_todos_count(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_todos(tmp_path / ".claude/todo_state.json", "pending", "completed")
    write_todos(Path(todo_path(str(home), SESSION)), "in_progress")
    assert open_work(str(tmp_path), [], home=str(home), session=SESSION).open == 2
    assert open_work(str(tmp_path), [".claude/todo_state.json"], home=str(home), session=SESSION).open == 1
    assert open_work(str(tmp_path), ["todos"], home=str(home), session="another").open == 0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1, 2", "{}", '{"tasks": []}', '{"todos": 3}', "\x00\xff", '{"todos": [{"content": 1}]}', "[" * 100_000],
)
def test_a_malformed_list_shows_nothing_as_done(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".claude/todo_state.json"
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))
    [line] = open_work(str(tmp_path), [".claude/todo_state.json"]).lines
    assert "cannot be read as a whole" in line
    assert all_todos(str(tmp_path), home="", session="") == []


def test_what_of_a_list_can_be_read_is_told_as_well(tmp_path: Path) -> None:
    path = tmp_path / ".claude/todo_state.json"
    path.parent.mkdir()
    path.write_text('{"todos": [{"content": "one", "status": "pending"}, {"task": "two", "status": "pending"}]}')
    work = open_work(str(tmp_path), [])
    assert (work.open, work.lines[0]) == (2, "pending: one")
    path.write_text("[]")
    assert open_work(str(tmp_path), []).open == 0


def test_a_session_with_a_name_that_leads_elsewhere_has_no_list(tmp_path: Path) -> None:
    assert [todo_path(str(tmp_path), name) for name in ("../x", "", "a/b", "é", "x" * 200)] == [""] * 5


def test_a_goal_can_be_made_of_what_is_open(tmp_path: Path) -> None:
    write_todos(tmp_path / ".claude/todo_state.json", "pending", "in_progress", "completed")
    with Tasks(str(tmp_path)) as tasks:
        tasks.add("a task")
    goal = goal_from_todos(str(tmp_path / "home"), str(tmp_path), SESSION)
    assert goal.splitlines()[2:] == ["- [ ] item 2 (in progress)", "- [ ] item 1", "- [ ] TASK-001: a task"]
    assert len(all_todos(str(tmp_path), home="", session="")) == 4
    assert goal_from_todos("", str(tmp_path / "nothing"), "") == ""
