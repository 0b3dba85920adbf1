"""Brings the tables of a database up to this version."""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from untildone.errors import ServeError
from untildone.server.archive.database import Database
from untildone.server.archive.tables import HEAD

_LOCK = 0x756E7469  # one number, the same for every server process


async def migrate(database: Database) -> None:
    """Create what is missing. Processes that start at the same moment go one by one."""
    async with database.reading() as connection:
        if await connection.run_sync(_version) == HEAD:
            return
    async with database.writing() as connection:  # on SQLite nobody else can write from here on
        if database.kind == "postgresql":
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        await connection.run_sync(_upgrade, database.place)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version


def _upgrade(connection: Connection, place: str) -> None:
    # Only a database that is not up to date pays for loading it.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as unknown:
        version = _version(connection)
        raise ServeError(
            f"the database was made by a newer version (its tables are {version}, known are up to {HEAD}): "
            f"update untildone ({place})"
        ) from unknown
