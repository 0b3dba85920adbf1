"""Databases to keep an archive in: a file, and one on the PostgreSQL server of the tests."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from archives import new_archive
from postgres_kit import Postgres
from untildone.server.archive.opening import open_archive
from untildone.server.archive.port import Archive
from untildone.server.archive.tables import HEAD, metadata


@pytest.fixture(scope="session")
def tables_url(postgres: Postgres) -> str:
    url = postgres.new_database("shared")
    asyncio.run(_make_tables(url))
    return url


@pytest.fixture
def postgres_url(tables_url: str) -> str:
    """A database with empty tables: emptying them is much quicker than making a database."""
    asyncio.run(_empty(tables_url))
    return tables_url


@pytest.fixture(params=["sqlite", "postgres"])
def archive_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return new_archive(tmp_path)
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
    connection = await asyncpg.connect(url, timeout=240)
    try:
        await connection.execute("SET lock_timeout = '120s'")
        await connection.execute(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY")
        await connection.execute(f"UPDATE alembic_version SET version_num = '{HEAD}'")
    finally:
        await connection.close()
