"""A store whose files are taken away while it is open: noticing it, and putting everything back.

SQLite goes on writing into a deleted file as if nothing had happened, and all of it is gone when the process ends.
As long as the connection is open its content can still be read, so nothing needs to be lost.
"""

import os
import sqlite3
import tempfile
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from untildone.store.schema import SIDE_FILES

FileId = tuple[int, int]


_RUNS = "SELECT run_id, name, folder, created_at, updated_at, status, fence, last_seq FROM runs"
_PUT_RUN = """INSERT OR REPLACE INTO runs (run_id, name, folder, created_at, updated_at, status, fence, last_seq)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_EVENTS = "SELECT run_id, seq, at, kind, type, version, data FROM events WHERE run_id = ? ORDER BY seq"
_EVENT = "SELECT run_id, seq, at, kind, type, version, data FROM events WHERE run_id = ? AND seq = ?"
_PUT_EVENT = """INSERT OR IGNORE INTO events (run_id, seq, at, kind, type, version, data)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""


def file_ids(path: Path) -> tuple[FileId | None, ...]:
    """Which files lie at the store's path: the database and its side files. SQLite never changes them while open."""
    return tuple(_file_id(Path(f"{path}{end}")) for end in ("", *SIDE_FILES))


def same_files(known: tuple[FileId | None, ...], now: tuple[FileId | None, ...]) -> bool:
    """Whether what was there is there still. A side file that was not yet there may have come."""
    return all(old is None or old == new for old, new in zip(known, now, strict=True))


def make_way(path: Path, known: Collection[FileId | None]) -> Path | None:
    """Take away what is left of the lost database, so that a new one does not take it for its own.

    Returns where the database file itself was moved to, if that was still there and only its side files were gone.
    """
    spoilt = _file_id(path) in known
    aside = path.with_name(f"{path.name}.spoilt")
    if spoilt:
        path.replace(aside)
    for end in SIDE_FILES:
        side = Path(f"{path}{end}")
        if spoilt or _file_id(side) in known:
            side.unlink(missing_ok=True)
    return aside if spoilt else None


def merge(lost: sqlite3.Connection, found: sqlite3.Connection, driven: Collection[str]) -> None:
    """Bring into `found` what only `lost` knows. Others may have made the new file and may be writing into it.

    Of a run that we drive our events are the true ones; what others added to it meanwhile is numbered after them.
    A run that another driver took up in the new file is theirs.
    """
    for run in lost.execute(_RUNS).fetchall():
        run_id, *_, fence, last = run
        there = found.execute("SELECT fence, last_seq FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if there is None or (fence >= there[0] and (run_id in driven or last > there[1])):
            _merge_run(lost, found, run)


def copy_elsewhere(lost: sqlite3.Connection) -> Path:
    """The last resort: a copy of everything in a private folder of its own; returns the file."""
    place = Path(tempfile.mkdtemp(prefix="untildone-rescued-")) / "untildone.db"
    with closing(sqlite3.connect(place)) as copy:
        lost.backup(copy)
    return place


def _merge_run(lost: sqlite3.Connection, found: sqlite3.Connection, run: tuple[object, ...]) -> None:
    run_id, *facts, last = run
    assert isinstance(last, int)
    news = [
        row for row in found.execute(_EVENTS, (run_id,)).fetchall() if lost.execute(_EVENT, row[:2]).fetchone() != row
    ]
    found.executemany("DELETE FROM events WHERE run_id = ? AND seq = ?", [row[:2] for row in news])
    found.executemany(_PUT_EVENT, lost.execute(_EVENTS, (run_id,)))
    found.executemany(_PUT_EVENT, [(run_id, seq, *row[2:]) for seq, row in enumerate(news, last + 1)])
    found.execute(_PUT_RUN, (run_id, *facts, last + len(news)))
    found.executemany(
        "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)",
        lost.execute("SELECT run_id, seq, state FROM snapshots WHERE run_id = ?", (run_id,)),
    )


def _file_id(path: Path) -> FileId | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - asked twenty times a second by every follower
    except OSError:
        return None
    return found.st_dev, found.st_ino
