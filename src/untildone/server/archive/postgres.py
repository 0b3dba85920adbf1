"""The archive's parts on PostgreSQL."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import asyncpg  # type: ignore[import-untyped] # it ships no types

from untildone.errors import ServeError
from untildone.server.archive.database import Database, postgres_database
from untildone.server.archive.group_commit import Lanes
from untildone.server.archive.listening import Wire
from untildone.server.archive.migrating import migrate
from untildone.server.archive.places import has_unsafe_login, shown_place
from untildone.server.archive.postgres_intake import PostgresIntake

CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 15.0
LANES = 2
"""Groups that are on their way at once: while the database writes one, the next is made ready. A third gave nothing."""
_ESCAPE = "in a password, write @ as %40, / as %2F, # as %23 and ? as %3F"


async def open_postgres(url: str, held: AsyncExitStack) -> tuple[Database, Lanes, Wire]:
    """Connect, bring the tables up to date, and listen."""
    place = shown_place(url)
    if has_unsafe_login(url):
        # Said before anybody parses it: what a library makes of it, and complains about, is a part of the password.
        raise ServeError(f"the database URL cannot be used: {_ESCAPE} ({place})")
    dsn = "postgresql://" + url.partition("://")[2]

    async def connect() -> Any:
        try:
            return await asyncpg.connect(
                dsn,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                # Acknowledged means durable, whatever the server does by default.
                server_settings={"application_name": "untildone", "synchronous_commit": "on"},
            )
        except (ValueError, asyncpg.exceptions.ClientConfigurationError) as bad:
            raise ServeError(f"the database URL cannot be used: {bad} ({place})") from bad

    troubles = (asyncpg.PostgresError, asyncpg.InterfaceError)
    database = postgres_database(connect, place=place, troubles=troubles)
    held.push_async_callback(database.close)
    await migrate(database)
    intakes = [PostgresIntake(connect, place) for _ in range(LANES)]
    for intake in intakes:
        held.push_async_callback(intake.close)
    lanes = Lanes([intake.flush for intake in intakes])
    held.push_async_callback(lanes.close)
    wire = Wire(connect)
    held.push_async_callback(wire.close)
    try:
        async with asyncio.timeout(2 * CONNECT_SECONDS):
            await wire.ready()
    except TimeoutError as late:
        raise ServeError(f"the database does not answer: it gives too few connections ({place})") from late
    return database, lanes, wire
