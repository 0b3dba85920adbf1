"""A run that lived on another machine, in memory and on disk alike: its numbers, sealed as ours, all or nothing."""

from pathlib import Path

import pytest

from store.store_kit import OpenLog, OpenSqlite, asks, begin, says
from untildone.core.events import IterationCompleted, Record, Unknown
from untildone.errors import StoreError
from untildone.store.adopted import in_rising_order

pytestmark = pytest.mark.anyio

FAR = [
    Record(seq=1, at=100.0, event=asks("first")),
    Record(seq=4, at=104.5, event=asks("fourth")),
    Record(seq=9, at=109.0, event=Unknown(type="later.kind", version=7, kind="control", data=b'{"x":1}')),
]


async def adopt(log: OpenLog, tmp_path: Path, records: list[Record] | None = None) -> bool:
    how = {"name": "far", "folder": str(tmp_path), "status": "suspended"}
    return await log().adopt("r9", FAR if records is None else records, **how)


async def test_numbers_moments_and_strange_events_stay_and_the_next_number_continues(
    open_log: OpenLog, tmp_path: Path
) -> None:
    assert await adopt(open_log, tmp_path)
    log = open_log()
    assert await log.read("r9") == FAR
    (row,) = await log.runs()
    assert (row.run_id, row.name, row.folder, row.status, row.alive) == ("r9", "far", str(tmp_path), "suspended", False)
    lease = await log.acquire("r9", name="far", folder=str(tmp_path))
    (new,) = await log.append("r9", [asks("here")], lease=lease)
    assert (new.seq, lease.token) == (10, 1)
    assert [record.seq for record in await open_log().read("r9", trace=True)] == [1, 4, 9, 10]


async def test_a_driver_finds_nothing_wrong_with_it(open_sqlite: OpenSqlite, tmp_path: Path) -> None:
    """Gaps between the numbers are no deleted records: trace stays where it was."""
    await adopt(open_sqlite, tmp_path)
    log = open_sqlite()
    lease = await log.acquire("r9", name="far", folder=str(tmp_path))
    written = await log.append("r9", [says("a"), asks("b")], lease=lease)
    await log.release(lease, status="suspended")
    assert [record.seq for record in written] == [10, 11]
    assert len(await open_sqlite().read("r9")) == len(FAR) + 1


async def test_a_run_that_is_here_is_left_alone(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    lease = await begin(log, tmp_path, run_id="r9")
    await log.append("r9", [asks("mine")], lease=lease)
    assert not await adopt(open_log, tmp_path)
    assert [record.event for record in await log.read("r9")] == [asks("mine")]


async def test_twice_is_once_and_nothing_is_no_run(open_log: OpenLog, tmp_path: Path) -> None:
    assert not await adopt(open_log, tmp_path, [])
    assert await open_log().runs() == []
    assert await adopt(open_log, tmp_path)
    assert not await adopt(open_log, tmp_path)
    assert await open_log().read("r9") == FAR


async def test_all_or_nothing(open_log: OpenLog, tmp_path: Path) -> None:
    wrong = IterationCompleted(iteration_num="one", cost_usd=None)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        await adopt(open_log, tmp_path, [*FAR, Record(seq=10, at=1.0, event=wrong)])
    assert await open_log().runs() == []
    assert await open_log().read("r9", trace=True) == []


@pytest.mark.parametrize("seqs", [(1, 1), (2, 1), (0,), (-3,), (2**53 + 1,)])
def test_numbers_that_no_log_gives_are_refused(seqs: tuple[int, ...]) -> None:
    with pytest.raises(StoreError, match="nothing was taken over"):
        in_rising_order([Record(seq=seq, at=1.0, event=asks("x")) for seq in seqs])
