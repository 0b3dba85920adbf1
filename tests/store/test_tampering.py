"""Somebody who has no business in the store writes into it: without effect on the run, and recorded."""

import asyncio
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from patience import PATIENCE
from store.store_kit import OpenLog, OpenSqlite, StartDriver, asks, begin, line_of, says
from untildone.core.codec import encode
from untildone.core.events import LimitsChanged, Record, StopRequested, StoreTampered
from untildone.errors import LeaseLost, StoreSpoilt
from untildone.ports import EventLog, Lease
from untildone.store import opened
from untildone.store import seal as sealing
from untildone.store.schema import MIGRATIONS
from untildone.store.sqlite import SqliteLog

pytestmark = pytest.mark.anyio

FORGED = "INSERT INTO events (run_id, seq, at, kind, type, version, data) VALUES ('r1', ?, 1.0, 'control', ?, 1, ?)"


@pytest.fixture
async def log(open_sqlite: OpenSqlite, tmp_path: Path) -> SqliteLog:
    """A run with the control events 1, 3, 5 and the trace 2, 4."""
    log = open_sqlite()
    lease = await begin(log, tmp_path / "folder")
    await log.append("r1", [asks("1"), says("2"), asks("3"), says("4"), asks("5")], lease=lease)
    return log


LEASE = Lease("r1", 1)


@pytest.fixture
def agent(db: Path, log: SqliteLog) -> Iterator[sqlite3.Connection]:
    """The agent's own hand on the file."""
    with closing(sqlite3.connect(db, isolation_level=None, timeout=PATIENCE)) as connection:
        yield connection


async def contents(log: EventLog) -> list[str]:
    return [getattr(record.event, "content", record.event.TYPE) for record in await log.read("r1")]


async def tampered(log: EventLog) -> list[StoreTampered]:
    return [record.event for record in await log.read("r1") if isinstance(record.event, StoreTampered)]


def forge(agent: sqlite3.Connection, seq: int, event: StopRequested | LimitsChanged | StoreTampered) -> None:
    agent.execute(FORGED, (seq, event.TYPE, encode(event)))


async def test_a_forged_event_is_not_read_and_told_once(
    log: SqliteLog, agent: sqlite3.Connection, open_sqlite: OpenSqlite
) -> None:
    forge(agent, 6, StopRequested(by="me"))
    assert await contents(log) == ["1", "3", "5"]
    assert await contents(open_sqlite()) == ["1", "3", "5"]
    written = await log.append("r1", [asks("7")], lease=LEASE)
    assert [record.seq for record in written] == [7, 8]
    finding = written[0].event
    assert isinstance(finding, StoreTampered)
    assert finding.records == (6,)
    assert finding.detail.endswith("are ignored: 6 (continuous.stop_requested)")
    agent.execute("UPDATE runs SET updated_at = 1")
    await log.append("r1", [asks("8")], lease=LEASE)
    assert await contents(open_sqlite()) == ["1", "3", "5", "continuous.tampered", "7", "8"]


async def test_it_is_not_told_again_by_the_next_driver(
    log: SqliteLog, agent: sqlite3.Connection, open_sqlite: OpenSqlite, tmp_path: Path
) -> None:
    forge(agent, 6, StopRequested(by="me"))
    agent.execute("DELETE FROM events WHERE seq = 3")
    await log.append("r1", [asks("7")], lease=LEASE)
    assert len(await tampered(log)) == 2
    await log.close()
    again = open_sqlite()
    lease = await begin(again, tmp_path / "folder")
    await again.append("r1", [asks("8")], lease=lease)
    assert len(await tampered(again)) == 2


async def test_what_was_forged_while_nobody_drove_is_told_by_the_next_driver(
    log: SqliteLog, agent: sqlite3.Connection, open_sqlite: OpenSqlite, tmp_path: Path
) -> None:
    await log.release(LEASE, status="suspended")
    forge(agent, 6, LimitsChanged(by="me", changes={"max_cost_usd": 1000.0}))
    human = open_sqlite()
    assert (await human.append("r1", [asks("by a human")]))[0].seq == 7
    again = open_sqlite()
    lease = await begin(again, tmp_path / "folder")
    assert await contents(again) == ["1", "3", "5", "by a human"]
    (finding, _) = await again.append("r1", [asks("go on")], lease=lease)
    assert isinstance(finding.event, StoreTampered)
    assert finding.event.records == (6,)


@pytest.mark.parametrize(
    "change",
    [
        'UPDATE events SET data = \'{"by":"me","content":"other"}\' WHERE seq = 3',
        'UPDATE events SET data = CAST(\'{"by":"me","content":"other"}\' AS BLOB) WHERE seq = 3',
        "UPDATE events SET at = 5 WHERE seq = 3",
        "UPDATE events SET type = CAST(x'ff' AS TEXT) WHERE seq = 3",
        "UPDATE events SET version = 'new' WHERE seq = 3",
        "UPDATE events SET prev = 0 WHERE seq = 3",
        "UPDATE events SET seal = NULL WHERE seq = 3",
        "UPDATE events SET seal = (SELECT seal FROM events WHERE seq = 1) WHERE seq = 3",
        "DELETE FROM events WHERE seq = 3",
        "UPDATE events SET kind = 'trace' WHERE seq = 3",
        "UPDATE events SET seq = 300 WHERE seq = 3",
        "UPDATE events SET run_id = 'r2' WHERE seq = 3",
    ],
)
async def test_a_changed_or_deleted_event_is_missed(
    log: SqliteLog, agent: sqlite3.Connection, open_sqlite: OpenSqlite, change: str
) -> None:
    agent.execute(change)
    await log.append("r1", [asks("next")], lease=LEASE)
    assert await contents(open_sqlite()) == ["1", "5", "continuous.tampered", "next"] or (
        # Told apart: one number was taken away, another one appeared.
        await contents(open_sqlite()) == ["1", "5", "continuous.tampered", "continuous.tampered", "next"]
    )
    assert 3 in {number for finding in await tampered(log) for number in finding.records}
    with_trace = [record.event for record in await open_sqlite().read("r1", trace=True)]
    assert asks("3") not in with_trace
    assert asks("other") not in with_trace


async def test_the_newest_events_deleted(log: SqliteLog, agent: sqlite3.Connection, open_sqlite: OpenSqlite) -> None:
    agent.execute("DELETE FROM events")
    agent.execute("UPDATE runs SET last_seq = 0")
    written = await log.append("r1", [asks("next")], lease=LEASE)
    assert written[-1].seq > 5
    assert {finding.records for finding in await tampered(log)} == {(), (5,)}
    assert (await contents(open_sqlite()))[-1] == "next"


async def test_a_snapshot_that_was_changed_is_none(
    log: SqliteLog, agent: sqlite3.Connection, open_sqlite: OpenSqlite
) -> None:
    await log.save_snapshot(LEASE, 5, b"true")
    agent.execute("UPDATE snapshots SET state = CAST('false' AS BLOB)")
    assert await log.load_snapshot("r1") is None
    assert await open_sqlite().load_snapshot("r1") is None
    await log.append("r1", [], lease=LEASE)
    [finding] = await tampered(log)
    assert "saved state was changed" in finding.detail
    await log.save_snapshot(LEASE, 6, b"again")
    assert await open_sqlite().load_snapshot("r1") == (6, b"again")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE runs SET fence = 7",
        "UPDATE runs SET fence = 'x'",
        "UPDATE runs SET status = 'completed'",
        "UPDATE runs SET folder = '/elsewhere', name = 'other'",
        "UPDATE runs SET last_seq = 1",
        "UPDATE runs SET last_seq = 'many'",
        "DELETE FROM runs",
    ],
)
async def test_the_line_in_the_list_of_runs_is_put_back(
    log: SqliteLog, agent: sqlite3.Connection, change: str, tmp_path: Path
) -> None:
    agent.execute(change)
    written = await log.append("r1", [asks("6")], lease=LEASE)
    assert [record.seq for record in written] == [6, 7]
    [finding] = await tampered(log)
    assert finding.detail.startswith("this run's line in the list of runs was ")
    [row] = await log.runs()
    assert (row.run_id, row.name, row.folder, row.status) == ("r1", "name of r1", str(tmp_path / "folder"), "running")
    await log.release(LEASE, status="suspended")
    assert [row.status for row in await log.runs()] == ["suspended"]


@pytest.mark.parametrize("far", [1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("kind", ["control", "trace"])
async def test_a_number_far_away_is_no_trap(
    log: SqliteLog, agent: sqlite3.Connection, open_sqlite: OpenSqlite, far: int, kind: str
) -> None:
    forge(agent, far, StopRequested(by="me"))
    agent.execute("UPDATE events SET kind = ? WHERE seq = ?", (kind, far))
    agent.execute("UPDATE runs SET last_seq = ?", (far,))
    human = await open_sqlite().append("r1", [asks("human")])
    assert [record.seq for record in human] == [6]
    assert (await log.append("r1", [asks("next")], lease=LEASE))[-1].seq < 20
    assert [text for text in await contents(log) if text != "continuous.tampered"] == ["1", "3", "5", "human", "next"]


async def test_more_forgeries_than_one_batch_do_not_hide_what_comes_after(
    log: SqliteLog, agent: sqlite3.Connection, open_sqlite: OpenSqlite
) -> None:
    stop = StopRequested(by="me")
    agent.execute("BEGIN")
    agent.executemany(FORGED, [(seq, stop.TYPE, encode(stop)) for seq in range(6, 1300)])
    agent.execute("COMMIT")
    following = open_sqlite().follow("r1", after=5)
    await log.append("r1", [asks("next")], lease=LEASE)
    async with asyncio.timeout(PATIENCE):
        assert isinstance((await anext(following)).event, StoreTampered)
        assert (await anext(following)).event == asks("next")
    await following.aclose()
    [finding] = await tampered(log)
    assert "and 1289 more" in finding.detail


async def test_a_driver_that_only_waits_notices_too(log: SqliteLog, agent: sqlite3.Connection) -> None:
    following = log.follow("r1", after=5)
    news = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)
    forge(agent, 6, StopRequested(by="me"))
    async with asyncio.timeout(PATIENCE):
        record: Record = await news
    assert isinstance(record.event, StoreTampered)
    await following.aclose()


async def test_what_was_not_yet_looked_at_is_told_on_leaving(
    log: SqliteLog, agent: sqlite3.Connection, open_sqlite: OpenSqlite
) -> None:
    await log.save_snapshot(LEASE, 5, b"state")
    agent.execute("UPDATE runs SET updated_at = 2")
    await log.append("r1", [asks("6")], lease=LEASE)
    agent.execute("DELETE FROM events WHERE seq = 1")
    await log.release(LEASE, status="suspended")
    [finding] = await tampered(open_sqlite())
    assert finding.records == (1,)


async def test_locks_that_were_deleted_are_taken_again(
    log: SqliteLog, db: Path, start_driver: StartDriver, tmp_path: Path
) -> None:
    shutil.rmtree(db.parent / "locks")
    await log.append("r1", [asks("6")], lease=LEASE)
    [finding] = await tampered(log)
    assert finding.detail == "the lock files of this run were deleted or replaced: they are back"
    assert [row.alive for row in await log.runs()] == [True]
    second = await start_driver("hold", "r1", str(tmp_path / "folder"))
    assert await line_of(second) == "", "refused"


async def test_who_took_over_after_the_locks_were_deleted_is_the_driver(
    log: SqliteLog, db: Path, open_sqlite: OpenSqlite, tmp_path: Path
) -> None:
    shutil.rmtree(db.parent / "locks")
    other = open_sqlite()
    new = await begin(other, tmp_path / "folder")
    with pytest.raises(LeaseLost):
        await log.append("r1", [asks("late")], lease=LEASE)
    await other.append("r1", [asks("mine")], lease=new)
    assert (await contents(other))[-1] == "mine"


@pytest.mark.parametrize("with_another", [False, True])
async def test_the_key_is_put_back(log: SqliteLog, db: Path, open_sqlite: OpenSqlite, with_another: bool) -> None:
    key = db.parent / sealing.KEY_FILE
    true = key.read_bytes()
    key.unlink()
    if with_another:
        key.write_bytes(b"k" * sealing.KEY_SIZE)
    await log.append("r1", [asks("6")], lease=LEASE)
    assert key.read_bytes() == true
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert await contents(open_sqlite()) == ["1", "3", "5", "continuous.tampered", "6"]


async def test_a_store_without_its_key_is_taken_as_it_is_when_nobody_drives(
    log: SqliteLog, db: Path, open_sqlite: OpenSqlite
) -> None:
    await log.release(LEASE, status="suspended")
    (db.parent / sealing.KEY_FILE).unlink()
    assert await contents(open_sqlite()) == ["1", "3", "5"]


async def test_an_older_store_is_sealed_as_it_stands(db: Path, open_sqlite: OpenSqlite, tmp_path: Path) -> None:
    db.parent.mkdir()
    with closing(sqlite3.connect(db)) as old:
        for number, statements in enumerate(MIGRATIONS[:2], 1):
            for statement in statements:
                old.execute(statement)
            old.execute(f"PRAGMA user_version = {number}")
        old.execute("PRAGMA application_id = 0x756E7464")
        old.execute("INSERT INTO runs VALUES ('r1', 'n', '/f', 1, 1, 'suspended', 1, 3)")
        for seq in (1, 3):
            old.execute(FORGED, (seq, asks("x").TYPE, encode(asks(str(seq)))))
        old.execute("INSERT INTO snapshots VALUES ('r1', 1, x'00')")
        old.commit()
    log = open_sqlite()
    assert await contents(log) == ["1", "3"]
    assert await log.load_snapshot("r1") == (1, b"\0")
    lease = await begin(log, tmp_path)
    await log.append("r1", [asks("4")], lease=lease)
    assert await contents(open_sqlite()) == ["1", "3", "4"]


def _drop_events(agent: sqlite3.Connection, _: Path) -> None:
    agent.execute("DROP TABLE events")


def _drop_runs(agent: sqlite3.Connection, _: Path) -> None:
    agent.execute("DROP TABLE runs")


def _drop_index(agent: sqlite3.Connection, _: Path) -> None:
    agent.execute("DROP INDEX events_control")


def _add_trigger(agent: sqlite3.Connection, _: Path) -> None:
    agent.execute("CREATE TRIGGER eat AFTER INSERT ON events BEGIN DELETE FROM events WHERE seq = NEW.seq; END")


def _garbage(_: sqlite3.Connection, db: Path) -> None:
    for end in ("-wal", ""):
        place = Path(f"{db}{end}")
        place.write_bytes(b"garbage! " * (place.stat().st_size // 9 + 1))


def _empty(_: sqlite3.Connection, db: Path) -> None:
    for end in ("-wal", ""):
        Path(f"{db}{end}").write_bytes(b"")


SPOILERS: list[Callable[[sqlite3.Connection, Path], None]] = [
    _drop_events,
    _drop_runs,
    _drop_index,
    _add_trigger,
    _garbage,
    _empty,
]


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver looks at the file through other eyes each time."""
    monkeypatch.setattr(opened, "LOOK_PAUSE", 0.0)


@pytest.mark.usefixtures("watchful")
@pytest.mark.parametrize("spoil", SPOILERS)
async def test_a_spoilt_store_is_moved_aside_and_the_driver_goes_on(
    log: SqliteLog, agent: sqlite3.Connection, db: Path, open_sqlite: OpenSqlite, spoil
) -> None:
    await log.save_snapshot(LEASE, 5, b"earlier")
    spoil(agent, db)
    with pytest.raises(StoreSpoilt):
        await log.append("r1", [asks("6")], lease=LEASE)
    await log.rebuild(LEASE, 5, b"the state")
    written = await log.append("r1", [asks("6")], lease=LEASE)
    assert isinstance(written[0].event, StoreTampered)
    aside = db.with_name(f"{db.name}.spoilt-1")
    assert str(aside) in written[0].event.detail
    assert aside.exists()
    assert written[-1].seq > 5
    await log.release(LEASE, status="suspended")
    again = open_sqlite()
    assert await again.load_snapshot("r1") == (5, b"the state")
    assert (await again.read("r1", after=5))[-1].event == asks("6")
    assert [(row.run_id, row.status) for row in await again.runs()] == [("r1", "suspended")]


async def test_what_can_still_be_read_of_other_runs_comes_along(
    log: SqliteLog, agent: sqlite3.Connection, open_sqlite: OpenSqlite, tmp_path: Path
) -> None:
    other = open_sqlite()
    lease = await begin(other, tmp_path / "b", "r2")
    await other.append("r2", [asks("of another run")], lease=lease)
    agent.execute("DROP INDEX events_control")
    with pytest.raises(StoreSpoilt):
        await log.append("r1", [asks("6")], lease=LEASE)
    await log.rebuild(LEASE, 5, b"the state")
    await log.append("r1", [asks("6")], lease=LEASE)
    assert [record.event for record in await open_sqlite().read("r2")] == [asks("of another run")]
    await other.append("r2", [asks("more")], lease=lease)
    found = [record.event for record in await open_sqlite().read("r2")]
    assert (found[0], found[-1]) == (asks("of another run"), asks("more"))
    assert await contents(log) == ["1", "3", "5", "continuous.tampered", "6"]


async def test_marks_of_a_newer_version_do_not_lock_anybody_out(
    log: SqliteLog, agent: sqlite3.Connection, open_sqlite: OpenSqlite
) -> None:
    agent.execute("PRAGMA user_version = 99")
    await log.append("r1", [asks("6")], lease=LEASE)
    assert await contents(open_sqlite()) == ["1", "3", "5", "continuous.tampered", "6"]


async def test_a_log_begun_anew_keeps_its_snapshot_and_its_numbers(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    lease = await begin(log, tmp_path)
    await log.append("r1", [asks("1"), asks("2")], lease=lease)
    await log.rebuild(lease, 2, b"state")
    first, second = await log.append("r1", [asks("3")], lease=lease)
    assert isinstance(first.event, StoreTampered)
    assert second.event == asks("3")
    assert first.seq == 3
    assert await open_log().load_snapshot("r1") == (2, b"state")
    with pytest.raises(LeaseLost):
        await log.rebuild(Lease("r1", 9), 2, b"state")
