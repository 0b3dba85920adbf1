"""Databases to keep an archive in: a file, and a PostgreSQL server that the tests start themselves."""

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from server.postgres_kit import PostgresServer
from untildone.server.archive.opening import open_archive
from untildone.server.archive.port import Archive
from untildone.server.archive.tables import HEAD, metadata

_SHARED = "shared"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    # Not under pytest's own folder: only its owner may enter that, and PostgreSQL runs as somebody else.
    with tempfile.TemporaryDirectory(prefix="untildone-pg-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            asyncio.run(_make_tables(server.new_database(_SHARED)))
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """A database with empty tables: emptying them is much quicker than making a database."""
    url = f"{postgres.url}/{_SHARED}"
    asyncio.run(_empty(url))
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def archive_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'server.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def archive(archive_url: str) -> AsyncIterator[Archive]:
    opened = await open_archive(archive_url)
    try:
        yield opened
    finally:
        await opened.close()


async def _make_tables(url: str) -> None:
    await (await open_archive(url)).close()


async def _empty(url: str) -> None:
    connection = await asyncpg.connect(url, timeout=20)
    try:
        await connection.execute("SET lock_timeout = '20s'")
        await connection.execute(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY")
        await connection.execute(f"UPDATE alembic_version SET version_num = '{HEAD}'")
    finally:
        await connection.close()
