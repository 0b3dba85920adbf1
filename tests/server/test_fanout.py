"""Who follows is told, once each, in order; who lags is told that, and nobody waits for anybody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from patience import PATIENCE
from server.archive_kit import WORKER, archive_in
from untildone.server import fanout as module
from untildone.server.archive.opening import open_archive
from untildone.server.archive.port import Archive, StoredEvent
from untildone.server.fanout import Fanout, Note

pytestmark = pytest.mark.anyio


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    async with archive_in(tmp_path) as one:
        yield one


def events(*seqs: int, text: str = "x") -> list[StoredEvent]:
    return [
        StoredEvent(seq=seq, at=1.0, kind="trace", type="a.b", source="agent", version=1, data=f'{{"t":"{text}"}}')
        for seq in seqs
    ]


def seqs(note: Note | None) -> list[int]:
    assert note is not None
    assert note.events is not None
    return [event.seq for event in note.events]


async def test_a_burst_is_one_note_that_is_encoded_once_for_all(archive: Archive) -> None:
    fanout = Fanout(archive)
    made = []

    def encode(burst: tuple[StoredEvent, ...]) -> bytes:
        made.append(len(burst))
        return b"encoded"

    with fanout.follow("run") as one, fanout.follow("run") as other, fanout.follow("else") as elsewhere:
        fanout.events("run", events(1))
        for seq in range(2, 6):
            fanout.events("run", events(seq))
        for follower in (one, other):
            first, rest = await follower.next(PATIENCE), await follower.next(PATIENCE)
            assert (seqs(first), seqs(rest)) == ([1], [2, 3, 4, 5])
            assert first is not None
            assert first.encoded("form", encode) == b"encoded"
        assert made == [1]
        assert await elsewhere.next(0.01) is None


async def test_nothing_is_held_back_when_it_is_quiet(archive: Archive) -> None:
    fanout = Fanout(archive)
    with fanout.follow("run") as follower:
        fanout.events("run", events(1))
        assert [seqs(note) for note in follower.waiting()] == [[1]]


async def test_changes_are_told_to_those_who_follow_the_run_and_to_those_who_follow_all(archive: Archive) -> None:
    fanout = Fanout(archive)
    with fanout.follow("run") as one, fanout.follow(None) as everything:
        fanout.changed("run")
        fanout.changed("run")
        fanout.changed("other")
        fanout.events("run", events(1))
        assert [note.run_id for note in everything.waiting()] == ["run", "other"]
        assert [note.events is None for note in one.waiting()] == [True, False]
        fanout.changed("run")
        assert [note.run_id for note in everything.waiting()] == ["run"]


async def test_one_that_lags_is_told_so_once_and_hears_what_comes_after(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BURST_EVENTS", 1)
    fanout = Fanout(archive)
    with fanout.follow("run") as slow, fanout.follow("run") as quick:
        heard = []
        for seq in range(1, module.MOST_NOTES + 11):
            fanout.events("run", events(seq))
            heard += [seqs(note)[0] for note in quick.waiting() if note.events]
        notes = slow.waiting()
    assert heard == list(range(1, module.MOST_NOTES + 11))
    assert [note.lagged for note in notes].count(True) == 1
    assert notes[0].lagged
    assert len(notes) <= module.MOST_NOTES
    assert fanout.lagged == 1


async def test_a_follower_is_also_bounded_in_bytes(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BURST_EVENTS", 1)
    monkeypatch.setattr(module, "MOST_WAITING", 10_000)
    fanout = Fanout(archive)
    with fanout.follow("run") as slow:
        for seq in range(1, 5):
            fanout.events("run", events(seq, text="y" * 6_000))
        assert slow.waiting()[0].lagged
        fanout.events("run", events(9, text="y" * 20_000))
        # One that is alone is told whatever its size: there is nothing to catch up with.
        assert [seqs(note) for note in slow.waiting()] == [[9]]


async def test_orders_wake_those_who_wait_for_them_and_nobody_else(archive: Archive) -> None:
    fanout = Fanout(archive)
    with fanout.follow("run", only_orders=True) as worker, fanout.follow("run") as viewer:
        fanout.events("run", events(1))
        fanout.changed("run")
        assert worker.waiting() == []
        fanout.ordered("run")
        assert [note.ordered for note in worker.waiting()] == [True]
        assert not any(note.ordered for note in viewer.waiting())


async def test_iterating_ends_with_the_server(archive: Archive) -> None:
    fanout = Fanout(archive)
    with fanout.follow("run") as follower:
        fanout.events("run", events(1))
        asyncio.get_running_loop().call_later(0.05, fanout.end)
        async with asyncio.timeout(PATIENCE):
            assert [seqs(note) async for note in follower] == [[1]]
    with fanout.follow("run") as late:
        assert await late.next(PATIENCE) is None
    assert fanout.followers == 0


async def test_who_left_costs_nothing_any_more(archive: Archive) -> None:
    fanout = Fanout(archive)
    with fanout.follow("run"):
        fanout.events("run", events(1))
        fanout.events("run", events(2))
    fanout.events("run", events(3))
    assert fanout.followers == 0
    assert not fanout._bursts
    assert not fanout._told


# --- several server processes ----------------------------------------------------------------------------


@asynccontextmanager
async def _process(url: str) -> AsyncIterator[tuple[Archive, Fanout]]:
    archive = await open_archive(url)
    try:
        fanout = Fanout(archive)
        async with fanout.running():
            yield archive, fanout
    finally:
        await archive.close()


async def test_what_one_process_stores_is_told_by_another(postgres_url: str) -> None:
    async with _process(postgres_url) as (archive, here), _process(postgres_url) as (_, there):
        with (
            there.follow("run") as viewer,
            there.follow(None) as fleet,
            there.follow("run", only_orders=True) as worker,
        ):
            first, second = events(*range(1, 4)), events(*range(4, 2000))
            await archive.events.receive(WORKER, "run", first, now=1.0)
            here.events("run", first)
            note = await viewer.next(PATIENCE)
            assert note is not None
            assert note.lagged, "where nobody knows how far it has come, everybody looks for themselves"
            await archive.events.receive(WORKER, "run", second, now=1.0)
            here.events("run", second)
            heard: list[int] = []
            while not heard or heard[-1] < 1999:
                heard += seqs(await viewer.next(PATIENCE))
            assert heard == list(range(4, 2000))
            here.changed("run")
            here.ordered("run")
            changed, ordered = await fleet.next(PATIENCE), await worker.next(PATIENCE)
            assert changed is not None
            assert changed.run_id == "run"
            assert ordered is not None
            assert ordered.ordered
