"""Tasks, changed: the one place that writes a task database. Ours, or the older layout's where that is there."""

import os
import sqlite3

from untildone.core.todos import is_open, one_line
from untildone.errors import UsageError
from untildone.hook.places import DEVTEAM, TASKS
from untildone.hook.task_reading import Task, bounded, columns_of, fields_of, rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

DONE = "completed"
_PATIENCE = 10.0
_LONGEST_NOTES = 3500
_MOST_TASKS = 1500
_OURS = """
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, title TEXT NOT NULL, description TEXT NOT NULL DEFAULT '', sprint TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT 'pending', depends TEXT NOT NULL DEFAULT '', attempts INTEGER NOT NULL DEFAULT 0,
    notes TEXT NOT NULL DEFAULT '', created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)
"""
_IGNORED = "# The state of loops in Claude Code: nobody else's business.\n*\n"


def task_file(project: str) -> str:
    """The database of a project: the older layout's where it is there, else ours."""
    older = os.path.join(project, DEVTEAM)
    return older if os.path.lexists(older) else os.path.join(project, TASKS)


class Tasks:
    """The tasks of a project, open for change: leave it and everything is written, or nothing is."""

    def __init__(self, project: str, *, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self.path = task_file(project)
        self.is_older = self.path.endswith(DEVTEAM)

    def __enter__(self) -> "Tasks":  # noqa: PYI034 `Self` would need typing
        folder = os.path.dirname(self.path)
        if os.path.islink(folder) or os.path.islink(self.path):
            raise UsageError(f"{self.path} is a link: tasks are kept in the project itself")
        try:
            os.makedirs(folder, exist_ok=True)
            self._ignore(folder)
            self._connection = sqlite3.connect(self.path, timeout=self._patience, isolation_level=None)
            bounded(self._connection)
            self._connection.execute("BEGIN IMMEDIATE")
            self._prepare()
        except (OSError, sqlite3.Error, sqlite3.Warning) as trouble:
            raise UsageError(f"{self.path} cannot be used ({one_line(str(trouble))}): mend or remove it") from trouble
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._connection.execute("COMMIT" if kind is None else "ROLLBACK")
        except sqlite3.Error as trouble:
            raise UsageError(f"{self.path} cannot be written ({one_line(str(trouble))})") from trouble
        finally:
            self._connection.close()

    def _ignore(self, folder: str) -> None:
        """Our own folder is left alone by git; the older one was the project's decision."""
        path = os.path.join(folder, ".gitignore")
        if self.is_older or os.path.lexists(path):
            return
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(_IGNORED)
        except FileExistsError:  # somebody else came first
            return

    def _prepare(self) -> None:
        if self.is_older:
            from untildone.hook.older_state import complete_layout

            complete_layout(self._connection)
        else:
            self._connection.execute(_OURS)
        self._columns = columns_of(self._connection, "tasks")
        self._fields = fields_of(self._columns)
        if not self._fields:
            self._connection.execute("ROLLBACK")
            self._connection.close()
            raise UsageError(f"{self.path} has no table of tasks that can be used: it needs id, title and status")

    def all(self) -> list[Task]:
        """Every task, in the order they were added."""
        return list(rows(self._connection))

    def find(self, key: str) -> Task:
        """A task by its id; TASK-007 may be called 7."""
        tasks = self.all()
        for wanted in (key, f"TASK-{key.zfill(3)}" if key.isdigit() else key.upper()):
            found = next((task for task in tasks if task.key == wanted), None)
            if found is not None:
                return found
        known = ", ".join(task.key for task in tasks[:8]) or "there are none yet"
        raise UsageError(f"no task {one_line(key)!r}: `untildone task ls` shows them ({one_line(known)})")

    def add(self, title: str, *, description: str = "", sprint: str = "", depends: "Sequence[str]" = ()) -> Task:
        """A new task; what it depends on has to be there."""
        named = one_line(title)
        if not named:
            raise UsageError("a task needs a title")
        tasks = self.all()
        if len(tasks) >= _MOST_TASKS:
            raise UsageError(f"there are {len(tasks)} tasks already: finish some of them first")
        waits_for = ",".join(self.find(key).key for key in depends)
        values = {"title": named, "status": "pending", "description": description[:_LONGEST_NOTES]}
        values |= {"sprint": one_line(sprint), "depends": waits_for}
        if self._columns[self._fields["key"]] != "INTEGER":  # SQLite numbers those by itself
            values["key"] = f"TASK-{max(map(_number, tasks), default=0) + 1:03}"
        given = {self._fields[field]: value for field, value in values.items() if field in self._fields and value}
        if self._fields["title"] == self._fields.get("description"):
            given[self._fields["title"]] = named
        names, marks = ", ".join(given), ", ".join("?" * len(given))
        number = self._change(f"INSERT INTO tasks ({names}) VALUES ({marks})", tuple(given.values()))  # noqa: S608 our own names
        return self.find(values.get("key") or str(number))

    def change(self, key: str, *, note: str = "", **fields: object) -> Task:
        """Set fields of one task, and add a note to what is noted there."""
        task = self.find(key)
        if note.strip():
            fields["notes"] = f"{task.notes}\n{note.strip()}".strip()[-_LONGEST_NOTES:]
        given = {self._fields[field]: value for field, value in fields.items() if field in self._fields}
        if "updated_at" in self._columns:
            given["updated_at"] = self._connection.execute("SELECT CURRENT_TIMESTAMP").fetchone()[0]
        if given:
            setting = ", ".join(f"{name} = ?" for name in given)
            where = f"CAST({self._fields['key']} AS TEXT) = ?"
            self._change(f"UPDATE tasks SET {setting} WHERE {where}", (*given.values(), task.key))  # noqa: S608 our own names
        return self.find(task.key)

    def waits_for(self, task: Task) -> list[str]:
        """What has to be done before this one."""
        undone = {other.key for other in self.all() if is_open(other.status)}
        return [key for key in task.depends if key in undone]

    def remember(self, **state: str) -> None:
        """Note something of the session where the older layout keeps it."""
        if self.is_older:
            from untildone.hook.older_state import set_state

            set_state(self._connection, state)

    def _change(self, statement: str, values: tuple[object, ...]) -> int | None:
        try:
            return self._connection.execute(statement, values).lastrowid
        except sqlite3.Error as trouble:
            raise UsageError(f"{self.path} refuses that ({one_line(str(trouble))})") from trouble


def _number(task: Task) -> int:
    digits = task.key.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 9 else 0  # noqa: PLR2004 no overflow
