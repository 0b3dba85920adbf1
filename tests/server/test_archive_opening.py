import asyncio
import os
import sqlite3
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, text

from postgres_kit import Postgres
from server.events_kit import BOX, told
from untildone.errors import ServeError
from untildone.server.archive.opening import DatabaseArchive, open_archive
from untildone.server.archive.places import shown_place
from untildone.server.archive.port import Archive, Sender
from untildone.server.archive.tables import HEAD, metadata

pytestmark = pytest.mark.anyio


def _differences(connection: Connection) -> list[Any]:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    return list(compare_metadata(MigrationContext.configure(connection), metadata))


async def _tables(archive: Archive) -> tuple[list[Any], str]:
    assert isinstance(archive, DatabaseArchive)
    async with archive.database.writing() as connection:
        differences = await connection.run_sync(_differences)
        version = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one()
    return differences, version


async def test_migrations_make_the_tables_that_are_used(archive: Archive) -> None:
    assert await _tables(archive) == ([], HEAD)


async def test_the_newest_migration_is_the_one_that_is_looked_for() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    from untildone.server import archive

    config = Config()
    config.set_main_option("script_location", str(Path(archive.__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


async def test_what_is_there_stays_when_it_is_opened_again(archive_url: str) -> None:
    first = await open_archive(archive_url)
    await first.events.receive(Sender(sandbox_id="box"), "run", [], now=5.0)
    await first.close()
    await first.close()
    again = await open_archive(archive_url)
    assert [entry.run_id for entry in [await again.runs.entry("run")] if entry] == ["run"]
    await again.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_runs_of_the_first_version_began_without_a_key(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_sqlite = kind == "sqlite"
    url = f"sqlite:///{tmp_path / 'old.db'}" if is_sqlite else request.getfixturevalue("postgres").new_database("old")
    with monkeypatch.context() as then:
        upgrade = command.upgrade
        then.setattr(command, "upgrade", lambda config, _: upgrade(config, "0001"))
        old = await open_archive(url)
    assert isinstance(old, DatabaseArchive)
    values = "'old', 'box', 'worker', 1.0, 1.0, 1"
    async with old.database.writing() as connection:
        names = "run_id, sandbox_id, origin, created_at, heard_at, last_seq"
        await connection.execute(text(f"INSERT INTO runs ({names}) VALUES ({values})"))
    await old.close()
    archive = await open_archive(url)
    assert await _tables(archive) == ([], HEAD)
    for shown in (replace(BOX, driver_hash="a" * 64), BOX):
        assert (await archive.events.receive(shown, "old", [told(2)], now=6.0)).last_seq == 2
    entry = await archive.runs.entry("old")
    assert entry is not None
    assert entry.driver_hash == ""
    await archive.close()


async def test_servers_that_start_at_once_do_not_collide(postgres: Postgres) -> None:
    url = postgres.new_database("empty")
    archives = await asyncio.gather(*(open_archive(url) for _ in range(4)))
    assert await _tables(archives[0]) == ([], HEAD)
    await asyncio.gather(*(archive.close() for archive in archives))


async def test_a_second_server_on_one_file_is_refused_and_a_short_look_is_not(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'server.db'}"
    first = await open_archive(url)
    with pytest.raises(ServeError, match="another server is at work"):
        await open_archive(url)
    beside = await open_archive(url, serving=False)
    await beside.orders.put("box", "hello", "user_message", now=1.0)
    await beside.close()
    assert [message.content for message in await first.orders.take("box")] == ["hello"]
    await first.close()
    await (await open_archive(url)).close()


async def test_several_short_looks_at_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'server.db'}"
    archives = await asyncio.gather(*(open_archive(url, serving=False) for _ in range(4)))
    assert await _tables(archives[0]) == ([], HEAD)
    await asyncio.gather(*(archive.close() for archive in archives))


async def test_only_the_user_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "server.db"
    archive = await open_archive(f"sqlite:///{path}")
    await archive.events.receive(Sender(sandbox_id="box"), "run", [], now=5.0)
    found = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert found == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await archive.close()


async def test_tables_of_a_newer_version_are_left_alone(archive_url: str) -> None:
    archive = await open_archive(archive_url)
    assert isinstance(archive, DatabaseArchive)
    async with archive.database.writing() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await archive.close()
    with pytest.raises(ServeError, match=r"made by a newer version \(its tables are 9999"):
        await open_archive(archive_url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "no database URL"),
        ("mysql://x/y", "no database of a known kind: mysql"),
        ("sqlite://", "needs a file"),
        ("sqlite:////proc/nowhere/server.db", "cannot be opened"),
        ("postgresql://user:hunter2@127.0.0.1:1/x", "does not answer"),
        ("postgresql://127.0.0.1:1/x?user=me&password=hunter2", "does not answer"),
        ("postgresql://user:hunter2@127.0.0.1:notaport/x", "no database URL"),
        ("postgresql://user:hunter2@127.0.0.1:1/x?sslmode=odd", "cannot be used"),
    ],
)
async def test_a_database_that_cannot_be_had_is_one_line_without_its_password(url: str, said: str) -> None:
    with pytest.raises(ServeError, match=said) as refused:
        await open_archive(url)
    assert "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


async def test_a_database_that_is_not_there(postgres: Postgres) -> None:
    with pytest.raises(ServeError, match='"missing" does not exist'):
        await open_archive(f"{postgres.url}/missing")


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "server.db"
    path.write_bytes(b"this is a letter, and no database at all" * 100)
    with pytest.raises(ServeError, match="not a database"):
        await open_archive(f"sqlite:///{path}")


async def test_free_pages_go_back_to_the_disk_when_they_are_worth_it(tmp_path: Path) -> None:
    path = tmp_path / "server.db"
    archive = await open_archive(f"sqlite:///{path}")
    assert await archive.compact(most_bytes=2**40) == 0
    await archive.events.receive(BOX, "run", [told(1)], now=1.0)
    await archive.parcels.put("run", "tree", b"x" * (24 * 2**20), seq=1, now=1.0)
    await archive.parcels.put("run", "tree", b"", seq=2, now=1.0)
    before = _pages(path)
    given = await archive.compact(most_bytes=8 * 2**20)
    assert 8 * 2**20 <= given < 9 * 2**20
    assert _pages(path) < before
    await archive.close()


def _pages(path: Path) -> int:
    db = sqlite3.connect(path)
    pages: int = db.execute("PRAGMA page_count").fetchone()[0]
    db.close()
    return pages


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:abc/xyz@127.0.0.1:1/runs",
        "postgresql://me:abc#xyz@127.0.0.1:1/runs",
        "postgresql://me:abc?xyz@127.0.0.1:1/runs",
        "postgresql://me:abc@xyz@127.0.0.1:1/runs",
        "postgresql://me:abc@xyz/abc@127.0.0.1:1/runs",
        "postgresql://127.0.0.1:1/runs?user=me&password=abc@xyz",
        "postgresql://me:abcxyz@127.0.0.1:1/runs?password=abcxyz",
        "postgresql://me:abc%zzxyz@127.0.0.1:1/runs",
    ],
)
async def test_no_part_of_a_password_is_in_a_line(url: str) -> None:
    with pytest.raises(ServeError) as refused:
        await open_archive(url)
    told = str(refused.value) + shown_place(url)
    assert "abc" not in told
    assert "xyz" not in told
    assert "me" not in shown_place(url)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
async def test_what_root_makes_in_the_folder_of_a_service_is_the_services(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    os.chown(tmp_path / "service", 65534, 65534)
    archive = await open_archive(f"sqlite:///{tmp_path}/service/server.db")
    try:
        found = {file.name: file.stat().st_uid for file in (tmp_path / "service").iterdir()}
        assert {"server.db", "server.db.lock"} <= found.keys()
        assert set(found.values()) == {65534}
    finally:
        await archive.close()
