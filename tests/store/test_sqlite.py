"""What only the log on disk must do: share a file between processes, survive their death, stay fast."""

import asyncio
import gc
import signal
import stat
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from costs import takes_at_most
from patience import PATIENCE
from store.store_kit import OpenSqlite, StartDriver, Ticks, asks, begin, line_of, says
from untildone.core.events import MessageReceived
from untildone.errors import RunNotFound, StoreError
from untildone.store import driven, schema, sqlite

pytestmark = pytest.mark.anyio


async def test_two_processes_append_at_once(open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path) -> None:
    log = open_sqlite()
    await begin(log, tmp_path)
    count = 200
    writers = [await start_driver("append", "r1", str(count), writer) for writer in ("one", "two")]
    async with asyncio.timeout(PATIENCE):
        outputs = [(await writer.communicate())[0].decode().split("\n")[:-1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    told = {int(seq): text for output in outputs for seq, text in (line.split(" ", 1) for line in output)}
    records = await log.read("r1", trace=True)
    assert [record.seq for record in records] == list(range(1, 2 * count + 1))
    found = {record.seq: getattr(record.event, "text", None) or record.event.content for record in records}
    assert found == told
    # Each writer's own events stand in the order it wrote them.
    for writer in ("one", "two"):
        own = [int(text.split(":")[1]) for text in found.values() if text.startswith(writer)]
        assert own == list(range(count))


async def test_a_follower_sees_what_another_process_writes(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path
) -> None:
    log = open_sqlite()
    await begin(log, tmp_path)
    records = log.follow("r1", trace=True)
    writer = await start_driver("append", "r1", "100", "far")
    async with asyncio.timeout(PATIENCE):
        seqs = [(await anext(records)).seq for _ in range(100)]
    assert seqs == list(range(1, 101))
    await records.aclose()
    await writer.communicate()


async def test_a_writer_killed_in_the_middle_leaves_whole_appends(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path
) -> None:
    first = open_sqlite()
    await begin(first, tmp_path)
    await first.close()
    told = 0
    for _ in range(3):
        writer = await start_driver("pairs", "r1")
        for _ in range(20):
            told = int(await line_of(writer))
        writer.kill()
        rest = (await writer.communicate())[0].split()
        told = int(rest[-1]) if rest else told
    log = open_sqlite()
    records = await log.read("r1")
    assert len(records) >= told
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    halves = Counter(record.event.by for record in records if isinstance(record.event, MessageReceived))
    assert halves["first"] == halves["second"] == len(records) / 2
    assert log._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_control_events_wait_for_the_disk_and_trace_does_not(open_sqlite: OpenSqlite, tmp_path: Path) -> None:
    log = open_sqlite()
    await begin(log, tmp_path)
    full, normal = (2,), (1,)
    for events, wanted in [([says("a")], normal), ([says("b"), asks("c")], full), ([asks("d")], full)]:
        await log.append("r1", events)
        assert log._db.execute("PRAGMA synchronous").fetchone() == wanted


async def test_reading_control_events_uses_their_own_index(open_sqlite: OpenSqlite) -> None:
    plan = open_sqlite()._db.execute(f"EXPLAIN QUERY PLAN {driven.READ_CONTROL}", ("r1", 0, -1)).fetchall()
    assert [row[3] for row in plan] == ["SEARCH events USING INDEX events_control (run_id=? AND seq>?)"]


async def test_following_everything_from_a_point_reads_no_sorted_copy(open_sqlite: OpenSqlite) -> None:
    plan = open_sqlite()._db.execute(f"EXPLAIN QUERY PLAN {sqlite._READ_ALL}", ("r1", 0, -1)).fetchall()
    assert [row[3] for row in plan] == ["SEARCH events USING INDEX sqlite_autoindex_events_1 (run_id=? AND seq>?)"]


async def _resume(log: sqlite.SqliteLog, run_id: str) -> None:
    gc.collect(0)
    assert len(await log.read(run_id)) == 100


@pytest.mark.parametrize("much", [100, pytest.param(1000, marks=pytest.mark.soak)])
async def test_many_trace_events_do_not_slow_down_the_resume(
    open_sqlite: OpenSqlite, tmp_path: Path, much: int
) -> None:
    log = open_sqlite()
    for run_id, noise in (("short", 1), ("long", much)):
        await begin(log, tmp_path / run_id, run_id)
        for number in range(100):
            await log.append(run_id, [says("x" * 100)] * noise)
            await log.append(run_id, [asks(str(number))])
    # A hundred or a thousand times as many events.
    await takes_at_most(3, partial(_resume, log, "long"), partial(_resume, log, "short"))


async def test_the_files_are_private(open_sqlite: OpenSqlite, db: Path, tmp_path: Path) -> None:
    await begin(open_sqlite(), tmp_path)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in db.parent.rglob("*")}
    assert stat.S_IMODE(db.parent.stat().st_mode) == 0o700
    assert modes.pop("locks") == 0o700
    assert {"untildone.db", "untildone.db-wal", "r1.lock"} <= set(modes)
    assert set(modes.values()) == {0o600}


async def test_a_disk_that_fills_up_costs_only_the_append_that_failed(
    open_sqlite: OpenSqlite, tmp_path: Path, db: Path
) -> None:
    log = open_sqlite()
    lease = await begin(log, tmp_path)
    await log.append("r1", [asks("before")], lease=lease)
    (pages,) = log._db.execute("PRAGMA page_count").fetchone()
    log._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match="disk is full: free some space") as caught:
        await log.append("r1", [asks("small"), asks("x" * 100_000)], lease=lease)
    assert str(db) in str(caught.value)
    assert "\n" not in str(caught.value)
    log._db.execute("PRAGMA max_page_count = 1000000")
    await log.append("r1", [asks("after")], lease=lease)
    assert [record.event for record in await open_sqlite().read("r1")] == [asks("before"), asks("after")]


async def test_a_system_that_refuses_to_write_loses_nothing_recorded(
    open_sqlite: OpenSqlite, start_driver: StartDriver, tmp_path: Path
) -> None:
    log = open_sqlite()
    await begin(log, tmp_path)
    writer = await start_driver("full_disk", "r1")
    appended, error = int(await line_of(writer)), await line_of(writer)
    assert error.startswith("the store ")
    assert "what was recorded before is safe" in error
    assert appended > 0
    assert len(await log.read("r1")) == appended
    await log.append("r1", [asks("after")])


async def test_a_store_kept_locked_is_said_in_one_line(
    open_sqlite: OpenSqlite, tmp_path: Path, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.05)
    log, other = open_sqlite(), open_sqlite()
    await begin(log, tmp_path)
    other._db.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another process kept it locked"):
        await log.append("r1", [asks("a")])
    other._db.execute("ROLLBACK")
    assert [record.seq for record in await log.append("r1", [asks("a")])] == [1]


async def test_a_closed_log_says_so(open_sqlite: OpenSqlite, tmp_path: Path) -> None:
    log = open_sqlite()
    await begin(log, tmp_path)
    await log.close()
    with pytest.raises(StoreError, match="closed"):
        await log.append("r1", [asks("a")])


@pytest.mark.parametrize("run_id", ["../../etc/passwd", "a/b", "..", "\udcff", "nul\0", "'; DROP TABLE runs; --", ""])
async def test_an_id_is_only_text(open_sqlite: OpenSqlite, tmp_path: Path, db: Path, run_id: str) -> None:
    log = open_sqlite()
    with pytest.raises(RunNotFound):
        await log.append(run_id, [asks("a")])
    lease = await log.acquire(run_id, name="n\udcff", folder=str(tmp_path / "f\udcff"))
    await log.append(run_id, [asks("a")], lease=lease)
    assert len(await log.read(run_id)) == 1
    assert [row.alive for row in await log.runs()] == [True]
    await log.release(lease, status="suspended")
    locks = [path for path in tmp_path.rglob("*.lock") if path.is_file()]
    assert [path.parent for path in locks] == [db.parent / "locks"] * 2


async def test_numbers_never_have_gaps_after_refused_appends(open_sqlite: OpenSqlite, tmp_path: Path) -> None:
    log = open_sqlite()
    await begin(log, tmp_path)
    for _ in range(3):
        await log.append("r1", [asks("a")])
        with pytest.raises(RunNotFound):
            await log.append("r2", [asks("b")])
    seqs = [record.seq for record in await log.read("r1")]
    assert all(after == before + 1 for before, after in pairwise(seqs))


async def test_a_follower_of_the_same_process_does_not_wait_for_a_poll(
    open_sqlite: OpenSqlite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "POLL_SECONDS", 10 * PATIENCE)
    log = open_sqlite()
    await begin(log, tmp_path)
    records = log.follow("r1")
    coming = asyncio.ensure_future(anext(records))
    await asyncio.sleep(0)
    await log.append("r1", [asks("now")])
    async with asyncio.timeout(PATIENCE):
        assert (await coming).event == asks("now")
    await records.aclose()


async def test_many_drivers_share_a_store_each_with_its_own_run(
    start_driver: StartDriver, open_sqlite: OpenSqlite, tmp_path: Path
) -> None:
    drivers = [await start_driver("hold", f"r{n}", str(tmp_path / str(n))) for n in range(3)]
    assert [await line_of(driver) for driver in drivers] == ["held 1"] * 3
    log = open_sqlite()
    assert [row.alive for row in await log.runs()] == [True] * 3
    await log.append("r0", [asks("x")])
    drivers[0].send_signal(signal.SIGKILL)
    await drivers[0].wait()
    assert Counter(row.alive for row in await log.runs()) == {True: 2, False: 1}


async def test_the_clock_is_the_only_source_of_time(open_sqlite: OpenSqlite, tmp_path: Path, clock: Ticks) -> None:
    log = open_sqlite()
    await begin(log, tmp_path)
    clock.seconds = 5.0  # a clock may jump back: numbers, not times, give the order
    records = await log.append("r1", [asks("a")])
    assert [record.at for record in records] == [6.0]
