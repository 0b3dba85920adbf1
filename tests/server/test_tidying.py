"""What is too old or too much goes, in small steps; what decides stays; nothing to do costs nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from patience import PATIENCE
from server.archive_kit import HandClock, archive_in, receive
from server.events_kit import told
from untildone.core.durations import DAY
from untildone.server.archive.port import Archive, EventFilter, Key
from untildone.server.tidying import STEP, Tidied, Tidier

pytestmark = pytest.mark.anyio

NOW = 400 * DAY


@pytest.fixture
async def file_archive(tmp_path: Path) -> AsyncIterator[Archive]:
    async with archive_in(tmp_path) as opened:
        yield opened


def tidier(archive: Archive, *, keep_days: float = 90, keep_bytes: int = 1 << 30, now: float = NOW) -> Tidier:
    return Tidier(archive, HandClock(now), keep_days=keep_days, keep_bytes=keep_bytes)  # type: ignore[arg-type]


async def fill(archive: Archive, run_id: str, count: int, *, at: float, first: int = 1, size: int = 10) -> None:
    """Every tenth event decides something."""
    text = '{"text": "' + "x" * size + '"}'
    events = [
        told(seq, kind="control" if seq % 10 == 0 else "trace", data=text, at=at) for seq in range(first, first + count)
    ]
    await receive(archive, run_id, events, now=at)


async def numbers(archive: Archive, run_id: str) -> list[int]:
    return [event.seq for event in await archive.events.read(run_id, EventFilter(after=0, limit=100_000))]


async def test_old_trace_goes_and_what_decided_stays(archive: Archive) -> None:
    await fill(archive, "old", 100, at=NOW - 100 * DAY)
    await fill(archive, "both", 20, at=NOW - 100 * DAY)
    await fill(archive, "both", 20, at=NOW - DAY, first=21)
    await fill(archive, "new", 20, at=NOW - DAY)
    assert (await tidier(archive).tidy()).events == 90 + 18
    assert await numbers(archive, "old") == [*range(10, 101, 10)]
    assert await numbers(archive, "both") == [10, 20, *range(21, 41)]
    assert await numbers(archive, "new") == [*range(1, 21)]
    assert await tidier(archive).tidy() == Tidied()


async def test_a_run_keeps_its_newest_trace_within_its_bytes(archive: Archive) -> None:
    await fill(archive, "large", 200, at=NOW - DAY, size=1000)
    await fill(archive, "small", 20, at=NOW - DAY, size=1000)
    removed = (await tidier(archive, keep_bytes=50_000).tidy()).events
    kept = await numbers(archive, "large")
    assert 100 < removed < 180
    assert kept[-10:] == [*range(191, 201)]
    assert [seq for seq in kept if seq % 10 == 0] == [*range(10, 201, 10)]
    assert len(await numbers(archive, "small")) == 20


async def test_much_is_removed_in_steps_and_others_have_their_turn(file_archive: Archive) -> None:
    await fill(file_archive, "old", 3 * STEP, at=NOW - 100 * DAY)
    turns = 0

    async def somebody_else() -> None:
        nonlocal turns
        while True:
            turns += 1
            await fill(file_archive, "busy", 10, at=NOW, first=10 * turns)
            await asyncio.sleep(0)

    other = asyncio.create_task(somebody_else())
    removed = await tidier(file_archive).tidy()
    other.cancel()
    await asyncio.wait([other])
    assert removed.events == 3 * STEP * 9 // 10
    assert turns >= 3


async def test_keys_that_expired_and_messages_nobody_fetched_go(archive: Archive) -> None:
    for name, expires in (("gone", NOW - 1), ("here", NOW + 1), ("ever", None)):
        key = Key(
            key_id=name, kind="login", scope="viewer", sandbox_id=None, label="", created_at=1.0, expires_at=expires
        )
        await archive.keys.add(key, f"hash of {name}")
    await archive.orders.put("box", "old", "user_message", now=NOW - 30 * DAY)
    await archive.orders.put("box", "new", "user_message", now=NOW - 1)
    assert (await tidier(archive).tidy()).keys_and_messages == 2
    assert [message.content for message in await archive.orders.take("box")] == ["new"]
    assert await archive.keys.find("hash of here", now=NOW) is not None


async def test_the_file_shrinks_when_much_is_gone(file_archive: Archive, tmp_path: Path) -> None:
    await fill(file_archive, "old", 3000, at=NOW - 100 * DAY, size=10_000)
    await file_archive.close()
    before = (tmp_path / "server.db").stat().st_size
    async with archive_in(tmp_path) as again:
        freed = (await tidier(again).tidy()).bytes_freed
        assert (await tidier(again).tidy()).bytes_freed == 0
    assert freed > before // 4
    assert (tmp_path / "server.db").stat().st_size < before - freed // 2


class _Counting:
    """Events of an archive, and how often a run was trimmed."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.trims = 0
        self.events = self

    async def trim(self, run_id: str, *, before: float, keep_bytes: int, most: int) -> int:
        self.trims += 1
        return await self._archive.events.trim(run_id, before=before, keep_bytes=keep_bytes, most=most)

    async def overgrown(self, *, before: float, keep_bytes: int, limit: int) -> list[str]:
        return await self._archive.events.overgrown(before=before, keep_bytes=keep_bytes, limit=limit)

    def __getattr__(self, name: str) -> object:
        return getattr(self._archive, name)


async def test_runs_with_nothing_to_remove_are_not_touched(file_archive: Archive) -> None:
    for number in range(30):
        await fill(file_archive, f"r{number}", 10, at=NOW - DAY)
    await fill(file_archive, "old", 10, at=NOW - 100 * DAY)
    counting = _Counting(file_archive)
    await tidier(counting).tidy()  # type: ignore[arg-type]
    assert counting.trims == 1
    await tidier(counting).tidy()  # type: ignore[arg-type]
    assert counting.trims == 1


class _AwayAtFirst(_Counting):
    """An archive that does not answer the first time."""

    asked = 0

    async def sweep(self, *, now: float, messages_before: float) -> int:
        self.asked += 1
        if self.asked == 1:
            raise OSError("the database is away")
        return await self._archive.sweep(now=now, messages_before=messages_before)


async def test_it_tidies_at_once_and_again_after_trouble(file_archive: Archive) -> None:
    away = _AwayAtFirst(file_archive)
    await fill(file_archive, "old", 10, at=NOW - 100 * DAY)
    tidy = Tidier(away, HandClock(NOW), keep_days=90, keep_bytes=1 << 30, every=0.01)  # type: ignore[arg-type]
    async with tidy.running(), asyncio.timeout(PATIENCE):
        while len(await numbers(file_archive, "old")) > 1:
            await asyncio.sleep(0.01)
    assert away.asked >= 2
