"""Databases of tasks as others may have made them."""

import sqlite3
from pathlib import Path

OLDER = """
CREATE TABLE tasks (id TEXT PRIMARY KEY, sprint_id TEXT, name TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'pending'
    CHECK (status IN ('pending', 'in_progress', 'completed', 'failed', 'blocked')), updated_at TEXT);
CREATE TABLE session_state (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE VIEW v_current_session AS SELECT value AS mine FROM session_state WHERE key = 'max_iterations';
INSERT INTO session_state VALUES ('max_iterations', '50');
"""
"""An older layout in a shape of its own."""


def database(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return path


def asked(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()
