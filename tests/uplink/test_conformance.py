"""Whatever stands behind the port, over HTTP or in the same process: the same questions, the same answers."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from archives import new_archive
from untildone.core.beginning import beginning
from untildone.core.events import Record
from untildone.core.policy import Policy, RunSpec
from untildone.engine.clock import SystemClock
from untildone.errors import UplinkDown, UplinkRefused
from untildone.ports import Parcel, Uplink
from untildone.server.archive.opening import open_archive
from untildone.server.fanout import Fanout
from untildone.server.own_uplink import OwnUplink
from untildone.uplink.client import HttpUplink
from uplink.uplink_kit import PATIENCE, MemoryUplink, RealServer, control, trace

pytestmark = pytest.mark.anyio
numbers = itertools.count()


@dataclass
class Case:
    uplink: Uplink
    other: Uplink | None
    """The same server, asked by another sandbox."""
    give: Callable[[str, str], Awaitable[int]]
    """Order a message for a run; its number."""


@pytest.fixture(params=["memory", "own", "http"])
async def case(request: pytest.FixtureRequest, tmp_path: Path, server: RealServer) -> AsyncIterator[Case]:
    if request.param == "memory":
        memory = MemoryUplink()

        async def give_memory(run_id: str, content: str) -> int:
            return memory.give("message", run_id=run_id, content=content).number

        yield Case(memory, None, give_memory)
        return
    clock = SystemClock()
    if request.param == "own":
        archive = await open_archive(new_archive(tmp_path))
    else:
        archive = await open_archive(f"sqlite:///{server.database}", serving=False)
    fanout = Fanout(archive)

    async def give(run_id: str, content: str) -> int:
        data: dict[str, object] = {"content": content}
        return (await archive.orders.give(run_id, "message", data, by="ann", now=clock.now())).number

    if request.param == "own":
        mine, other = (
            OwnUplink(archive, fanout, clock, lambda _: None, sandbox_id=name, origin="worker") for name in ("a", "b")
        )
        yield Case(mine, other, give)
    else:
        uplinks = HttpUplink(server.url, "a"), HttpUplink(server.url, "b")
        yield Case(*uplinks, give)
        for one in uplinks:
            await one.close()
    await archive.close()


@pytest.fixture
def run_id() -> str:
    return f"run-{next(numbers)}"


def records(*seqs: int) -> list[Record]:
    return [Record(seq=n, at=1000.0 + n, event=control(n) if n % 2 else trace(f"text {n}")) for n in seqs]


async def test_of_a_run_nobody_heard_of_there_is_nothing(case: Case, run_id: str) -> None:
    receipt = await case.uplink.received(run_id)
    assert (receipt.last_seq, receipt.orders) == (0, 0)
    with suppress(UplinkDown):  # a server may say that its events have to come first
        assert await case.uplink.orders(run_id, after=0, wait=0) == []


async def test_what_is_sent_is_acknowledged_by_its_number(case: Case, run_id: str) -> None:
    receipt = await case.uplink.send(run_id, records(1, 2, 3))
    assert (receipt.last_seq, receipt.stored) == (3, 3)
    assert (await case.uplink.received(run_id)).last_seq == 3


async def test_what_is_sent_twice_is_kept_once(case: Case, run_id: str) -> None:
    await case.uplink.send(run_id, records(1, 2, 3))
    receipt = await case.uplink.send(run_id, records(2, 3, 4))
    assert (receipt.last_seq, receipt.stored) == (4, 1)


async def test_numbers_may_be_missing(case: Case, run_id: str) -> None:
    receipt = await case.uplink.send(run_id, records(5, 9, 12))
    assert (receipt.last_seq, receipt.stored) == (12, 3)


async def test_a_sign_of_life_changes_nothing(case: Case, run_id: str) -> None:
    await case.uplink.send(run_id, records(1))
    receipt = await case.uplink.send(run_id, [])
    assert (receipt.last_seq, receipt.stored) == (1, 0)


async def test_a_large_batch_arrives(case: Case, run_id: str) -> None:
    many = [Record(seq=n, at=1.0, event=trace("ä" * 2000)) for n in range(1, 501)]
    receipt = await case.uplink.send(run_id, many)
    assert (receipt.last_seq, receipt.stored) == (500, 500)


async def test_orders_are_given_out_by_number_until_they_are_known(case: Case, run_id: str) -> None:
    await case.uplink.send(run_id, records(1))
    one = await case.give(run_id, "first")
    two = await case.give(run_id, "second")
    assert [order.number for order in await case.uplink.orders(run_id, after=0, wait=5)] == [one, two]
    found = await case.uplink.orders(run_id, after=one, wait=5)
    assert [(order.kind, order.data["content"], order.by) for order in found] == [("message", "second", "ann")]
    assert await case.uplink.orders(run_id, after=two, wait=0) == []
    assert (await case.uplink.received(run_id)).orders == two
    assert (await case.uplink.send(run_id, [])).orders == two


async def test_a_question_for_orders_waits(case: Case, run_id: str) -> None:
    await case.uplink.send(run_id, records(1))
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(PATIENCE):
        assert await case.uplink.orders(run_id, after=0, wait=0.3) == []
    assert loop.time() - began > 0.2


async def test_parcels_are_taken(case: Case, run_id: str) -> None:
    await case.uplink.send(run_id, records(1))
    await case.uplink.put(run_id, Parcel(name="transcript/s-1", content=b"\x1f\x8b\x00", seq=1))
    await case.uplink.put(run_id, Parcel(name="transcript/s-1", content=b"\x1f\x8b\x01", seq=1))


async def test_the_run_of_another_sandbox_is_refused(case: Case, run_id: str) -> None:
    if case.other is None:
        assert isinstance(case.uplink, MemoryUplink)  # which knows of no sandboxes
        return
    await case.uplink.send(run_id, records(1))
    with pytest.raises(UplinkRefused):
        await case.other.send(run_id, records(2))
    with pytest.raises(UplinkRefused):
        await case.other.received(run_id)
    assert (await case.uplink.received(run_id)).last_seq == 1


async def test_what_the_user_wrote_is_shown_without_secrets_in_the_same_process_too(tmp_path: Path) -> None:
    archive = await open_archive(new_archive(tmp_path))
    uplink = OwnUplink(archive, Fanout(archive), SystemClock(), lambda _: None)
    key = "ghp_" + "aB3dE6gH9j" * 3 + "kL2nP5"
    spec = RunSpec(goal=f"use {key}", cwd="/", name="n", notify=("https://hook.test/in-the-path",))
    await uplink.send("mine", [Record(seq=1, at=1.0, event=beginning("mine", spec, Policy()))])
    kept = await archive.events.event("mine", 1)
    await archive.close()
    assert kept is not None
    assert key not in kept.data
    assert "in-the-path" not in kept.data
