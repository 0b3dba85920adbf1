"""What every EventLog promises, in memory and on disk alike."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE
from store.store_kit import OpenLog, asks, begin, says
from untildone.core.events import (
    ContinuousWarning,
    IterationCompleted,
    Record,
    StopRequested,
    Unknown,
)
from untildone.errors import LeaseLost, RunBusy, RunNotFound, StoreError
from untildone.ports import EventLog

pytestmark = pytest.mark.anyio


async def next_of(records: AsyncIterator[Record]) -> Record:
    async with asyncio.timeout(PATIENCE):
        return await anext(records)


async def test_appended_events_are_read_back_numbered_from_one(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    lease = await begin(log, tmp_path)
    first = await log.append("r1", [asks("a"), says("b")], lease=lease)
    second = await log.append("r1", [asks("c")], lease=lease)
    assert [record.seq for record in first + second] == [1, 2, 3]
    assert await open_log().read("r1", trace=True) == first + second


async def test_control_events_are_read_alone_unless_trace_is_asked_for(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path)
    await log.append("r1", [says("1"), asks("2"), says("3"), asks("4")])
    assert [record.seq for record in await log.read("r1")] == [2, 4]
    assert [record.seq for record in await log.read("r1", trace=True)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("part", "seqs"),
    [
        ({"trace": True, "limit": 2}, [1, 2]),
        ({"trace": True, "after": 3}, [4, 5, 6]),
        ({"after": 3}, [4, 6]),
        ({"after": 2, "limit": 1}, [4]),
        ({"trace": True, "limit": 0}, []),
        ({"trace": True, "after": 6}, []),
        ({"after": 99}, []),
        ({"trace": True, "after": -5}, [1, 2, 3, 4, 5, 6]),
    ],
)
async def test_reading_a_part(open_log: OpenLog, tmp_path: Path, part: dict[str, Any], seqs: list[int]) -> None:
    log = open_log()
    await begin(log, tmp_path)
    await log.append("r1", [says("1"), asks("2"), says("3"), asks("4"), says("5"), asks("6")])
    assert [record.seq for record in await log.read("r1", **part)] == seqs


async def test_runs_are_numbered_each_by_itself(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path / "a", "r1")
    await begin(log, tmp_path / "b", "r2")
    await log.append("r1", [asks("x"), asks("y")])
    assert [record.seq for record in await log.append("r2", [asks("z")])] == [1]
    assert await log.read("nobody") == []


async def test_what_append_returns_is_what_is_read_even_if_the_text_had_to_be_mended(
    open_log: OpenLog, tmp_path: Path
) -> None:
    log = open_log()
    await begin(log, tmp_path)
    written = await log.append("r1", [asks("nul \0, half a pair \ud800, \U0001f600")])
    assert written == await log.read("r1")
    assert written[0].event == asks("nul \ufffd, half a pair \ufffd, \U0001f600")


async def test_unknown_events_are_kept_with_their_kind(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path)
    events = [Unknown(type="x.y", version=4, kind=kind, data=b"\xff\x00") for kind in ("control", "trace")]
    await log.append("r1", events)
    assert [record.event for record in await log.read("r1", trace=True)] == events
    assert [record.event for record in await log.read("r1")] == events[:1]


async def test_an_append_is_all_or_nothing(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path)
    broken = IterationCompleted(iteration_num=1, cost_usd=1.0, total_cost_usd=float("nan"))
    with pytest.raises(StoreError, match="wrong type"):
        await log.append("r1", [asks("good"), broken])
    assert await log.read("r1", trace=True) == []
    assert [record.seq for record in await log.append("r1", [asks("next")])] == [1]


async def test_appending_nothing_changes_no_number(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    lease = await begin(log, tmp_path)
    assert await log.append("r1", [], lease=lease) == []
    assert [record.seq for record in await log.append("r1", [asks("a")])] == [1]


async def test_an_unknown_run_cannot_be_written(open_log: OpenLog) -> None:
    with pytest.raises(RunNotFound, match="r1"):
        await open_log().append("r1", [asks("a")])


async def test_a_run_has_one_driver(open_log: OpenLog, tmp_path: Path) -> None:
    await begin(open_log(), tmp_path / "a")
    told = r"r1 \(r1\) is running in .*a \(process \d+, since 20.*\): .*`untildone status r1`.*`untildone stop r1`$"
    with pytest.raises(RunBusy, match=told):
        await begin(open_log(), tmp_path / "b")


async def test_a_second_run_in_a_folder_is_told_of_the_first_and_of_its_way_beside_it(
    open_log: OpenLog, tmp_path: Path
) -> None:
    await begin(open_log(), tmp_path)
    with pytest.raises(RunBusy, match=r'`untildone message r1 "TEXT"`.*`untildone run "GOAL" --worktree`$'):
        await begin(open_log(), tmp_path, "r2")


@pytest.mark.parametrize("other", [".", "sub/folder", "..", "sub/../.", "link"])
async def test_a_folder_its_parents_and_its_children_have_one_driver(
    open_log: OpenLog, tmp_path: Path, other: str
) -> None:
    folder = tmp_path / "outer" / "folder"
    folder.mkdir(parents=True)
    (folder / "link").symlink_to(folder)
    lease = await begin(open_log(), folder)
    with pytest.raises(RunBusy, match="r1"):
        await begin(open_log(), folder / other, "r2")
    assert [row.run_id for row in await open_log().runs()] == ["r1"]
    await open_log().release(lease, status="suspended")


async def test_neighbouring_folders_do_not_disturb_each_other(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path / "app", "r1")
    await begin(log, tmp_path / "app2", "r2")
    assert [row.alive for row in await log.runs()] == [True, True]


async def test_a_refused_driver_leaves_no_lock_behind(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    first = await begin(log, tmp_path / "a", "r1")
    with pytest.raises(RunBusy):
        await begin(log, tmp_path / "a", "r2")
    await log.release(first, status="suspended")
    await begin(open_log(), tmp_path / "b", "r2")
    await begin(open_log(), tmp_path / "a", "r1")


async def test_a_lost_lease_cannot_write_but_commands_always_can(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    old = await begin(log, tmp_path)
    await log.release(old, status="suspended")
    new = await begin(open_log(), tmp_path)
    assert new.token == old.token + 1
    with pytest.raises(LeaseLost, match="another driver"):
        await log.append("r1", [asks("late")], lease=old)
    with pytest.raises(LeaseLost):
        await log.save_snapshot(old, 1, b"late")
    with pytest.raises(LeaseLost):
        await log.append("r1", [], lease=old)
    await log.append("r1", [StopRequested(by="dashboard")])
    await log.append("r1", [asks("mine")], lease=new)
    assert [record.event for record in await log.read("r1")] == [StopRequested(by="dashboard"), asks("mine")]


async def test_a_lease_is_good_for_its_own_run_only(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    lease = await begin(log, tmp_path / "a", "r1")
    await begin(log, tmp_path / "b", "r2")
    with pytest.raises(LeaseLost):
        await log.append("r2", [asks("x")], lease=lease)


async def test_a_driver_that_lost_its_lease_leaves_the_status_alone(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    old = await begin(log, tmp_path)
    await log.release(old, status="suspended")
    await begin(open_log(), tmp_path)
    await log.release(old, status="completed")
    assert [(row.status, row.alive) for row in await log.runs()] == [("running", True)]


async def test_the_list_of_runs(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    assert await log.runs() == []
    lease = await begin(log, tmp_path / "a", "r1")
    await log.append("r1", [says("x")], lease=lease)
    await begin(log, tmp_path / "b", "r2")
    await log.release(lease, status="completed")
    older, newer = sorted(await open_log().runs(), key=lambda row: row.run_id)
    assert (older.name, older.folder, older.status, older.alive) == (
        "name of r1",
        str(tmp_path / "a"),
        "completed",
        False,
    )
    assert (newer.run_id, newer.status, newer.alive) == ("r2", "running", True)
    assert older.created_at < newer.created_at < older.updated_at


async def test_a_start_that_was_refused_takes_nobodys_name_and_leaves_nothing(
    open_log: OpenLog, tmp_path: Path
) -> None:
    log = open_log()
    refused = await begin(log, tmp_path)
    assert [row.alive for row in await log.runs()] == [True]
    await log.release(refused, status="new")
    assert await open_log().runs() == []
    with pytest.raises(RunNotFound):
        await log.append("r1", [says("x")])


async def test_what_was_recorded_is_listed_whatever_its_driver_calls_it(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    lease = await begin(log, tmp_path)
    await log.append("r1", [says("x")], lease=lease)
    await log.release(lease, status="new")
    assert [row.run_id for row in await open_log().runs()] == ["r1"]


async def test_a_driver_that_died_before_its_first_word_is_not_listed(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path)
    await log.close()
    assert await open_log().runs() == []


async def test_the_run_touched_last_comes_first(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    for name in ("r1", "r2", "r3"):
        await begin(log, tmp_path / name, name)
    await log.append("r1", [says("x")])
    assert [row.run_id for row in await log.runs()] == ["r1", "r3", "r2"]


async def test_closing_gives_up_the_leases_and_keeps_the_events(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path)
    await log.append("r1", [asks("a")])
    await log.close()
    await log.close()
    again = open_log()
    assert [row.alive for row in await again.runs()] == [False]
    assert (await begin(again, tmp_path)).token == 2
    assert [record.event for record in await again.read("r1")] == [asks("a")]


async def test_only_the_newest_snapshot_is_kept(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    lease = await begin(log, tmp_path)
    assert await log.load_snapshot("r1") is None
    assert await log.load_snapshot("nobody") is None
    await log.save_snapshot(lease, 3, b"three")
    await log.save_snapshot(lease, 5, b"five\0\xff")
    assert await open_log().load_snapshot("r1") == (5, b"five\0\xff")


async def test_following_gives_what_is_there_and_then_what_comes(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path)
    await log.append("r1", [asks("1"), says("2"), asks("3")])
    records = log.follow("r1", after=1, trace=True)
    assert [(await next_of(records)).seq for _ in range(2)] == [2, 3]
    coming = asyncio.ensure_future(next_of(records))
    await asyncio.sleep(0)
    await open_log().append("r1", [says("4")])
    assert (await coming).seq == 4


async def test_following_gives_a_long_past_without_waiting_for_news(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path)
    await log.append("r1", [says("x")] * 1700)
    records = log.follow("r1", trace=True)
    assert [(await next_of(records)).seq for _ in range(1700)] == list(range(1, 1701))


async def test_following_control_events_passes_over_trace(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path)
    records = log.follow("r1")
    coming = asyncio.ensure_future(next_of(records))
    await asyncio.sleep(0)
    await log.append("r1", [says("noise")])
    await asyncio.sleep(0)
    await log.append("r1", [asks("news")])
    assert (await coming).seq == 2


async def test_following_a_run_before_it_exists(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    coming = asyncio.ensure_future(next_of(log.follow("r1")))
    await asyncio.sleep(0)
    await begin(log, tmp_path)
    await log.append("r1", [asks("first")])
    assert (await coming).seq == 1


async def test_followers_miss_and_double_nothing_while_others_write(open_log: OpenLog, tmp_path: Path) -> None:
    log, other = open_log(), open_log()
    await begin(log, tmp_path)
    total = 1200

    async def collect(reader: EventLog) -> list[int]:
        seqs: list[int] = []
        async for record in reader.follow("r1", trace=True):
            seqs.append(record.seq)
            if record.seq % 7 == 0:
                await asyncio.sleep(0)
            if record.seq == total:
                break
        return seqs

    async def write(writer: EventLog) -> None:
        for _ in range(total // 6):
            await writer.append("r1", [says("a"), asks("b"), says("c")])
            await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE):
        first, second, *_ = await asyncio.gather(collect(log), collect(other), write(log), write(other))
    assert first == second == list(range(1, total + 1))


async def test_a_follower_can_be_cancelled_and_closed(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path)
    waiting = asyncio.ensure_future(anext(log.follow("r1")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await log.append("r1", [asks("a"), asks("b")])
    records = log.follow("r1")
    assert (await next_of(records)).seq == 1
    await records.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(records)
    assert log._followers == set()


async def test_time_is_the_clocks(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path)
    batches = [await log.append("r1", [ContinuousWarning(message="x"), asks("y")]) for _ in range(3)]
    assert all(len({record.at for record in batch}) == 1 for batch in batches)
    assert all(one[0].at < next_one[0].at for one, next_one in pairwise(batches))


# --- what happened elsewhere ---------------------------------------------------------------------------------------


async def test_what_happened_elsewhere_keeps_its_moments(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    told = [(10.0, asks("a")), (20.0, says("b")), (30.0, asks("c"))]
    assert await log.transcribe("r9", told, name="it", folder=str(tmp_path), status="running", after=0)
    records = await open_log().read("r9", trace=True)
    assert [(record.seq, record.at, record.event) for record in records] == [
        (seq, at, event) for seq, (at, event) in enumerate(told, 1)
    ]
    (row,) = await log.runs()
    assert (row.run_id, row.name, row.folder, row.created_at, row.updated_at, row.status, row.alive) == (
        "r9", "it", str(tmp_path.resolve()), 10.0, 30.0, "running", False,
    )  # fmt: skip


async def test_whoever_was_not_the_first_has_to_read_again(open_log: OpenLog, tmp_path: Path) -> None:
    first, second = open_log(), open_log()
    how = {"name": "it", "folder": str(tmp_path), "status": "running"}
    assert await first.transcribe("r9", [(1.0, asks("a"))], after=0, **how)
    assert not await second.transcribe("r9", [(1.0, asks("a"))], after=0, **how)
    assert await second.transcribe("r9", [(2.0, says("b")), (3.0, asks("c"))], after=1, **how)
    assert not await first.transcribe("r9", [(9.0, asks("z"))], after=1, **how)
    assert [record.at for record in await first.read("r9", trace=True)] == [1.0, 2.0, 3.0]


async def test_a_human_who_asks_something_in_between_counts_as_faster(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    how = {"name": "it", "folder": str(tmp_path)}
    assert await log.transcribe("r9", [(1.0, asks("a"))], after=0, status="running", **how)
    await log.append("r9", [asks("b")])
    assert not await log.transcribe("r9", [(3.0, asks("c"))], after=1, status="running", **how)
    assert await log.transcribe("r9", [(3.0, asks("c"))], after=2, status="completed", **how)
    assert [row.status for row in await log.runs()] == ["completed"]


async def test_transcribing_is_all_or_nothing_and_reaches_followers(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    how = {"name": "it", "folder": str(tmp_path), "status": "running"}
    assert await log.transcribe("r9", [(1.0, asks("a"))], after=0, **how)
    wrong = IterationCompleted(iteration_num=1, cost_usd="much")  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        await log.transcribe("r9", [(2.0, asks("b")), (3.0, wrong)], after=1, **how)
    assert len(await log.read("r9")) == 1
    following = log.follow("r9", after=1)
    coming = asyncio.ensure_future(next_of(following))
    await asyncio.sleep(0)
    assert await log.transcribe("r9", [(4.0, asks("d"))], after=1, **how)
    assert (await coming).at == 4.0
    await following.aclose()  # type: ignore[attr-defined]


async def test_a_run_told_from_elsewhere_locks_no_folder(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    await begin(log, tmp_path)
    assert await log.transcribe("r9", [(1.0, asks("a"))], name="it", folder=str(tmp_path), status="running", after=0)
    assert {row.run_id: row.alive for row in await log.runs()} == {"r1": True, "r9": False}
