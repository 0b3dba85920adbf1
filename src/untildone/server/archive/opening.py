"""Opens the archive at a URL."""

import asyncio
import fcntl
import os
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from untildone.errors import ServeError
from untildone.server.archive.compacting import given_back
from untildone.server.archive.database import Database, sqlite_database
from untildone.server.archive.events import EventCopies
from untildone.server.archive.group_commit import GroupCommit, Lanes
from untildone.server.archive.keys import KeyRing
from untildone.server.archive.migrating import migrate
from untildone.server.archive.orders import OrderBook
from untildone.server.archive.parcels import ParcelShelf
from untildone.server.archive.port import Archive
from untildone.server.archive.runs import RunList
from untildone.server.archive.sqlite_intake import SqliteIntake

PAGE_SIZE = 8192
"""Rows of some kilobytes fit into a page; with half of it, writing took a quarter longer."""


class DatabaseArchive:
    """All of it, behind one database."""

    def __init__(self, database: Database, intake: GroupCommit | Lanes, wire: Any, held: AsyncExitStack) -> None:
        self.database = database
        self.events = EventCopies(database, intake)
        self.runs = RunList(database)
        self.orders = OrderBook(database)
        self.parcels = ParcelShelf(database)
        self.keys = KeyRing(database)
        self._wire = wire
        self._held = held

    async def announce(self, topic: str) -> None:
        """Tell the other server processes on this database."""
        if self._wire is not None:
            self._wire.announce(topic)

    async def heard(self) -> str:
        """The next topic that another server process announced, or MISSED."""
        if self._wire is None:
            await asyncio.Future()  # one process has the file to itself: nobody will ever speak
        topic: str = await self._wire.heard()
        return topic

    async def sweep(self, *, now: float, messages_before: float) -> int:
        """Remove keys that have expired and queued messages older than that; returns how many."""
        return await self.keys.sweep(now=now) + await self.orders.sweep(before=messages_before)

    async def compact(self, *, most_bytes: int) -> int:
        """Give back to the disk what nothing uses any more, if it is worth it; how many bytes."""
        # PostgreSQL cleans up by itself.
        return await given_back(self.database, most_bytes) if self.database.kind == "sqlite" else 0

    async def close(self) -> None:
        """Commit what waits, and let everything go. Harmless when done twice."""
        await self._held.aclose()


async def open_archive(url: str, *, serving: bool = True) -> Archive:
    """The archive at `sqlite:///PATH` or `postgresql://...`, made or brought up to date.

    `serving=False`: a short look beside a server that may be at work. ServeError, in one line, when it cannot be had.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Without a word of what was given: it may hold a password.
        raise ServeError("no database URL: use sqlite:///PATH or postgresql://USER@HOST/NAME") from None
    name = parsed.get_backend_name()
    if name == "sqlite":
        return await _open_sqlite(parsed.database or "", serving=serving)
    if name in {"postgresql", "postgres"}:
        return await _open_postgres(url)
    raise ServeError(f"no database of a known kind: {name}: use sqlite:///PATH or postgresql://USER@HOST/NAME")


async def _open_sqlite(name: str, *, serving: bool) -> Archive:
    if not name or name == ":memory:":
        raise ServeError("the database needs a file: use sqlite:///PATH")
    path = Path(name).absolute()
    async with AsyncExitStack() as held:
        try:
            _make_file(path)
            if serving:
                held.callback(os.close, _lock(path))
        except (OSError, sqlite3.Error) as trouble:
            raise ServeError(f"the database cannot be opened: {path}: {trouble}") from trouble
        database = sqlite_database(path)
        held.push_async_callback(database.close)
        await migrate(database)
        intake = SqliteIntake(str(path), database.writing_lock)
        held.push_async_callback(intake.close)
        group = GroupCommit(intake.flush)
        held.push_async_callback(group.close)
        return DatabaseArchive(database, group, None, held.pop_all())
    raise AssertionError  # the block above returns or raises


async def _open_postgres(url: str) -> Archive:
    try:
        from untildone.server.archive.postgres import open_postgres
    except ImportError as missing:
        raise ServeError("PostgreSQL needs a driver: install untildone[postgres]") from missing
    async with AsyncExitStack() as held:
        database, group, wire = await open_postgres(url, held)
        return DatabaseArchive(database, group, wire, held.pop_all())
    raise AssertionError


def _make_file(path: Path) -> None:
    """Only the user may read what agents said."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(_made(path))
    if path.stat().st_size == 0:
        db = sqlite3.connect(path, isolation_level=None)
        try:
            db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only an empty file can be told
            db.execute("PRAGMA journal_mode = WAL")
        finally:
            db.close()


def _made(path: Path) -> int:
    """Open a file that may be new. What root makes in the folder of a service is that service's."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    folder = path.parent.stat()
    if os.geteuid() == 0 and os.fstat(handle).st_size == 0:
        os.fchown(handle, folder.st_uid, folder.st_gid)
    return handle


def _lock(path: Path) -> int:
    """Two servers on one file would not hear of each other's events: there may be one."""
    lock = _made(Path(f"{path}.lock"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as taken:
        os.close(lock)
        raise ServeError(f"another server is at work on {path}: stop it, or use PostgreSQL for several") from taken
    return lock
