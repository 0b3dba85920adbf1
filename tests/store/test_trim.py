"""Old trace goes, in memory and on disk alike; what decides stays, and no number is given twice."""

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from costs import takes_at_most
from patience import PATIENCE
from store.store_kit import OpenLog, OpenSqlite, Ticks, asks, begin, says
from untildone.core.codec import encode
from untildone.core.events import Event, Record
from untildone.errors import LeaseLost
from untildone.ports import EventLog, Lease
from untildone.store.trim import CHUNK, ROW_BYTES

pytestmark = pytest.mark.anyio

AGES = 10.0**9
COST = len(encode(says("0000"))) + ROW_BYTES


def told(*numbers: int) -> list[Event]:
    return [says(f"{number:04}") for number in numbers]


async def seqs(log: EventLog, run_id: str = "r1", *, trace: bool = True) -> list[int]:
    return [record.seq for record in await log.read(run_id, trace=trace)]


async def begun(log: EventLog, folder: Path, run_id: str = "r1") -> Lease:
    """A run with the numbers 1 to 9, of which 3 and 6 decide."""
    lease = await begin(log, folder, run_id)
    await log.append(run_id, [*told(1, 2), asks("a"), *told(4, 5)], lease=lease)
    await log.append(run_id, [asks("b"), *told(7, 8, 9)], lease=lease)
    return lease


async def test_the_oldest_go_until_the_rest_fits(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    lease = await begun(log, tmp_path)
    assert await log.trim_trace(lease, keep_bytes=7 * COST, keep_seconds=AGES) == 0
    assert await log.trim_trace(lease, keep_bytes=4 * COST, keep_seconds=AGES) == 3
    assert await seqs(log) == [3, 5, 6, 7, 8, 9]
    assert await log.trim_trace(lease, keep_bytes=4 * COST, keep_seconds=AGES) == 0
    assert await log.trim_trace(lease, keep_bytes=0, keep_seconds=AGES) == 4
    assert await seqs(open_log()) == [3, 6]


async def test_what_is_too_old_goes_however_small_it_is(open_log: OpenLog, tmp_path: Path, clock: Ticks) -> None:
    log = open_log()
    lease = await begun(log, tmp_path)
    clock.seconds += 100
    await log.append("r1", told(10), lease=lease)
    assert await log.trim_trace(lease, keep_bytes=1 << 30, keep_seconds=50) == 7
    assert await seqs(log) == [3, 6, 10]


async def test_numbers_go_on_behind_those_that_are_gone(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    lease = await begun(log, tmp_path)
    await log.trim_trace(lease, keep_bytes=0, keep_seconds=AGES)
    (new,) = await log.append("r1", told(10), lease=lease)
    assert new.seq == 10
    assert await seqs(log) == [3, 6, 10]
    assert await seqs(log, trace=False) == [3, 6]
    assert [r.seq for r in await log.read("r1", after=4, trace=True)] == [6, 10]
    assert [r.seq for r in await log.read("r1", after=1, trace=True, limit=2)] == [3, 6]


async def test_followers_cross_the_gap(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    lease = await begun(log, tmp_path)
    following = log.follow("r1", trace=True)
    seen: list[Record] = [await anext(following)]
    await log.trim_trace(lease, keep_bytes=COST, keep_seconds=AGES)
    await log.append("r1", [asks("c")], lease=lease)
    late = open_log().follow("r1", after=1, trace=True)
    async with asyncio.timeout(PATIENCE):
        while seen[-1].seq < 10:
            seen.append(await anext(following))
        fresh = [(await anext(late)).seq for _ in range(4)]
    assert {3, 6, 9, 10} <= {record.seq for record in seen}, "what was read before the trim may be there too"
    assert [record.seq for record in seen] == sorted({record.seq for record in seen})
    assert fresh == [3, 6, 9, 10]


async def test_only_its_own_run_is_touched_and_only_by_its_driver(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    lease = await begun(log, tmp_path / "a")
    await begun(log, tmp_path / "b", "r2")
    await log.trim_trace(lease, keep_bytes=0, keep_seconds=AGES)
    assert await seqs(log, "r2") == list(range(1, 10))
    await log.release(lease, status="suspended")
    await begin(log, tmp_path / "a")
    with pytest.raises(LeaseLost):
        await log.trim_trace(lease, keep_bytes=0, keep_seconds=AGES)


async def test_runs_that_ended_long_ago_keep_what_decided(open_log: OpenLog, tmp_path: Path, clock: Ticks) -> None:
    log = open_log()
    for run_id in ("old", "driven", "new"):
        lease = await begun(log, tmp_path / run_id, run_id)
        if run_id != "driven":
            await log.release(lease, status="completed")
        if run_id == "driven":
            clock.seconds += 1000
    before = clock.now() - 500
    assert await log.trim_ended(before=before, most=1000) == 7
    assert await seqs(log, "old") == [3, 6]
    assert len(await seqs(log, "driven")) == len(await seqs(log, "new")) == 9
    assert await log.trim_ended(before=before, most=1000) == 0
    again = await begin(log, tmp_path / "old", "old")
    assert [record.seq for record in await log.append("old", told(10), lease=again)] == [10]


async def test_removing_is_done_in_pieces_so_that_nobody_waits_long(
    open_sqlite: OpenSqlite, tmp_path: Path, clock: Ticks
) -> None:
    log, other = open_sqlite(), open_sqlite()
    lease = await begin(log, tmp_path)
    pieces = 5
    await log.append("r1", told(*range(pieces * CHUNK)), lease=lease)
    trimming = asyncio.create_task(log.trim_trace(lease, keep_bytes=0, keep_seconds=AGES))
    left = []
    while not trimming.done():
        await asyncio.sleep(0)
        await other.append("r1", [asks("let me in")])
        left.append(len(await seqs(other)) - len(await seqs(other, trace=False)))
    assert await trimming == pieces * CHUNK
    assert len({count for count in left if count}) >= pieces - 2, "somebody else wrote between the pieces"
    assert await log.trim_ended(before=clock.now() + 9, most=CHUNK) == 0, "it is driven"


async def test_old_runs_are_cleared_a_little_at_every_start(
    open_sqlite: OpenSqlite, tmp_path: Path, clock: Ticks
) -> None:
    log = open_sqlite()
    lease = await begin(log, tmp_path)
    await log.append("r1", told(*range(3 * CHUNK)), lease=lease)
    await log.release(lease, status="completed")
    before = clock.now() + 1
    assert [await log.trim_ended(before=before, most=2 * CHUNK) for _ in range(3)] == [2 * CHUNK, CHUNK, 0]


@pytest.mark.parametrize("most", [20_000, pytest.param(100_000, marks=pytest.mark.soak)])
async def test_what_a_trim_costs_depends_on_what_goes_not_on_what_stays(
    open_sqlite: OpenSqlite, tmp_path: Path, most: int
) -> None:
    log = open_sqlite()
    leases = {}
    for run_id, kept in (("few", 1_000), ("many", most)):
        leases[run_id] = await begin(log, tmp_path / run_id, run_id)
        await log.append(run_id, told(*range(kept)), lease=leases[run_id])
        await log.trim_trace(leases[run_id], keep_bytes=kept * COST, keep_seconds=AGES)

    async def trim(run_id: str, kept: int) -> None:
        await log.append(run_id, told(*range(500)), lease=leases[run_id])
        assert await log.trim_trace(leases[run_id], keep_bytes=kept * COST, keep_seconds=AGES) > 400

    await takes_at_most(5, partial(trim, "many", most), partial(trim, "few", 1_000))


async def test_room_that_was_freed_is_used_again(open_sqlite: OpenSqlite, tmp_path: Path, db: Path) -> None:
    log = open_sqlite()
    lease = await begin(log, tmp_path)
    sizes = []
    for _ in range(6):
        await log.append("r1", [says("x" * 1000) for _ in range(2000)], lease=lease)
        await log.trim_trace(lease, keep_bytes=500 * 1000, keep_seconds=AGES)
        with closing(sqlite3.connect(db)) as look:
            sizes.append(look.execute("PRAGMA page_count").fetchone()[0])
    assert sizes[-1] < 1.2 * sizes[1]


async def test_lock_files_nobody_needs_go_and_a_held_one_stays(
    open_sqlite: OpenSqlite, tmp_path: Path, db: Path, clock: Ticks
) -> None:
    log = open_sqlite()
    await log.release(await begin(log, tmp_path / "a", "old"), status="completed")
    held = await begin(log, tmp_path / "b", "held")
    locks = db.parent / "locks"
    assert len(list(locks.iterdir())) == 4
    for path in locks.iterdir():
        os.utime(path, (1, 1))
    await log.release(await begin(log, tmp_path / "c", "young"), status="completed")
    await log.trim_ended(before=time.time() - 60, most=1)
    left = {path.name for path in locks.iterdir()}
    assert {"held.lock", "young.lock"} <= left
    assert "old.lock" not in left
    assert len(left) == 4
    assert {row.run_id for row in await open_sqlite().runs() if row.alive} == {"held"}
    await log.release(held, status="completed")
    assert (await begin(log, tmp_path / "a", "old")).token == 2


@pytest.mark.parametrize("note", ["('r1', 'x', 2, 3)", "('r1', 99, 99, 0)", "('r1', 0, 2, -5)"])
async def test_notes_that_somebody_spoilt_are_made_anew(
    open_sqlite: OpenSqlite, tmp_path: Path, db: Path, note: str
) -> None:
    log = open_sqlite()
    lease = await begun(log, tmp_path)
    with closing(sqlite3.connect(db)) as other, other:
        other.execute(f"INSERT INTO trims VALUES {note}")
        other.execute("UPDATE events SET at = 'long ago' WHERE seq = 1")
    assert await log.trim_trace(lease, keep_bytes=4 * COST, keep_seconds=AGES) == 3
    assert [number for number in await seqs(log) if number < 10] == [3, 5, 6, 7, 8, 9]
