"""What an older layout keeps of a session: keys in `.devteam/devteam.db`, counts in `.multi-agent/session.json`."""

import os

from untildone.core.repeats import MOST_FAILURES
from untildone.hook import plain_json
from untildone.hook.files import read_text, write_text
from untildone.hook.places import DEVTEAM

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from typing import Any

SESSION = ".multi-agent/session.json"
KEYS = (
    "autonomous_mode_enabled",
    "max_iterations",
    "current_iteration",
    "circuit_breaker",
    "session_started_at",
    "session_last_activity",
    "exit_detection",
)
_TABLES = (
    """CREATE TABLE IF NOT EXISTS tasks (id TEXT PRIMARY KEY, title TEXT NOT NULL, description TEXT, sprint TEXT,
    status TEXT NOT NULL DEFAULT 'pending', depends TEXT, attempts INTEGER NOT NULL DEFAULT 0, notes TEXT)""",
    "CREATE TABLE IF NOT EXISTS session_state (key TEXT PRIMARY KEY, value TEXT, updated_at TEXT)",
)


def complete_layout(connection: "sqlite3.Connection") -> None:
    """Create what is missing; what is there, in whatever shape, stays as it is."""
    import sqlite3

    from untildone.hook.task_reading import columns_of

    for statement in _TABLES:
        connection.execute(statement)
    if {"key", "value"} <= columns_of(connection, "session_state").keys():
        shown = ", ".join(f"(SELECT value FROM session_state WHERE key = '{key}') AS {key}" for key in KEYS)  # noqa: S608 ours
        counts = ", ".join(
            f"(SELECT count(*) FROM tasks WHERE status = '{status}') AS {status}_tasks"  # noqa: S608 ours
            for status in ("pending", "in_progress", "completed", "failed")
        )
        try:
            connection.execute(f"CREATE VIEW IF NOT EXISTS v_current_session AS SELECT {shown}, {counts}")
        except sqlite3.Error:
            return  # something else has that name: it is theirs


def set_state(connection: "sqlite3.Connection", state: "Mapping[str, str]") -> None:
    """Write keys of the session, where there is a table of keys."""
    from untildone.hook.task_reading import columns_of

    if not {"key", "value"} <= columns_of(connection, "session_state").keys():
        return
    for key, value in state.items():
        if not connection.execute("UPDATE session_state SET value = ? WHERE key = ?", (value, key)).rowcount:
            connection.execute("INSERT INTO session_state (key, value) VALUES (?, ?)", (key, value))


def breaker_text(failures: int, point: str) -> str:
    """The breaker as that layout writes it."""
    return plain_json.render(
        {
            "consecutive_failures": failures,
            "max_failures": MOST_FAILURES,
            "last_failure_point": point or None,
            "state": "open" if failures >= MOST_FAILURES else "closed",
        }
    )


def note_turn(
    project: str, *, turn: int, limit: int, failures: int, point: str, now: float, active: bool = True
) -> None:
    """Bring that layout up to date after a turn, where a project has it. Trouble with it never stops a loop."""
    if not (_has(project, DEVTEAM) or _has(project, os.path.dirname(SESSION))):
        return
    moment = _moment(now)
    state = {
        "autonomous_mode_enabled": "true" if active else "false",
        "max_iterations": str(limit),
        "current_iteration": str(turn),
        "circuit_breaker": breaker_text(failures, point),
        "session_last_activity": moment,
    }
    _note_in_file(project, {**state, "iteration": turn, "failures": failures}, moment)
    if _has(project, DEVTEAM):
        _note_in_database(project, state)


def _note_in_database(project: str, state: "dict[str, str]") -> None:
    from untildone.errors import UsageError
    from untildone.hook.task_store import Tasks

    try:
        with Tasks(project, patience=1.0) as tasks:
            tasks.remember(**state)
    except UsageError:
        return


def _note_in_file(project: str, state: "Mapping[str, Any]", moment: str) -> None:
    path = os.path.join(project, SESSION)
    if os.path.islink(path) or os.path.islink(os.path.dirname(path)) or not os.path.isdir(os.path.dirname(path)):
        return
    try:
        found = plain_json.parse(read_text(path) or "") if os.path.lexists(path) else {}
    except ValueError:
        return
    if not isinstance(found, dict):
        return
    known = {
        "current_iteration": state["iteration"],
        "max_iterations": int(state["max_iterations"]),
        "consecutive_failures": state["failures"],
        "session_last_activity": moment,
    }
    write_text(path, plain_json.render({"session_started_at": moment, **found, **known}) + "\n")


def _has(project: str, name: str) -> bool:
    return os.path.lexists(os.path.join(project, name))


def _moment(now: float) -> str:
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
