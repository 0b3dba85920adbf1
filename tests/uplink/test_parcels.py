"""What travels beside the events: when, what of it, and what happens when nobody takes it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from untildone.core.events import ContinuousSuspended, ContinuousWarning, Event, IterationCompleted, IterationStarted
from untildone.core.state import LoopState, OpenIteration
from untildone.engine.clock import SystemClock
from untildone.errors import UplinkRefused, WorkspaceError
from untildone.ports import EventLog, Parcel
from untildone.store.memory import MemoryLog
from untildone.uplink import parcels
from untildone.uplink.parcels import Made, Packer, Source
from uplink.uplink_kit import PATIENCE, RUN, MemoryUplink, begun, down, taken, until

pytestmark = pytest.mark.anyio


@dataclass
class Things:
    """What there is to pack, by name; how often each was asked for."""

    content: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    state: LoopState = field(default_factory=lambda: LoopState(run_id=RUN, last_seq=1))
    trouble: str = ""

    def sources(self, _: LoopState) -> Mapping[str, Source]:
        return {name: self._source(name) for name in self.content}

    def _source(self, name: str) -> Source:
        async def make(known: str) -> Made | None:
            self.asked.append(name)
            if self.trouble:
                raise WorkspaceError(self.trouble)
            content = self.content[name]
            return None if known == str(hash(content)) else (str(hash(content)), content)

        return make

    async def tell(self, event: Event) -> None:
        assert isinstance(event, ContinuousWarning)
        self.told.append(event.message)


@pytest.fixture
def things() -> Things:
    return Things({"tree": b"t1", "notes": b"n1"})


@pytest.fixture
async def log(tmp_path: Path) -> EventLog:
    log = MemoryLog(SystemClock())
    await begun(log, folder=str(tmp_path))
    return log


def packer(log: EventLog, things: Things, every: float = PATIENCE) -> Packer:
    return Packer(log, RUN, state=lambda: things.state, sources=things.sources, tell=things.tell, every=every)


def sent(uplink: MemoryUplink) -> dict[str, bytes]:
    return {name: parcel.content for (_, name), parcel in uplink.parcels.items()}


@asynccontextmanager
async def packing(log: EventLog, things: Things, uplink: MemoryUplink, every: float = PATIENCE) -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE), packer(log, things, every).beside(uplink):
        yield


async def test_what_is_there_goes_at_once_and_what_changed_after_each_iteration(log: EventLog, things: Things) -> None:
    uplink = MemoryUplink()
    async with packing(log, things, uplink):
        await until(lambda: sent(uplink) == {"tree": b"t1", "notes": b"n1"})
        things.content["tree"] = b"t2"
        things.state = replace(things.state, last_seq=7)
        await log.append(RUN, [IterationStarted(iteration_num=1)])
        await log.append(RUN, [IterationCompleted(iteration_num=1, cost_usd=1.0)])
        await until(lambda: sent(uplink)["tree"] == b"t2")
    assert {name: parcel.seq for (_, name), parcel in uplink.parcels.items()} == {"tree": 7, "notes": 1}


async def test_many_reasons_are_one(log: EventLog, things: Things, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "COMPANY", 1.0)  # longer than it takes to write all of them
    uplink = MemoryUplink()
    async with packing(log, things, uplink):
        await until(lambda: len(sent(uplink)) == 2)
        before = things.asked.count("tree")
        for _ in range(50):
            await log.append(RUN, [IterationCompleted(iteration_num=1, cost_usd=1.0)])
        await until(lambda: things.asked.count("tree") > before)
    assert things.asked.count("tree") <= before + 3


async def test_the_end_packs_once_more(log: EventLog, things: Things) -> None:
    uplink = MemoryUplink()
    async with packing(log, things, uplink):
        await until(lambda: len(sent(uplink)) == 2)
        things.content["tree"] = b"last"
        await log.append(RUN, [ContinuousSuspended(stop_reason="user_stop")])
    assert sent(uplink)["tree"] == b"last"


async def test_a_long_iteration_is_packed_now_and_then_and_a_rest_is_not(
    log: EventLog, things: Things, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parcels, "COMPANY", 0.01)
    uplink = MemoryUplink()
    async with packing(log, things, uplink, every=0.02):
        await until(lambda: len(sent(uplink)) == 2)
        resting = len(things.asked)
        await asyncio.sleep(0.2)
        assert len(things.asked) <= resting + 2
        things.state = replace(things.state, open=OpenIteration(number=1, retry=0, started_at=0.0, started_seq=1))
        things.content["tree"] = b"half done"
        await until(lambda: sent(uplink)["tree"] == b"half done")


async def test_a_server_that_is_away_gets_it_later(
    log: EventLog, things: Things, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parcels, "FIRST_REST", 0.01)
    uplink = MemoryUplink(fail=down)
    async with packing(log, things, uplink):
        await until(lambda: len(things.asked) > 1)
        things.content["tree"] = b"newest"
        uplink.fail = lambda: None
        await until(lambda: sent(uplink) == {"tree": b"newest", "notes": b"n1"})
    assert things.told == []


async def test_what_cannot_be_packed_is_told_once_and_hurts_nothing_else(log: EventLog, things: Things) -> None:
    uplink = MemoryUplink()
    things.trouble = "the tree is too large to travel"
    work = packer(log, things)
    await work.pack(uplink)
    await work.pack(uplink)
    assert things.told == ["another machine could not continue this run: the tree is too large to travel"]
    things.trouble = ""
    await work.pack(uplink)
    assert len(sent(uplink)) == 2


async def test_what_the_server_will_not_have_is_not_sent_again(log: EventLog, things: Things) -> None:
    def refuse() -> None:
        raise UplinkRefused("too large")

    uplink = MemoryUplink(fail=refuse)
    work = packer(log, things)
    await work.pack(uplink)
    uplink.fail = lambda: None
    await work.pack(uplink)
    assert sent(uplink) == {}
    assert len(things.told) == 1
    things.content["tree"] = b"smaller"
    await work.pack(uplink)
    assert sent(uplink) == {"tree": b"smaller"}


async def test_a_run_that_another_machine_has_is_packed_no_more(log: EventLog, things: Things) -> None:
    uplink = MemoryUplink(fail=taken)
    work = packer(log, things)
    await work.pack(uplink)
    await work.pack(uplink)
    assert things.asked == ["tree"]
    assert things.told == []


async def test_a_refused_parcel_of_a_run_that_another_machine_has_is_no_trouble_of_that_one(
    log: EventLog, things: Things
) -> None:
    class Moved(MemoryUplink):
        async def put(self, run_id: str, parcel: Parcel) -> None:
            raise UplinkRefused(f"{run_id} is another sandbox's: {parcel.name}")

    uplink = Moved(fail=taken)
    await packer(log, things).pack(uplink)
    assert (things.asked, things.told) == (["tree"], [])


async def test_a_server_that_lost_something_gets_what_did_not_change_again(log: EventLog, things: Things) -> None:
    uplink, packs = MemoryUplink(), packer(log, things)
    await packs.pack(uplink)
    uplink.parcels.clear()
    await packs.pack(uplink)
    assert sent(uplink) == {}
    uplink.losses += 1
    await packs.pack(uplink)
    assert sent(uplink) == {"tree": b"t1", "notes": b"n1"}
