"""The database file: made, migrated, and every trouble with it said in one line."""

import sqlite3
from pathlib import Path

import pytest

from store.store_kit import OpenSqlite, StartDriver, Ticks, asks, begin, line_of
from untildone.errors import StoreError
from untildone.store import schema
from untildone.store.schema import APPLICATION_ID, MIGRATIONS, migrate, open_database
from untildone.store.sqlite import SqliteLog

TO_COME = (*MIGRATIONS, ("ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT 'none'",))


def _refusal(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        SqliteLog(path, Ticks())
    line = str(caught.value)
    assert str(path) in line
    assert "\n" not in line
    return line


def test_a_new_file_is_made_with_everything(db: Path) -> None:
    connection = open_database(db)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


@pytest.mark.anyio
async def test_an_older_store_is_migrated_and_keeps_its_runs(
    open_sqlite: OpenSqlite, tmp_path: Path, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_sqlite()
    await begin(log, tmp_path)
    await log.append("r1", [asks("kept")])
    await log.close()
    connection = open_database(db)
    migrate(connection, db, TO_COME)
    assert connection.execute("SELECT run_id, note FROM runs").fetchall() == [("r1", "none")]
    assert connection.execute("PRAGMA user_version").fetchone() == (len(TO_COME),)
    migrate(connection, db, TO_COME)
    connection.close()
    monkeypatch.setattr(schema, "MIGRATIONS", TO_COME)
    assert [record.event for record in await open_sqlite().read("r1")] == [asks("kept")]


def test_a_migration_that_fails_changes_nothing(db: Path) -> None:
    connection = open_database(db)
    broken = (*TO_COME, ("CREATE TABLE more (x)", "NOT SQL"))
    with pytest.raises(StoreError, match="syntax error"):
        migrate(connection, db, broken)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'more'").fetchone() == (0,)
    connection.close()


def test_a_store_of_a_newer_version_is_left_alone(db: Path) -> None:
    connection = open_database(db)
    migrate(connection, db, TO_COME)
    connection.close()
    assert f"store version {len(TO_COME)}, this one knows {len(MIGRATIONS)}" in _refusal(db)


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE places (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    assert "another program" in _refusal(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "untildone.db"
    path.write_text("notes of mine\n" * 100)
    assert "not a database: move that file away" in _refusal(path)
    assert path.read_text() == "notes of mine\n" * 100


@pytest.mark.anyio
async def test_a_damaged_database_is_said_in_one_line(open_sqlite: OpenSqlite, tmp_path: Path, db: Path) -> None:
    log = open_sqlite()
    await begin(log, tmp_path)
    await log.append("r1", [asks("x" * 2000)] * 50)
    await log.close()
    data = db.read_bytes()
    db.write_bytes(data[:4096] + b"\x5a" * (len(data) - 4096))
    again = open_sqlite()
    with pytest.raises(StoreError, match=r"damaged: move it away.*\.recover"):
        await again.read("r1", trace=True)


def test_a_folder_in_the_files_place(tmp_path: Path) -> None:
    assert "Is a directory" in _refusal(tmp_path)


def test_a_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "name a folder that you may write to" in _refusal(tmp_path / "file" / "untildone.db")


@pytest.mark.anyio
@pytest.mark.parametrize("ready", [False, True], ids=["no store yet", "a store of someone else's"])
async def test_a_folder_we_may_not_write_to(start_driver: StartDriver, db: Path, ready: bool) -> None:
    if ready:
        open_database(db).close()
        db.chmod(0o400)
    else:
        db.parent.mkdir()
    db.parent.chmod(0o500)
    line = await line_of(await start_driver("unprivileged"))
    db.parent.chmod(0o700)
    assert str(db) in line
    assert "Permission denied" in line
    assert "you may write to" in line


def test_an_empty_file_left_by_a_crash_is_used(db: Path) -> None:
    db.parent.mkdir()
    db.touch()
    open_database(db).close()
    assert db.stat().st_size > 0


@pytest.mark.anyio
@pytest.mark.parametrize(("many", "times"), [(3, 15), pytest.param(6, 40, marks=pytest.mark.soak)])
async def test_many_processes_may_make_a_store_at_the_same_moment(
    start_driver: StartDriver, tmp_path: Path, many: int, times: int
) -> None:
    crowd = [await start_driver("make") for _ in range(many)]
    assert [await line_of(process) for process in crowd] == ["ready"] * many
    for number in range(times):
        for process in crowd:
            assert process.stdin is not None
            process.stdin.write(f"{tmp_path / str(number) / 'untildone.db'}\n".encode())
        assert [await line_of(process) for process in crowd] == ["made"] * many
