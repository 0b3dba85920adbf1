"""Events leave in order, each once, whatever the server does, and the run never waits for it."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from store.store_kit import Ticks
from untildone.core.events import Record
from untildone.core.wire import Receipt
from untildone.errors import UplinkDown, UplinkRefused
from untildone.ports import EventLog
from untildone.store.memory import MemoryLog
from untildone.uplink import outbox as subject
from untildone.uplink.outbox import BATCH_EVENTS, Outbox
from uplink.uplink_kit import PATIENCE, RUN, MemoryUplink, begun, control, down, refused, taken, trace, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def log() -> EventLog:
    made = MemoryLog(Ticks())
    await begun(made)
    return made


@asynccontextmanager
async def at_work(outbox: Outbox) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(outbox.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def seqs(uplink: MemoryUplink, run_id: str = RUN) -> list[int]:
    return list(uplink.kept.get(run_id, {}))


async def test_what_is_there_and_what_comes_is_delivered_in_order(log: EventLog) -> None:
    uplink = MemoryUplink()
    await log.append(RUN, [trace(str(n)) for n in range(1200)])
    async with at_work(Outbox(log, RUN, uplink)):
        await until(lambda: len(seqs(uplink)) == 1201)
        await log.append(RUN, [control(2)])
        await until(lambda: len(seqs(uplink)) == 1202)
    assert seqs(uplink) == list(range(1, 1203))
    assert max(size for _, size in uplink.batches) <= BATCH_EVENTS


async def test_what_decides_does_not_wait_for_company(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "COMPANY", 2 * PATIENCE)
    uplink = MemoryUplink()
    async with at_work(Outbox(log, RUN, uplink)):
        await until(lambda: seqs(uplink) == [1])
        await log.append(RUN, [trace("one")])
        await log.append(RUN, [control(2)])
        await until(lambda: seqs(uplink) == [1, 2, 3])


async def test_trace_is_gathered_for_a_moment(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "COMPANY", 1.0)  # longer than it takes to write
    uplink = MemoryUplink()
    async with at_work(Outbox(log, RUN, uplink)):
        await until(lambda: seqs(uplink) == [1])
        for n in range(20):
            await log.append(RUN, [trace(str(n))])
            await asyncio.sleep(0)
        await until(lambda: len(seqs(uplink)) == 21)
    assert len(uplink.batches) <= 3


async def test_large_events_go_in_small_batches(log: EventLog) -> None:
    uplink = MemoryUplink()
    await log.append(RUN, [trace("x" * 400_000) for _ in range(7)])
    async with at_work(Outbox(log, RUN, uplink)):
        await until(lambda: len(seqs(uplink)) == 8)
    assert max(size for _, size in uplink.batches) == 3  # of the first, which is small, and two large ones


async def test_a_server_that_is_away_is_asked_how_far_it_came_and_told_of_once(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "FIRST_REST", 0.01)
    monkeypatch.setattr(subject, "LONGEST_REST", 0.02)
    uplink, told = MemoryUplink(), list[str]()

    async def say(line: str) -> None:
        told.append(line)

    async with at_work(Outbox(log, RUN, uplink, say=say)):
        await until(lambda: seqs(uplink) == [1])
        for number in (2, 3):
            uplink.fail = down
            await log.append(RUN, [control(number)])
            asked = uplink.asked
            await until(lambda: uplink.asked > asked + 4)  # noqa: B023 - awaited here
            uplink.fail = lambda: None
            await until(lambda: len(seqs(uplink)) == number)  # noqa: B023 - awaited here
    assert seqs(uplink) == [1, 2, 3]
    assert len(told) == 1
    assert "the server is away" in told[0]


async def test_a_blip_is_told_to_nobody(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "FIRST_REST", 0.01)
    uplink, told = MemoryUplink(), list[str]()
    failing = iter([True])

    def once() -> None:
        if next(failing, False):
            raise UplinkDown("for a moment")

    async def say(line: str) -> None:
        told.append(line)

    uplink.fail = once
    async with at_work(Outbox(log, RUN, uplink, say=say)):
        await until(lambda: seqs(uplink) == [1])
    assert told == []


async def test_an_answer_that_got_lost_doubles_nothing(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "FIRST_REST", 0.01)

    class Forgetful(MemoryUplink):
        async def send(self, *args: object, **more: object) -> object:  # type: ignore[override]
            receipt = await super().send(*args, **more)  # type: ignore[arg-type]
            if len(self.batches) % 2:
                raise UplinkDown("no answer in time")
            return receipt

    uplink = Forgetful()
    async with at_work(Outbox(log, RUN, uplink)):
        for number in range(2, 12):
            await log.append(RUN, [control(number)])
            await until(lambda: len(seqs(uplink)) == number)  # noqa: B023 - awaited here
    assert seqs(uplink) == list(range(1, 12))


async def test_a_server_that_lost_something_gets_it_again(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "FIRST_REST", 0.01)
    uplink = MemoryUplink()
    await log.append(RUN, [trace(str(n)) for n in range(10)])
    async with at_work(Outbox(log, RUN, uplink)):
        await until(lambda: len(seqs(uplink)) == 11)
        for seq in (9, 10, 11):
            del uplink.kept[RUN][seq]
        uplink.fail = down
        await log.append(RUN, [control(3)])
        await until(lambda: uplink.asked >= 2)
        uplink.fail = lambda: None
        await until(lambda: sorted(seqs(uplink)) == list(range(1, 13)))


async def test_a_refusal_is_told_once_and_tried_again(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "REFUSED_REST", 0.01)
    monkeypatch.setattr(subject, "LONGEST_REFUSED_REST", 0.02)
    uplink, told = MemoryUplink(fail=refused), list[str]()

    async def say(line: str) -> None:
        told.append(line)

    outbox = Outbox(log, RUN, uplink, say=say)
    async with at_work(outbox):
        await until(lambda: uplink.asked >= 4)
        assert outbox.refused is not None
        uplink.fail = lambda: None
        await until(lambda: seqs(uplink) == [1])
        await until(lambda: outbox.refused is None)
    assert told == ["nothing of this run is reported until that is mended: the token is not valid"]


async def test_at_the_end_a_refusal_is_tried_once_more_and_not_waited_for(log: EventLog) -> None:
    uplink = MemoryUplink(fail=refused)
    outbox = Outbox(log, RUN, uplink)
    async with at_work(outbox):
        await until(lambda: outbox.refused is not None)
        async with asyncio.timeout(PATIENCE):
            left = await outbox.settle(PATIENCE)
        assert left.text == "1 event still to be delivered (the token is not valid)"
        assert uplink.asked == 2


async def test_what_is_too_large_goes_in_halves(log: EventLog) -> None:
    class Narrow(MemoryUplink):
        async def send(self, run_id: str, records: Sequence[Record], *, tenure: int = 0) -> Receipt:
            if len(records) > 3:
                raise UplinkRefused("the body is too large", too_large=True)
            return await super().send(run_id, records, tenure=tenure)

    uplink, told = Narrow(), list[str]()

    async def say(line: str) -> None:
        told.append(line)

    await log.append(RUN, [trace(str(n)) for n in range(20)])
    async with at_work(Outbox(log, RUN, uplink, say=say)):
        await until(lambda: len(seqs(uplink)) == 21)
    assert seqs(uplink) == list(range(1, 22))
    assert told == []


async def test_an_older_server_that_hears_a_sign_of_life_gets_what_it_lost(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "FIRST_REST", 0.01)
    uplink = MemoryUplink()
    await log.append(RUN, [trace(str(n)) for n in range(9)])
    async with at_work(Outbox(log, RUN, uplink, heartbeat=0.05)):
        await until(lambda: len(seqs(uplink)) == 10)
        for seq in (6, 7, 8, 9, 10):
            del uplink.kept[RUN][seq]
        await until(lambda: sorted(seqs(uplink)) == list(range(1, 11)))


@pytest.mark.parametrize("forged", [5, 2**53])
async def test_a_server_that_has_more_than_there_is_is_not_believed(log: EventLog, forged: int) -> None:
    class Forged(MemoryUplink):
        async def received(self, run_id: str) -> Receipt:
            return Receipt(last_seq=forged)

        async def send(self, run_id: str, records: Sequence[Record], *, tenure: int = 0) -> Receipt:
            return Receipt(last_seq=forged)

    told = list[str]()

    async def say(line: str) -> None:
        told.append(line)

    outbox = Outbox(log, RUN, Forged(), say=say)
    async with at_work(outbox):
        await until(lambda: bool(told))
    assert "more of this run than there is" in told[0]
    assert outbox.delivered == 0
    assert (await outbox.left()).events == 1


async def test_a_run_that_was_taken_over_is_told_and_ends_it(log: EventLog) -> None:
    uplink, told = MemoryUplink(fail=taken), list[str]()

    async def say(line: str) -> None:
        told.append(line)

    outbox = Outbox(log, RUN, uplink, say=say)
    async with asyncio.timeout(PATIENCE):
        await outbox.run()
    assert outbox.refused is not None
    assert outbox.refused.taken
    assert len(told) == 1
    assert (await outbox.settle(PATIENCE)).events == 1


async def test_a_run_that_rests_gives_signs_of_life(log: EventLog) -> None:
    uplink = MemoryUplink()
    async with at_work(Outbox(log, RUN, uplink, heartbeat=0.05)):
        await until(lambda: uplink.batches.count((RUN, 0)) >= 3)


async def test_without_a_heartbeat_a_run_that_rests_is_silent(log: EventLog) -> None:
    uplink = MemoryUplink()
    async with at_work(Outbox(log, RUN, uplink, heartbeat=None)):
        await until(lambda: seqs(uplink) == [1])
        await log.append(RUN, [control(2)])
        await until(lambda: seqs(uplink) == [1, 2])
    assert (RUN, 0) not in uplink.batches


async def test_at_the_end_what_is_left_is_said_after_a_bounded_time(log: EventLog) -> None:
    outbox = Outbox(log, RUN, MemoryUplink(fail=down))
    async with at_work(outbox):
        await until(lambda: outbox._trouble != "")
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(PATIENCE):
            left = await outbox.settle(0.3)
        took = asyncio.get_running_loop().time() - began
    assert left.text == "1 event still to be delivered (the server is away)"
    assert took > 0.2


async def test_at_the_end_a_server_that_comes_back_in_time_gets_everything(log: EventLog) -> None:
    uplink = MemoryUplink(fail=down)
    await log.append(RUN, [trace(str(n)) for n in range(700)])
    outbox = Outbox(log, RUN, uplink, jitter=lambda: 1.0)
    async with at_work(outbox):
        await until(lambda: uplink.asked >= 2)
        leaving = asyncio.create_task(outbox.settle(PATIENCE))
        await asyncio.sleep(0)
        uplink.fail = lambda: None
        left = await leaving
    assert left.events == 0
    assert left.text == ""
    assert len(seqs(uplink)) == 701


async def test_a_new_outbox_goes_on_where_the_server_is(log: EventLog) -> None:
    uplink = MemoryUplink()
    async with at_work(Outbox(log, RUN, uplink)):
        await until(lambda: seqs(uplink) == [1])
    await log.append(RUN, [control(2), trace("while nobody sent")])
    sent = len(uplink.batches)
    async with at_work(Outbox(log, RUN, uplink)):
        await until(lambda: seqs(uplink) == [1, 2, 3])
    assert sum(size for _, size in uplink.batches[sent:]) == 2


async def test_memory_does_not_grow_with_what_waits(log: EventLog) -> None:
    """However much waits in the log for a server that is away, no more than one batch of it is held here."""
    await log.append(RUN, [trace("x") for _ in range(20_000)])
    uplink = MemoryUplink()
    gate = asyncio.Event()

    class Slow(MemoryUplink):
        async def send(self, *args: object, **more: object) -> object:  # type: ignore[override]
            await gate.wait()
            return await super().send(*args, **more)  # type: ignore[arg-type]

    uplink = Slow()
    outbox = Outbox(log, RUN, uplink)
    async with at_work(outbox):
        await until(lambda: any(one.full() for one in _queues()))
        await asyncio.sleep(0.05)
        queues = list(_queues())
        assert queues
        assert all(one.qsize() <= BATCH_EVENTS for one in queues)
        gate.set()
        await until(lambda: len(seqs(uplink)) == 20_001)


def _queues() -> Iterator[asyncio.Queue[object]]:
    """Those that hold what waits to be sent."""
    return (one for one in gc.get_objects() if isinstance(one, asyncio.Queue) and one.maxsize == BATCH_EVENTS)
