"""Gives pages of a SQLite file that nothing uses any more back to the disk."""

import asyncio
import sqlite3

from untildone.errors import ServeError
from untildone.server.archive.database import Database
from untildone.server.archive.sqlite_intake import BUSY_SECONDS

LEAST_BYTES = 16 * 2**20
LEAST_SHARE = 0.25
"""Free pages are used again by the next events: only when many are free is it worth moving others."""


async def given_back(database: Database, most_bytes: int) -> int:
    """Bytes by which the file becomes shorter, at most so many."""
    async with database.writing_lock:
        try:
            return await asyncio.to_thread(_shortened, database.place, most_bytes)
        except sqlite3.DatabaseError as trouble:
            raise ServeError(f"the database does not answer: {trouble} ({database.place})") from trouble


def _shortened(path: str, most_bytes: int) -> int:
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        size, pages, free = (_told(db, name) for name in ("page_size", "page_count", "freelist_count"))
        if free * size < LEAST_BYTES or free < pages * LEAST_SHARE:
            return 0
        # A script is run to its end; a single statement would stop after the first page.
        db.executescript(f"PRAGMA incremental_vacuum({max(1, most_bytes // size)});")
        return (pages - _told(db, "page_count")) * size
    finally:
        db.close()


def _told(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
