"""Old trace goes, oldest first, a bounded piece at a time. Control events stay, and no number is given twice.

What one step costs depends on what is new and what goes, never on how much there is: the table `trims` remembers
up to where a run's trace is gone already, and how much of it there is. It is bookkeeping and may be lost: the next
trim counts anew. The pages that are freed are used again by whatever is recorded next; the file is never rewritten.
"""

import fcntl
import os
import sqlite3
from pathlib import Path

from untildone.core.dataclass import dataclass

CHUNK = 1000
"""Events removed in one transaction: a few milliseconds in which others cannot write."""
COUNT_CHUNK = 10_000
ROW_BYTES = 100
"""What an event takes besides its payload: its key, twice, its type and SQLite's own."""

_COUNT = """SELECT coalesce(sum(length(data) + ?), 0) FROM events
    WHERE run_id = ? AND seq > ? AND seq <= ? AND kind = 'trace'"""
_OLDEST = """SELECT seq, at < ?, length(data) + ? FROM events
    WHERE run_id = ? AND seq > ? AND seq <= ? AND kind = 'trace' ORDER BY seq LIMIT ?"""
_REMOVE = "DELETE FROM events WHERE run_id = ? AND seq > ? AND seq <= ? AND kind = 'trace'"
_ENDED = """SELECT runs.run_id FROM runs LEFT JOIN trims ON trims.run_id = runs.run_id
    WHERE runs.updated_at < ? AND coalesce(trims.gone, 0) < runs.last_seq ORDER BY runs.updated_at"""


@dataclass(frozen=True, slots=True)
class Step:
    """What one bounded piece of trimming did."""

    removed: int
    more: bool
    """There may be more to remove or to count."""


def trim_step(db: sqlite3.Connection, run_id: str, *, keep_bytes: int, before: float) -> Step:
    """Remove the oldest trace of a run beyond `keep_bytes`, and what is older than `before`; in a transaction."""
    (last,) = db.execute("SELECT last_seq FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    gone, counted, size = _noted(db, run_id, last)
    upto = min(last, counted + COUNT_CHUNK)
    size += db.execute(_COUNT, (ROW_BYTES, run_id, counted, upto)).fetchone()[0]
    removed, through, kept = 0, gone, None
    for seq, is_old, cost in db.execute(_OLDEST, (before, ROW_BYTES, run_id, gone, upto, CHUNK)):
        if size <= keep_bytes and not is_old:
            kept = seq
            break
        removed, size, through = removed + 1, size - cost, seq
    full = removed == CHUNK
    # Up to the oldest that stays nothing is left to look at, so that no later step walks over it again.
    now_gone = kept - 1 if kept is not None else through if full else upto
    if removed:
        db.execute(_REMOVE, (run_id, gone, now_gone))
    if (now_gone, upto) != (gone, counted):
        db.execute("INSERT OR REPLACE INTO trims VALUES (?, ?, ?, ?)", (run_id, now_gone, upto, size))
    return Step(removed, full or upto < last)


def _noted(db: sqlite3.Connection, run_id: str, last: int) -> tuple[int, int, int]:
    """How far the trace is gone, up to where the rest was counted, and its size. What makes no sense is nothing."""
    row = db.execute("SELECT gone, counted, bytes FROM trims WHERE run_id = ?", (run_id,)).fetchone()
    if row is None or not all(isinstance(number, int) for number in row):
        return 0, 0, 0
    gone, counted, size = row
    return (gone, counted, size) if 0 <= gone <= counted <= last and size >= 0 else (0, 0, 0)


def ended_step(db: sqlite3.Connection, run_id: str, *, before: float) -> Step:
    """Remove the trace of a run that nobody has touched since `before`; nothing, if somebody just took it up."""
    touched = db.execute("SELECT updated_at FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if touched is None or touched[0] >= before:
        return Step(0, more=False)
    return trim_step(db, run_id, keep_bytes=0, before=float("inf"))


def ended_runs(db: sqlite3.Connection, before: float) -> list[str]:
    """Runs nobody has touched since `before` that may have trace left."""
    return [run_id for (run_id,) in db.execute(_ENDED, (before,))]


def clear_locks(directory: Path, before: float) -> None:
    """Remove lock files that nobody holds and nobody took since `before`.

    The caller holds the store's write lock: whoever takes a lock does so too, and never finds its file gone.
    """
    try:
        paths = [entry.path for entry in os.scandir(directory) if entry.name.endswith(".lock")]
    except OSError:
        return
    for path in paths:
        try:
            if os.stat(path).st_mtime < before:  # noqa: PTH116 - many files, as text
                _remove_if_free(path)
        except OSError:
            continue  # held, or gone already


def _remove_if_free(path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)  # noqa: PTH108 - as above
    finally:
        os.close(fd)
