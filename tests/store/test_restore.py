"""The store's files deleted or replaced while a driver in another process is at work."""

import asyncio
import shutil
import sqlite3
from asyncio.subprocess import Process
from contextlib import closing
from pathlib import Path

import pytest

from patience import PATIENCE
from store.store_kit import OpenSqlite, StartDriver, asks, begin, line_of, says
from untildone.core.events import MessageReceived, StoreTampered
from untildone.errors import RunBusy, RunNotFound
from untildone.store.sqlite import SqliteLog

pytestmark = pytest.mark.anyio


async def _step(driver: Process, line: str) -> str:
    assert driver.stdin is not None
    driver.stdin.write(f"{line}\n".encode())
    await driver.stdin.drain()
    return await line_of(driver)


async def _driving(start_driver: StartDriver, folder: Path, run_id: str = "r1") -> Process:
    driver = await start_driver("drive", run_id, str(folder))
    assert await line_of(driver) == "held 1"
    assert await _step(driver, "one") == "1:agent.message_injected"
    assert await _step(driver, ".two") == "2:agent.assistant_message"
    return driver


async def _released(driver: Process) -> None:
    assert driver.stdin is not None
    driver.stdin.close()
    assert await line_of(driver) == "released"
    async with asyncio.timeout(PATIENCE):
        assert await driver.wait() == 0


async def _contents(log: SqliteLog, run_id: str = "r1") -> list[tuple[int, str]]:
    return [
        (record.seq, getattr(record.event, "content", None) or record.event.TYPE)
        for record in await log.read(run_id, trace=True)
    ]


def _delete_folder(db: Path) -> None:
    shutil.rmtree(db.parent)


def _delete_database(db: Path) -> None:
    db.unlink()


def _delete_files(db: Path) -> None:
    for place in db.parent.glob(f"{db.name}*"):
        place.unlink()


def _delete_write_ahead_log(db: Path) -> None:
    Path(f"{db}-wal").unlink()


def _delete_shared_memory(db: Path) -> None:
    Path(f"{db}-shm").unlink()


def _replace_by_an_empty_file(db: Path) -> None:
    db.unlink()
    db.touch()


SOAK = pytest.mark.soak
DELETIONS = [
    _delete_folder,
    pytest.param(_delete_database, marks=SOAK),
    pytest.param(_delete_files, marks=SOAK),
    _delete_write_ahead_log,
    pytest.param(_delete_shared_memory, marks=SOAK),
    _replace_by_an_empty_file,
]


@pytest.mark.parametrize("delete", DELETIONS)
async def test_a_driver_puts_back_what_was_deleted_and_goes_on(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path, db: Path, delete
) -> None:
    driver = await _driving(start_driver, tmp_path)
    delete(db)
    assert await _step(driver, ".three") == "3:agent.assistant_message"
    assert await _step(driver, "four") == "4:continuous.tampered 5:agent.message_injected"
    assert await _step(driver, "five") == "6:agent.message_injected"
    await _released(driver)
    log = open_sqlite()
    trace = "agent.assistant_message"
    assert await _contents(log) == [
        (1, "one"), (2, trace), (3, trace), (4, "continuous.tampered"), (5, "four"), (6, "five")
    ]  # fmt: skip
    [finding] = [r.event for r in await log.read("r1", trace=True) if isinstance(r.event, StoreTampered)]
    assert finding.detail == f"{db} was deleted or replaced while this run was at work; all that was in it is back"
    assert [(row.run_id, row.status, row.alive) for row in await log.runs()] == [("r1", "suspended", False)]
    with closing(sqlite3.connect(db)) as plain:
        assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert sorted(place.name for place in db.parent.glob("*spoilt*")) == []


@pytest.mark.parametrize("delete", [_delete_folder, _delete_database])
async def test_others_who_looked_into_the_emptiness_do_not_matter(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path, db: Path, delete
) -> None:
    driver = await _driving(start_driver, tmp_path)
    delete(db)
    looker = open_sqlite()
    assert await looker.runs() == []
    assert await _step(driver, "three") == "3:continuous.tampered 4:agent.message_injected"
    assert [row.run_id for row in await looker.runs()] == ["r1"]
    assert await _contents(looker) == [
        (1, "one"), (2, "agent.assistant_message"), (3, "continuous.tampered"), (4, "three")
    ]  # fmt: skip


async def test_a_second_driver_is_still_refused_afterwards(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path, db: Path
) -> None:
    driver = await _driving(start_driver, tmp_path)
    shutil.rmtree(db.parent)
    await _step(driver, "three")
    with pytest.raises(RunBusy, match=f"process {driver.pid}"):
        await begin(open_sqlite(), tmp_path)


async def test_two_drivers_of_one_store_bring_back_each_its_own(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path, db: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = await _driving(start_driver, tmp_path / "a", "r1")
    second = await _driving(start_driver, tmp_path / "b", "r2")
    shutil.rmtree(db.parent)
    assert await _step(first, "three") == "3:continuous.tampered 4:agent.message_injected"
    assert await _step(second, ".three") == "3:agent.assistant_message"
    log = open_sqlite()
    await log.append("r2", [asks("stop, please")])  # numbered 3 in the new file, as the driver's own in the lost one
    assert await _step(second, "four") == "5:continuous.tampered 6:agent.message_injected"
    assert await _step(first, "four") == "5:agent.message_injected"
    trace = "agent.assistant_message"
    assert await _contents(log, "r1") == [
        (1, "one"), (2, trace), (3, "continuous.tampered"), (4, "three"), (5, "four")
    ]  # fmt: skip
    assert await _contents(log, "r2") == [
        (1, "one"), (2, trace), (3, trace), (4, "stop, please"), (5, "continuous.tampered"), (6, "four")
    ]  # fmt: skip


async def test_a_driver_that_was_replaced_in_the_new_file_has_lost_its_lease(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path, db: Path
) -> None:
    driver = await _driving(start_driver, tmp_path)
    shutil.rmtree(db.parent)
    log = open_sqlite()
    lease = await begin(log, tmp_path)
    await log.append("r1", [asks("mine")], lease=lease)
    refused = await _step(driver, "three")
    assert refused.startswith(
        f"LeaseLost {db} was deleted or replaced, and meanwhile run name of r1 (r1) is running in "
    )
    assert await _contents(log) == [(1, "mine")]


async def test_a_driver_that_was_replaced_twice_has_lost_its_lease_although_nobody_holds_it(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path, db: Path
) -> None:
    driver = await _driving(start_driver, tmp_path)
    shutil.rmtree(db.parent)
    log = open_sqlite()
    for _ in range(2):
        await log.release(await begin(log, tmp_path), status="suspended")
    assert (await _step(driver, "three")).startswith("LeaseLost another driver took over run r1 (lease 1, now 2)")


async def test_a_store_that_cannot_be_put_back_is_said_in_one_line_and_copied_elsewhere(
    start_driver: StartDriver, tmp_path: Path, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    driver = await _driving(start_driver, tmp_path)
    shutil.rmtree(db.parent)
    db.parent.write_text("in the way of the folder")
    said = await _step(driver, "three")
    begin_of_line, copied, copy = said.partition("; a copy of what was in it is ")
    assert begin_of_line.startswith(f"StoreError {db} was deleted or replaced while runs were being recorded and")
    assert copied
    assert Path(copy).is_relative_to(tmp_path)
    with closing(sqlite3.connect(copy)) as rescued:
        assert rescued.execute("SELECT run_id, seq FROM events").fetchall() == [("r1", 1), ("r1", 2)]
    assert Path(copy).parent.stat().st_mode & 0o077 == 0
    assert db.parent.read_text() == "in the way of the folder"


async def test_a_file_of_another_program_put_in_its_place_is_kept_aside(
    start_driver: StartDriver, tmp_path: Path, db: Path
) -> None:
    driver = await _driving(start_driver, tmp_path)
    _delete_files(db)
    db.write_text("not a database at all, but more than a hundred bytes long " * 4)
    assert await _step(driver, "three") == "3:continuous.tampered 4:agent.message_injected"
    aside = db.with_name(f"{db.name}.spoilt-1")
    assert aside.read_text().startswith("not a database at all")


async def test_a_driver_that_only_waits_puts_the_store_back_too(
    open_sqlite: OpenSqlite, tmp_path: Path, db: Path
) -> None:
    log = open_sqlite()
    lease = await begin(log, tmp_path)
    await log.append("r1", [asks("one")], lease=lease)
    following = log.follow("r1", after=1)
    news = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)
    shutil.rmtree(db.parent)
    human = open_sqlite()
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await human.append("r1", [asks("stop")])
                break
            except RunNotFound:
                await asyncio.sleep(0.01)
        assert isinstance((await news).event, StoreTampered)
        assert isinstance((record := await anext(following)).event, MessageReceived)
    assert (record.seq, record.event.content) == (3, "stop")
    await following.aclose()


async def test_whoever_only_follows_sees_what_comes_after(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path, db: Path
) -> None:
    driver = await _driving(start_driver, tmp_path)
    following = open_sqlite().follow("r1", after=1)
    shutil.rmtree(db.parent)
    await _step(driver, "three")
    async with asyncio.timeout(PATIENCE):
        assert isinstance((await anext(following)).event, StoreTampered)
        record = await anext(following)
    assert isinstance(record.event, MessageReceived)
    assert (record.seq, record.event.content) == (4, "three")
    await following.aclose()


async def test_a_mere_reader_does_not_bring_back_what_was_deleted(
    open_sqlite: OpenSqlite, tmp_path: Path, db: Path
) -> None:
    log = open_sqlite()
    await log.release(await begin(log, tmp_path), status="suspended")
    following = log.follow("r1")
    news = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)
    shutil.rmtree(db.parent)
    await asyncio.wait([news], timeout=0.2)
    assert not db.exists()
    news.cancel()
    await asyncio.wait([news])


async def test_an_older_copy_put_in_its_place_gets_what_it_lacks(
    open_sqlite: OpenSqlite, tmp_path: Path, db: Path
) -> None:
    log = open_sqlite()
    done = await log.acquire("r0", name="earlier", folder=str(tmp_path))
    await log.append("r0", [asks("one")], lease=done)
    with closing(sqlite3.connect(db)) as plain, closing(sqlite3.connect(tmp_path / "old.db")) as copy:
        plain.backup(copy)
    await log.append("r0", [asks("two"), says("three")], lease=done)
    await log.save_snapshot(done, 2, b"state")
    await log.release(done, status="completed")
    lease = await begin(log, tmp_path)
    _delete_files(db)
    (tmp_path / "old.db").rename(db)
    await log.append("r1", [asks("mine")], lease=lease)
    again = open_sqlite()
    assert await _contents(again, "r0") == [(1, "one"), (2, "two"), (3, "agent.assistant_message")]
    assert await again.load_snapshot("r0") == (2, b"state")
    assert {(row.run_id, row.status) for row in await again.runs()} == {("r0", "completed"), ("r1", "running")}
