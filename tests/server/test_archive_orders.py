import asyncio

import pytest

from patience import PATIENCE
from server.events_kit import BOX, many
from untildone.core.wire import Order, Receipt
from untildone.server.archive.opening import open_archive
from untildone.server.archive.port import Archive

pytestmark = pytest.mark.anyio


async def test_orders_have_numbers_and_ages(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", [], now=1.0)
    data: dict[str, object] = {"content": 'a "b" \0 é', "urgent": True, "patterns": ["x"], "limit": 1.5, "none": None}
    first = await archive.orders.give("run", "message", data, by="me\0", now=10.0)
    second = await archive.orders.give("run", "stop", {}, by="me", now=12.0)
    assert first == Order(number=first.number, kind="message", by="me\ufffd", at=10.0, data=data)  # type: ignore[arg-type]
    assert second.number > first.number
    kept = await archive.orders.after("run", 0, now=15.0)
    assert [(order.number, order.age, order.data) for order in kept] == [
        (first.number, 5.0, data),
        (second.number, 3.0, {}),
    ]
    assert [order.kind for order in await archive.orders.after("run", first.number, now=15.0)] == ["stop"]
    assert [order.kind for order in await archive.orders.after("run", 0, now=9.0, limit=1)] == ["message"]
    assert await archive.orders.after("other", 0, now=15.0) == []


async def test_a_receipt_tells_of_the_newest_order_of_its_run(archive: Archive) -> None:
    await archive.events.receive(BOX, "run", [], now=1.0)
    await archive.events.receive(BOX, "other", [], now=1.0)
    given = await archive.orders.give("run", "stop", {}, by="me", now=2.0)
    assert await archive.events.receive(BOX, "run", many(1, 2), now=3.0) == Receipt(2, 2, given.number)
    assert await archive.events.receive(BOX, "other", many(1, 2), now=3.0) == Receipt(2, 2, 0)
    assert await archive.orders.newest("run") == given.number
    assert await archive.orders.newest("other") == await archive.orders.newest("nobody's") == 0


async def test_a_lower_number_is_never_seen_after_a_higher_one(postgres_url: str) -> None:
    archives = [await open_archive(postgres_url) for _ in range(3)]
    await archives[0].events.receive(BOX, "run", [], now=1.0)
    seen: list[int] = []

    async def watch() -> None:
        while len(seen) < 60:
            seen.extend(order.number for order in await archives[2].orders.after("run", max(seen, default=0), now=1.0))

    async def give(archive: Archive) -> None:
        for _ in range(10):
            await archive.orders.give("run", "stop", {}, by="me", now=1.0)

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(watch(), *(give(archive) for archive in archives[:2] for _ in range(3)))
    assert seen == sorted(order.number for order in await archives[0].orders.after("run", 0, now=1.0))
    for archive in archives:
        await archive.close()


async def test_each_queued_message_is_given_to_one_caller_in_order(archive: Archive) -> None:
    put = [await archive.orders.put("box", f"words {n}\0", "user_message", now=float(n)) for n in range(30)]
    await archive.orders.put("other", "not for you", "interrupt", now=1.0)
    taken = await asyncio.gather(*(archive.orders.take("box") for _ in range(6)))
    assert sorted((message for part in taken for message in part), key=lambda message: message.at) == put
    assert all(part == sorted(part, key=lambda message: message.at) for part in taken)
    assert await archive.orders.take("box") == []
    assert [message.message_type for message in await archive.orders.take("other")] == ["interrupt"]


async def test_messages_nobody_fetches_are_swept_out(archive: Archive) -> None:
    await archive.orders.put("box", "old", "user_message", now=1.0)
    await archive.orders.put("box", "new", "user_message", now=9.0)
    assert await archive.sweep(now=0.0, messages_before=5.0) == 1
    assert [message.content for message in await archive.orders.take("box")] == ["new"]


async def test_a_database_that_was_put_back_numbers_on_from_what_a_run_has_answered(archive: Archive) -> None:
    give = archive.orders.give
    first = await give("run", "pause", {}, by="me", now=1.0)
    lost = first.number + 40
    ahead = await give("run", "stop", {}, by="me", now=2.0, after=lost)
    assert ahead.number == lost + 1
    assert await archive.orders.newest("other") == 0
    assert [order.number for order in await archive.orders.after("run", lost, now=3.0)] == [ahead.number]
    later = [await give("other", "pause", {}, by="me", now=4.0, after=first.number) for _ in range(3)]
    numbers = [order.number for order in later]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > ahead.number
    # What no database can have forgotten does not use up the numbers of everybody.
    assert (await give("run", "stop", {}, by="me", now=5.0, after=2**53)).number < ahead.number + 1000
