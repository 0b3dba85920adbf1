"""What is kept of what is sent, and how much of it is read at once."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

import msgspec
import pytest

from server.events_kit import BOX, many, told
from untildone.core.wire import Receipt
from untildone.errors import SenderRefused
from untildone.server.archive.accepting import MOST_FIRST_TENURE
from untildone.server.archive.port import Archive, EventFilter, Sender, StoredEvent

pytestmark = pytest.mark.anyio


async def _refused(receiving: Awaitable[Receipt]) -> SenderRefused:
    with pytest.raises(SenderRefused) as refused:
        await receiving
    return refused.value


async def test_only_taking_a_run_over_gives_it_a_higher_tenure(archive: Archive) -> None:
    await archive.events.receive(replace(BOX, tenure=3), "run", many(1, 3), now=1.0)
    forged = await _refused(archive.events.receive(replace(BOX, tenure=4), "run", [], now=1.0))
    assert (forged.taken, forged.last_seq, forged.behind) == (False, None, 3)
    assert (await archive.events.receive(replace(BOX, tenure=3), "run", many(4, 4), now=1.0)).last_seq == 4


async def test_no_run_begins_so_high_that_nobody_could_take_it_over(archive: Archive) -> None:
    highest = replace(BOX, tenure=2**31 - 1)
    await _refused(archive.events.receive(highest, "run", many(1, 3), now=1.0))
    await archive.events.receive(replace(BOX, tenure=MOST_FIRST_TENURE), "run", many(1, 3), now=1.0)
    taken = await archive.runs.take_over("run", sandbox_id="other", tenure=MOST_FIRST_TENURE)
    assert taken == MOST_FIRST_TENURE + 1


async def test_a_batch_goes_on_where_the_copy_ends(archive: Archive) -> None:
    receive = archive.events.receive
    await receive(BOX, "run", many(50, 52), now=1.0)  # what came before is gone from the log
    for lost in (BOX, replace(BOX, after=60)):
        assert (await _refused(receive(lost, "run", many(61, 62), now=1.0))).last_seq == 52
    assert (await receive(replace(BOX, after=52), "run", many(61, 62), now=1.0)).last_seq == 62
    far = await _refused(receive(replace(BOX, after=62), "run", [told(2**53)], now=1.0))
    assert far.last_seq == 62
    assert [event.seq for event in await archive.events.read("run", EventFilter(after=0))] == [50, 51, 52, 61, 62]


async def test_a_page_is_bounded_in_bytes_and_says_that_there_is_more(archive: Archive) -> None:
    big = [replace_data(told(seq), 3 << 20) for seq in range(1, 7)]
    for event in big:
        await archive.events.receive(BOX, "run", [event], now=1.0)
    seen: list[int] = []
    while (page := await archive.events.read("run", EventFilter(after=seen[-1] if seen else 0))).more:
        assert len(page) <= 3
        seen += [event.seq for event in page]
    assert [*seen, *(event.seq for event in page)] == [1, 2, 3, 4, 5, 6]
    backwards = await archive.events.read("run", EventFilter(before=7))
    assert ([event.seq for event in backwards], backwards.more) == ([4, 5, 6], True)
    searched = await archive.events.read("run", EventFilter(after=0, text="xxx"))
    assert ([event.seq for event in searched], searched.more) == ([1, 2, 3], True)


def replace_data(event: StoredEvent, size: int) -> StoredEvent:
    return msgspec.structs.replace(event, data='{"t":"' + "x" * size + '"}')


async def test_the_sandbox_of_the_own_machine_is_nobody_elses(archive: Archive) -> None:
    await _refused(archive.events.receive(Sender(sandbox_id="local"), "run", many(1, 1), now=1.0))
    await _refused(archive.events.publish("local", [told(0)], now=1.0))


async def test_a_run_is_its_drivers_from_the_first_batch_on_and_the_new_ones_when_taken_over(archive: Archive) -> None:
    receive, mine = archive.events.receive, replace(BOX, driver_hash="a" * 64)
    await receive(mine, "run", many(1, 3), now=1.0)
    for other in (BOX, replace(BOX, driver_hash="b" * 64)):
        for events in (many(4, 4), []):
            refused = await _refused(receive(other, "run", events, now=1.0))
            assert (refused.taken, refused.last_seq, refused.behind) == (False, None, None)
    assert (await receive(replace(BOX, trusted=True), "run", many(4, 4), now=1.0)).last_seq == 4
    await archive.runs.take_over("run", sandbox_id="box", tenure=0, driver_hash="b" * 64)
    assert (await _refused(receive(mine, "run", [], now=1.0))).taken
    await _refused(receive(replace(mine, tenure=1), "run", [], now=1.0))
    assert (await receive(replace(BOX, tenure=1, driver_hash="b" * 64), "run", many(5, 5), now=1.0)).last_seq == 5


async def test_of_two_who_begin_a_run_at_once_one_has_it(archive: Archive) -> None:
    both = (replace(BOX, driver_hash=letter * 64) for letter in "ab")
    tries = (archive.events.receive(one, "run", many(1, 3), now=1.0) for one in both)
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["Receipt", "SenderRefused"]
    entry = await archive.runs.entry("run")
    assert entry is not None
    assert entry.driver_hash == ("a" if isinstance(answers[0], Receipt) else "b") * 64
