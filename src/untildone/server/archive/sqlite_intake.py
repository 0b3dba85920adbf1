"""The hot path on SQLite: one connection of its own, used by one thread."""

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from untildone.errors import ServeError
from untildone.server.archive.accepting import (
    EVENT_COLUMNS,
    FACT_COLUMNS,
    EventRow,
    Offer,
    RunFacts,
    by_run,
    doubtful,
    first_facts,
    judge,
)
from untildone.server.archive.group_commit import Answer

BUSY_SECONDS = 10
PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    # An acknowledged event is on the disk, whatever happens to the machine: with many requests in one commit, that
    # one fsync costs little. NORMAL would forget the last commits when the power fails, and a worker that has been
    # told that they are safe does not send them again.
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 2000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA temp_store = MEMORY",
)
_CACHE = "PRAGMA cache_size = -16384"  # 16 MiB; readers, of whom there are several, do with the usual 2

_FACTS = f"SELECT {', '.join(FACT_COLUMNS)} FROM runs WHERE run_id = ?"  # noqa: S608 - names of columns
_PRESENT = "SELECT seq FROM events WHERE run_id = ? AND seq BETWEEN ? AND ?"
_ROW = f"({', '.join('?' * len(EVENT_COLUMNS))})"
_THERE = " ON CONFLICT (run_id, seq) DO NOTHING"
_INSERT = f"INSERT INTO events ({', '.join(EVENT_COLUMNS)}) VALUES "  # noqa: S608 - names of columns
_TOGETHER = 100
"""Rows in one statement. Each statement lets go of the interpreter's lock and waits to have it back: beside a busy
event loop, a statement for every row would be three times slower.
"""
_KEEP = """INSERT INTO runs
    (run_id, sandbox_id, origin, created_at, heard_at, last_seq, control_seq, tenure, trace_chars, driver_hash)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (run_id) DO UPDATE SET heard_at = excluded.heard_at, last_seq = excluded.last_seq,
        control_seq = excluded.control_seq, tenure = excluded.tenure, trace_chars = excluded.trace_chars"""


class SqliteIntake:
    """Writes groups of requests."""

    def __init__(self, path: str, writing: asyncio.Lock) -> None:
        self._path = path
        self._writing = writing
        # SQLite lets one write at a time, and makes others poll for their turn: here they queue instead.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._db: sqlite3.Connection | None = None

    async def flush(self, offers: list[Offer]) -> list[Answer]:
        """Commit all of these in one transaction."""
        async with self._writing:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._flush, offers)

    async def close(self) -> None:
        """Give the file up."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _flush(self, offers: list[Offer]) -> list[Answer]:
        try:
            db = self._open()
            db.execute("BEGIN IMMEDIATE")
            try:
                answers = _kept(db, offers)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError):
            raise  # something about the events
        except sqlite3.DatabaseError as trouble:
            self._close()
            raise ServeError(f"the database does not answer: {trouble} ({self._path})") from trouble
        return answers

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
            for pragma in (*PRAGMAS, _CACHE):
                self._db.execute(pragma)
        return self._db


def _kept(db: sqlite3.Connection, offers: list[Offer]) -> list[Answer]:
    judged = judge(_known(db, offers), offers)
    _insert(db, judged.rows)
    db.executemany(_KEEP, [_row(facts) for facts in judged.heard])
    return judged.answers


def _insert(db: sqlite3.Connection, rows: list[EventRow]) -> None:
    full = len(rows) - len(rows) % _TOGETHER
    together = _INSERT + ", ".join([_ROW] * _TOGETHER) + _THERE
    for first in range(0, full, _TOGETHER):
        db.execute(together, list(chain.from_iterable(rows[first : first + _TOGETHER])))
    db.executemany(_INSERT + _ROW + _THERE, rows[full:])


def _known(db: sqlite3.Connection, offers: list[Offer]) -> dict[str, RunFacts]:
    """The runs that are spoken of, with the numbers that may be among those on offer."""
    known: dict[str, RunFacts] = {}
    for run_id, offered in by_run(offers).items():
        row = db.execute(_FACTS, (run_id,)).fetchone()
        facts = known[run_id] = RunFacts(*row) if row is not None else first_facts(offered)
        span = doubtful(facts, offered)
        if span is not None:
            facts.present.update(seq for (seq,) in db.execute(_PRESENT, (run_id, *span)))
    return known


def _row(facts: RunFacts) -> tuple[object, ...]:
    return (
        facts.run_id,
        facts.sandbox_id,
        facts.origin,
        facts.created_at,
        facts.heard_at,
        facts.last_seq,
        facts.control_seq,
        facts.tenure,
        facts.trace_chars,
        facts.driver_hash,
    )
