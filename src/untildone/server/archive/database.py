"""A database behind SQLAlchemy: connections to read with, transactions to write in, trouble in one line."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Table, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from untildone.errors import DatabaseStarting, ServeError
from untildone.server.archive.fitting import pattern_of
from untildone.server.archive.room import DiskRoom
from untildone.server.archive.sqlite_intake import BUSY_SECONDS, PRAGMAS

_READS = "untildone_reads"
_STARTING = "57P03"
"""PostgreSQL's code for "cannot connect now"."""


class Database:
    """An engine and its manners."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        kind: Literal["sqlite", "postgresql"],
        place: str,
        troubles: tuple[type[Exception], ...] = (),
        room: DiskRoom | None = None,
    ) -> None:
        """`room`: on the disk that it is on, where that is ours to look at."""
        self._room = room
        self.kind = kind
        self.place = place
        """Where it is, for people: without its password."""
        self.engine = engine
        # A read needs no transaction around it: two trips less on PostgreSQL, no lock on SQLite.
        options: dict[str, Any] = {_READS: True} if kind == "sqlite" else {"isolation_level": "AUTOCOMMIT"}
        self._reader = engine.execution_options(**options)
        self._troubles: tuple[type[Exception], ...] = (SQLAlchemyError, OSError, *troubles)
        self.writing_lock = asyncio.Lock()
        """On SQLite whoever writes takes turns here, where waiting is free."""

    def must_have_room(self) -> None:
        """NoRoom when the disk is nearly full: for whoever wants to keep more than a few words."""
        if self._room is not None:
            self._room.must_be()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection to look things up with."""
        try:
            async with self._reader.connect() as connection:
                yield connection
        except self._troubles as trouble:
            raise self.spoken(trouble) from trouble

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction: committed, durably, when left without an error."""
        try:
            if self.kind == "postgresql":
                async with self.engine.begin() as connection:
                    yield connection
            else:
                async with self.writing_lock, self.engine.begin() as connection:
                    yield connection
        except self._troubles as trouble:
            raise self.spoken(trouble) from trouble

    def spoken(self, trouble: Exception) -> ServeError:
        """What is wrong, in one line."""
        cause = trouble.orig if isinstance(trouble, DBAPIError) and trouble.orig is not None else trouble
        said = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        if getattr(cause, "sqlstate", "") == _STARTING or _is_refused(cause):
            return DatabaseStarting(f"the database does not answer: {said} ({self.place})")
        if isinstance(trouble, DBAPIError) and not isinstance(trouble, OperationalError | InterfaceError):
            answers = trouble.connection_invalidated is False
            if answers:
                return ServeError(f"the database refuses: {said} ({self.place})")
        return ServeError(f"the database does not answer: {said} ({self.place})")

    def has(self, column: ColumnElement[str], wanted: str) -> ColumnElement[bool]:
        """Whether a text contains this, in whatever case; SQLite knows the cases of ASCII only."""
        pattern = pattern_of(wanted)
        if self.kind == "postgresql":
            return column.ilike(pattern, escape="\\")
        # There LIKE takes no notice of case anyway, and ILIKE would copy every text to make it lower.
        return column.like(pattern, escape="\\")

    def upsert(self, table: Table) -> Any:
        """An INSERT that can say what to do when the row is there already."""
        # The two dialects write it alike and share no class.
        if self.kind == "postgresql":
            from sqlalchemy.dialects.postgresql import insert as postgres_insert

            return postgres_insert(table)
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        return sqlite_insert(table)

    async def close(self) -> None:
        """Let all connections go."""
        await self.engine.dispose()


def _is_refused(cause: BaseException) -> bool:
    """Of a name with several addresses, the system tells all their errors in one text."""
    return isinstance(cause, OSError) and (
        cause.errno == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in str(cause)
    )


def sqlite_database(path: Path) -> Database:
    """On a file that is there."""
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{path}", connect_args={"timeout": BUSY_SECONDS}, pool_size=4, max_overflow=4
    )

    def connected(connection: Any, _record: object) -> None:
        # Transactions are begun by hand: the driver begins them late, and a reader that turns writer may be refused.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in PRAGMAS:
            cursor.execute(pragma)
        cursor.close()

    def begun(connection: Connection) -> None:
        if not connection.get_execution_options().get(_READS):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine.sync_engine, "connect", connected)
    event.listen(engine.sync_engine, "begin", begun)
    return Database(engine, kind="sqlite", place=str(path), room=DiskRoom(path.parent))


def postgres_database(
    connect: Callable[[], Awaitable[Any]], *, place: str, troubles: tuple[type[Exception], ...]
) -> Database:
    """On a server; a connection that died while it was not used is replaced before anybody notices."""
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        pool_pre_ping=True,
        pool_size=5,
        max_overflow=10,
        pool_timeout=10,
    )
    return Database(engine, kind="postgresql", place=place, troubles=troubles)
