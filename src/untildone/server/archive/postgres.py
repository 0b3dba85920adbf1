"""The archive's parts on PostgreSQL."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import asyncpg  # type: ignore[import-untyped] # it ships no types
from sqlalchemy import make_url

from untildone.errors import ServeError
from untildone.server.archive.database import Database, postgres_database
from untildone.server.archive.group_commit import GroupCommit
from untildone.server.archive.listening import Wire
from untildone.server.archive.migrating import migrate
from untildone.server.archive.postgres_intake import PostgresIntake

CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 15.0


async def open_postgres(url: str, held: AsyncExitStack) -> tuple[Database, GroupCommit, Wire]:
    """Connect, bring the tables up to date, and listen."""
    parsed = make_url(url)
    place = parsed.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
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
    intake = PostgresIntake(connect, place)
    held.push_async_callback(intake.close)
    group = GroupCommit(intake.flush)
    held.push_async_callback(group.close)
    wire = Wire(connect)
    held.push_async_callback(wire.close)
    try:
        async with asyncio.timeout(2 * CONNECT_SECONDS):
            await wire.ready()
    except TimeoutError as late:
        raise ServeError(f"the database does not answer: it gives too few connections ({place})") from late
    return database, group, wire
