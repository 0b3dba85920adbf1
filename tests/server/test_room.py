"""Room for bodies: shares that others cannot take, and a turn for whoever waits."""

import asyncio

import pytest

from patience import PATIENCE
from untildone.server import room
from untildone.server.room import Room

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "WAIT_SECONDS", 0.05)


async def test_one_never_has_all_of_it() -> None:
    there = Room(10, 6)
    assert [await there.take("", 3), await there.take("", 3), await there.take("", 1)] == [True, True, False]
    assert await there.take("key", 4)
    assert not await there.take("other key", 1)
    there.give_back("", 3)
    assert await there.take("other key", 1)
    assert (there.held(""), there.held("key"), there.held("other key")) == (3, 4, 1)


async def test_whoever_waits_gets_what_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "WAIT_SECONDS", PATIENCE)
    there = Room(10, 6)
    assert await there.take("a", 6)
    waiting = [asyncio.create_task(there.take("a", amount)) for amount in (5, 1)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    there.give_back("a", 6)
    assert await asyncio.gather(*waiting) == [True, True]
    assert there.held("a") == 6


async def test_whoever_goes_away_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "WAIT_SECONDS", PATIENCE)
    there = Room(10, 10)
    assert await there.take("a", 8)
    large, small = asyncio.create_task(there.take("a", 5)), asyncio.create_task(there.take("a", 2))
    await asyncio.sleep(0)
    large.cancel()
    # It stood behind what does not fit, and that is gone now.
    assert await small
    granted = asyncio.create_task(there.take("a", 5))
    await asyncio.sleep(0)
    there.give_back("a", 10)
    granted.cancel()
    await asyncio.gather(large, granted, return_exceptions=True)
    assert there.held("a") == 0
    assert await there.take("b", 10)
