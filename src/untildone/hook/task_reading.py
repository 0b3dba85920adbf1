"""Task databases, looked at: ours and an older layout's. They lie in the project, so anybody may have made them.

Opened read-only, never waiting long, with a bound on the work a hostile schema can cause. Imported only where such a
file exists: sqlite3 takes longer to load than the whole hook.
"""

import os
import sqlite3
import stat
import time

from untildone.core.todos import CLOSED, one_line, status_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ORDER = ("in_progress", "pending", "failed", "blocked")
"""How open tasks are shown; those with a status of their own come last."""
_PATIENCE = 0.5
_SECONDS = 3.0
"""So long may be computed for us; a table may be made of functions instead of data."""
_STEPS = 10_000
_LONGEST_VALUE = 1 << 20
_MOST_ROWS = 2000
_LONGEST_CELL = 4000
_COLUMNS = {
    "key": ("id", "task_id"),
    "title": ("title", "name", "subject", "description", "content"),
    "status": ("status",),
    "sprint": ("sprint", "sprint_id"),
    "depends": ("depends", "depends_on", "dependencies"),
    "attempts": ("attempts", "attempt_count", "iterations"),
    "notes": ("notes", "note"),
    "description": ("description",),
}
"""What a field may be called; the first that is there is used."""


class Unreadable(Exception):
    """The database cannot be read: what it is, in words."""


class Task:
    """One task as a database has it."""

    __slots__ = ("attempts", "depends", "description", "key", "notes", "sprint", "status", "title")

    def __init__(self, row: "dict[str, str]") -> None:
        self.key = row.get("key", "")
        self.title = one_line(row.get("title", ""))
        self.status = status_word(one_line(row.get("status", "")))
        self.sprint = one_line(row.get("sprint", ""))
        self.depends = tuple(filter(None, row.get("depends", "").replace(",", " ").split()))
        attempts = row.get("attempts", "")
        self.attempts = int(attempts) if attempts.isascii() and attempts.isdigit() and len(attempts) < 9 else 0  # noqa: PLR2004 no overflow
        self.notes = row.get("notes", "")
        self.description = row.get("description", "")


class Summary:
    """The open tasks of a database."""

    __slots__ = ("failed_point", "lines", "open")

    def __init__(self, count: int, tasks: "list[Task]", failed: "list[Task]") -> None:
        self.open = count
        self.lines = [f"{task.key} ({task.status or 'no status'}): {task.title}" for task in tasks]
        self.failed_point = failed[0].key if failed and failed[0].attempts else ""


def summary(path: str, *, shown: int) -> Summary:
    """What is open there: counted to the last row, though only the first are told. Unreadable where that fails."""
    with _Reading(path) as connection:
        fields = _fields(connection)
        if not fields:
            return Summary(0, [], [])
        (count,) = connection.execute(f"SELECT count(*) FROM tasks {_open_ones(fields)}").fetchone()  # noqa: S608 our own words
        known = " ".join(f"WHEN '{word}' THEN {place}" for place, word in enumerate(_ORDER))
        order = f"CASE {_word(fields)} {known} ELSE {len(_ORDER)} END"
        tasks = list(_rows(connection, fields, f"{_open_ones(fields)} ORDER BY {order} LIMIT {shown}"))
        attempts = f"CAST({fields.get('attempts', '0')} AS INTEGER)"
        failed = _rows(connection, fields, f"WHERE {_word(fields)} = 'failed' ORDER BY {attempts} DESC LIMIT 1")
        return Summary(count, tasks, list(failed))


def open_tasks(path: str) -> list[Task]:
    """The tasks that are open, as many as anybody could want to see. Unreadable where that fails."""
    with _Reading(path) as connection:
        fields = _fields(connection)
        return list(_rows(connection, fields, f"{_open_ones(fields)} LIMIT {_MOST_ROWS}")) if fields else []


def read_tasks(path: str) -> list[Task]:
    """All tasks, in the order they were added. Unreadable where that fails."""
    with _Reading(path) as connection:
        return list(rows(connection))


class _Reading:
    """A database, open for a look."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> sqlite3.Connection:
        if not _is_plain(self._path):
            raise Unreadable(f"{os.path.basename(self._path)} is a link or no file")
        try:
            self._connection = sqlite3.connect(_address(self._path), uri=True, timeout=_PATIENCE)
        except sqlite3.Error as trouble:
            raise self._unreadable(trouble) from trouble
        try:
            bounded(self._connection)
        except sqlite3.Error as trouble:
            self._connection.close()
            raise self._unreadable(trouble) from trouble
        return self._connection

    def __exit__(self, _: object, trouble: BaseException | None, __: object) -> None:
        self._connection.close()
        if isinstance(trouble, (sqlite3.Error, sqlite3.Warning, OverflowError)):
            raise self._unreadable(trouble) from trouble

    def _unreadable(self, trouble: BaseException) -> Unreadable:
        return Unreadable(f"{os.path.basename(self._path)} cannot be read ({one_line(str(trouble))})")


def bounded(connection: sqlite3.Connection) -> None:
    """No schema may keep us busy: views are not followed, and what takes too many steps is broken off."""
    until = time.monotonic() + _SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    connection.text_factory = lambda content: content.decode("utf-8", "replace")
    connection.execute("PRAGMA trusted_schema = OFF")


def columns_of(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    """The columns of a real table with their types; none where it is a view, virtual or not there."""
    made = connection.execute(
        "SELECT substr(sql, 1, 200) FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", (table,)
    ).fetchone()
    if made is None or "virtual" in str(made[0]).lower().split():
        return {}
    found = connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchmany(_MOST_ROWS)
    return {str(name).lower(): str(kind).upper() for name, kind in found}


def fields_of(columns: dict[str, str]) -> dict[str, str]:
    """The column that holds each field of a task; nothing where a table holds no tasks."""
    found = {field: next((name for name in names if name in columns), "") for field, names in _COLUMNS.items()}
    if not (found["key"] and found["title"] and found["status"]):
        return {}
    return {field: name for field, name in found.items() if name}


def rows(connection: sqlite3.Connection) -> "Iterator[Task]":
    """Every task, through a connection that is open."""
    return _rows(connection, fields_of(columns_of(connection, "tasks")), f"LIMIT {_MOST_ROWS}")


def _fields(connection: sqlite3.Connection) -> dict[str, str]:
    """The columns of the tasks; none where there are no tasks at all. What only looks like them is an error."""
    fields = fields_of(columns_of(connection, "tasks"))
    there = "SELECT 1 FROM sqlite_master WHERE name = 'tasks' COLLATE NOCASE"
    if not fields and connection.execute(there).fetchone() is not None:
        raise sqlite3.OperationalError("its tasks are no table with id, title and status")
    return fields


def _open_ones(fields: dict[str, str]) -> str:
    return f"WHERE {_word(fields)} NOT IN ({', '.join(repr(word) for word in CLOSED)})"


def _word(fields: dict[str, str]) -> str:
    """The status of a row as it is compared, in the words of SQL."""
    plain = f"lower(substr(CAST({fields['status']} AS TEXT), 1, {_LONGEST_CELL}))"
    return f"replace(trim(replace(replace(coalesce({plain}, ''), '-', ' '), '_', ' ')), ' ', '_')"


def _rows(connection: sqlite3.Connection, fields: dict[str, str], which: str) -> "Iterator[Task]":
    if not fields:
        return
    # The names come from our own list above, never from the database.
    wanted = ", ".join(f"substr(CAST({name} AS TEXT), 1, {_LONGEST_CELL})" for name in fields.values())
    cursor = connection.execute(f"SELECT {wanted} FROM tasks {which}")  # noqa: S608
    until = time.monotonic() + _SECONDS
    for row in cursor:
        if time.monotonic() > until:
            raise sqlite3.OperationalError("it takes too long")
        yield Task({field: "" if cell is None else str(cell) for field, cell in zip(fields, row, strict=True)})


def _is_plain(path: str) -> bool:
    try:
        is_file = stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
    return is_file and not os.path.islink(os.path.dirname(path))


def _address(path: str) -> str:
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode=ro"
