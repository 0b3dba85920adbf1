"""What is asked at the server becomes an event with its number, once, or a refusal that says why."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from store.store_kit import Ticks
from untildone.core import events as ev
from untildone.core.events import Event
from untildone.core.fold import fold
from untildone.core.policy import Policy
from untildone.core.state import LoopState
from untildone.core.wire import Order, OrderKind, Receipt
from untildone.errors import LeaseLost, StoreError
from untildone.store.memory import MemoryLog
from untildone.uplink import inbox as subject
from untildone.uplink.inbox import Inbox, event_for
from uplink.uplink_kit import PATIENCE, RUN, MemoryUplink, begun, down, refused, taken, until

LIMITED = LoopState(run_id=RUN, phase="running", policy=Policy(max_runs=5))


def order(kind: Any, age: float = 0.0, **data: Any) -> Order:
    return Order(number=7, kind=kind, by="ann", at=1.0, age=age, data=data)


@pytest.mark.parametrize(
    ("asked", "event"),
    [
        (order("stop"), ev.StopRequested(by="ann", order=7)),
        (order("stop", after_iteration=True), ev.StopRequested(by="ann", order=7, after_iteration=True)),
        (order("pause"), ev.PauseRequested(by="ann", order=7)),
        (order("resume"), ev.ResumeRequested(by="ann", order=7)),
        (order("skip_wait"), ev.SkipWaitRequested(by="ann", order=7)),
        (order("message", content="look at a.txt"), ev.MessageReceived(by="ann", order=7, content="look at a.txt")),
        (
            order("message", content="now!", urgent=True, message_type="guardian_nudge"),
            ev.MessageReceived(by="ann", order=7, content="now!", urgent=True, message_type="guardian_nudge"),
        ),
        (order("message", content="enough", message_type="interrupt"), ev.StopRequested(by="ann", order=7)),
        (order("limits", max_runs=9), ev.LimitsChanged(by="ann", order=7, changes={"max_runs": 9})),
        (
            order("limits", max_cost_usd=2, max_runs=None),
            ev.LimitsChanged(by="ann", order=7, changes={"max_cost_usd": 2.0, "max_runs": None}),
        ),
        (order("waive", patterns=["tests/*.py"]), ev.WaiverGiven(by="ann", order=7, patterns=("tests/*.py",))),
        (order("reset", circuit=True), ev.ResetRequested(by="ann", order=7, circuit=True)),
        (order("reset", session=True), ev.ResetRequested(by="ann", order=7, circuit=False, session=True)),
    ],
)
def test_an_order_becomes_its_event(asked: Order, event: Event) -> None:
    assert event_for(asked, LIMITED, 60.0) == event


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (order("stop", age=61.0), "earlier driver"),
        (order("pause", age=61.0), "earlier driver"),
        (order("skip_wait", age=61.0), "skip-wait was asked of an earlier driver"),
        (order("message", age=61.0, content="x", message_type="interrupt"), "earlier driver"),
        (order("dance"), "does not know"),
        (order(None), "does not know"),
        (order("message"), "empty"),
        (order("message", content="  "), "empty"),
        (order("message", content=["x"]), "empty"),
        (order("message", content="x" * 20_001), "longer than 20,000"),
        (order("limits"), "no limit was named"),
        (order("limits", max_runs=None), "nothing would limit the run"),
        (order("limits", goal="x"), "goal is no limit"),
        (order("limits", max_runs=0), "above zero"),
        (order("limits", max_runs=True), "above zero"),
        (order("limits", max_runs="9"), "above zero"),
        (order("limits", max_runs=1.5), "whole number"),
        (order("limits", max_runs=10**400), "above zero"),
        (order("limits", max_cost_usd=1e308), "above zero"),
        (order("limits", max_cost_usd=float("inf")), "above zero"),
        (order("limits", max_cost_usd=float("nan")), "above zero"),
        (order("waive"), "patterns"),
        (order("waive", patterns=[""]), "patterns"),
        (order("waive", patterns=["x" * 501]), "patterns"),
        (order("waive", patterns=["x"] * 101), "patterns"),
        (order("reset"), "must name"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_number(asked: Order, why: str) -> None:
    event = event_for(asked, LIMITED, 60.0)
    assert isinstance(event, ev.OrderRefused)
    assert event.order == 7
    assert why in event.reason


def test_what_keeps_its_sense_is_done_however_old() -> None:
    assert isinstance(event_for(order("message", age=1e6, content="x"), LIMITED, 1.0), ev.MessageReceived)
    assert isinstance(event_for(order("resume", age=1e6), LIMITED, 1.0), ev.ResumeRequested)


def test_a_run_without_limits_may_stay_so() -> None:
    free = replace(LIMITED, policy=Policy(unbounded=True))
    assert isinstance(event_for(order("limits", max_runs=None), free, 1.0), ev.LimitsChanged)


def test_nothing_reaches_a_run_that_is_done() -> None:
    done = replace(LIMITED, phase="completed")
    assert isinstance(event_for(order("message", content="x"), done, 1.0), ev.OrderRefused)


def test_whoever_asks_is_one_safe_line() -> None:
    asked = msgspec.structs.replace(order("stop"), by="\x1b[31mann\nbob" + "x" * 500)
    event = event_for(asked, LIMITED, 60.0)
    assert isinstance(event, ev.StopRequested)
    assert event.by.startswith("ann bob")
    assert len(event.by) <= 100


class Driving:
    """A driver that writes down and folds, as the journal does, and can be made to fail."""

    def __init__(self) -> None:
        self.log = MemoryLog(Ticks())
        self.state = LoopState()
        self.fail: Exception | None = None

    async def begin(self) -> None:
        await begun(self.log)
        self.state = replace(fold(await self.log.read(RUN)), run_id=RUN, phase="running")

    async def record(self, event: Event) -> None:
        if self.fail is not None:
            raise self.fail
        self.state = fold(await self.log.append(RUN, [event]), self.state)

    def inbox(self, uplink: MemoryUplink, pause: float = 0.01) -> Inbox:
        return Inbox(
            uplink, RUN, state=lambda: self.state, record=self.record, pause=pause, wait=0.05,
            driven_for=lambda: 60.0, jitter=lambda: 0.0,
        )  # fmt: skip

    async def orders(self) -> list[int | None]:
        return [one.event.order for one in await self.log.read(RUN) if isinstance(one.event, ev.Command)][1:]


@pytest.fixture
async def driving() -> Driving:
    made = Driving()
    await made.begin()
    return made


@pytest.mark.anyio
async def test_each_order_is_written_down_once_and_in_order(driving: Driving) -> None:
    uplink = MemoryUplink()
    kinds: list[OrderKind] = ["pause", "resume", "skip_wait", "message", "stop"]
    for kind in kinds:
        uplink.give(kind, content="hello")
    task = asyncio.create_task(driving.inbox(uplink).run())
    await until(lambda: driving.state.ordered == 14)
    uplink.give("message", content="one more")
    await until(lambda: driving.state.ordered == 15)
    task.cancel()
    assert await driving.orders() == [10, 11, 12, 13, 14, 15]
    assert [one.content for one in driving.state.messages] == ["hello", "one more"]


@pytest.mark.anyio
async def test_whatever_dies_in_between_no_order_is_done_twice_or_lost(driving: Driving) -> None:
    """Ended at every step of the way, again and again; the log alone says what was done."""
    uplink = MemoryUplink()
    for n in range(30):
        uplink.give("message", content=str(n))
        task = asyncio.create_task(driving.inbox(uplink).run())
        for _ in range(n):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    task = asyncio.create_task(driving.inbox(uplink).run())
    await until(lambda: driving.state.ordered == 39)
    task.cancel()
    assert await driving.orders() == list(range(10, 40))


@pytest.mark.anyio
async def test_a_server_that_is_away_is_asked_again_and_a_receipt_wakes_it(driving: Driving) -> None:
    uplink = MemoryUplink(fail=down)
    inbox = driving.inbox(uplink)
    task = asyncio.create_task(inbox.run())
    await asyncio.sleep(0.05)
    uplink.give("pause")
    uplink.fail = lambda: None
    inbox.heard(Receipt(last_seq=1, orders=10))
    await until(lambda: driving.state.paused)
    task.cancel()


@pytest.mark.anyio
async def test_a_store_in_trouble_is_tried_again_and_a_lost_lease_is_the_end(driving: Driving) -> None:
    uplink = MemoryUplink()
    uplink.give("pause")
    driving.fail = StoreError("the disk is full")
    task = asyncio.create_task(driving.inbox(uplink).run())
    await asyncio.sleep(0.05)
    driving.fail = None
    await until(lambda: driving.state.paused)
    uplink.give("resume")
    driving.fail = LeaseLost("another driver")
    async with asyncio.timeout(PATIENCE):
        await task


@pytest.mark.anyio
async def test_only_a_run_that_was_taken_over_is_the_end(driving: Driving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "REFUSED_REST", 0.02)
    uplink = MemoryUplink(fail=refused)
    uplink.give("pause")
    task = asyncio.create_task(driving.inbox(uplink).run())
    await asyncio.sleep(0.05)
    uplink.fail = lambda: None
    await until(lambda: driving.state.paused)
    uplink.fail = taken
    async with asyncio.timeout(PATIENCE):
        await task


@pytest.mark.parametrize("kind", ["stop", "pause", "skip_wait"])
def test_what_the_server_had_seen_says_for_whom_an_order_was_however_long_a_laptop_slept(kind: str) -> None:
    driven = replace(LIMITED, driven_from=40)
    slept = msgspec.structs.replace(order(kind, age=3600.0), seen=40)
    assert not isinstance(event_for(slept, driven, 60.0), ev.OrderRefused)
    earlier = msgspec.structs.replace(order(kind, age=0.0), seen=39)
    refusal = event_for(earlier, driven, 60.0)
    assert isinstance(refusal, ev.OrderRefused)
    assert "earlier driver" in refusal.reason


def test_the_newest_driver_is_the_one_that_counts() -> None:
    resumed = ev.ContinuousResumed(pid=1, host="h", version="1", lease=1)
    records = [ev.Record(seq=seq, at=1.0, event=resumed) for seq in (2, 9)]
    assert fold(records).driven_from == 9
