"""What people ask of runs: into the log of a run of this machine, as an order to any other, or refused in one line."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.run_kit import completed, done_claim, opening, records, started
from server.archive_kit import HandClock, archive_in, receive, stored
from untildone.core import events as ev
from untildone.core.event import Event
from untildone.core.findings import Finding
from untildone.core.policy import SESSION, Policy
from untildone.core.wire import OrderKind
from untildone.errors import RunNotFound, UntildoneError, UsageError
from untildone.ports import EventLog, Lease
from untildone.server.archive.port import Archive, Sender, published_run
from untildone.server.fanout import Fanout
from untildone.server.projecting import Projector
from untildone.server.steering import OrderImpossible, Steering
from untildone.store.sqlite import SqliteLog

pytestmark = pytest.mark.anyio

LOCAL = Sender(sandbox_id="local", origin="local")


class World:
    """A server with nothing in front of it."""

    def __init__(self, archive: Archive, log: EventLog, clock: HandClock) -> None:
        self.archive = archive
        self.log = log
        self.clock = clock
        self.fanout = Fanout(archive)
        self.projector = Projector(archive, self.fanout, every=0.001)
        self.steering = Steering(archive, self.fanout, clock, log=log)

    async def remote(self, *events: Event, policy: Policy | None = None, run_id: str = "run1", **spec: Any) -> None:
        told = stored(records([*opening(policy, **spec), *events]))
        await receive(self.archive, run_id, told, now=self.clock.now())
        await self.projector.settled(run_id)

    async def local(self, *events: Event, folder: Path) -> Lease:
        lease = await self.log.acquire("run1", name="it", folder=str(folder))
        told = await self.log.append("run1", [*opening(), *events], lease=lease)
        await receive(self.archive, "run1", stored(told), now=self.clock.now(), sender=LOCAL)
        await self.projector.settled("run1")
        return lease

    async def give(self, kind: OrderKind, run_id: str = "run1", **data: Any) -> int | None:
        return (await self.steering.give(run_id, kind, data, by="alex")).number

    async def said(self, kind: OrderKind, **data: Any) -> str:
        return (await self.steering.give("run1", kind, data, by="alex")).said


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    clock = HandClock()
    log = SqliteLog(tmp_path / "store" / "untildone.db", clock)  # type: ignore[arg-type]  # nobody sleeps here
    async with archive_in(tmp_path) as archive:
        world = World(archive, log, clock)
        async with world.projector.running():
            yield world
    await log.close()


async def test_an_order_waits_with_a_number_and_wakes_the_worker(world: World) -> None:
    await world.remote(started(1))
    with world.fanout.follow("run1", only_orders=True) as follower:
        number = await world.give("message", content="look at the lexer", urgent=True)
        assert [note.ordered for note in follower.waiting()] == [True]
    (order,) = await world.archive.orders.after("run1", 0, now=world.clock.now())
    assert (order.number, order.kind, order.by) == (number, "message", "alex")
    assert (order.data["content"], order.data["urgent"]) == ("look at the lexer", True)
    later = await world.give("stop", after_iteration=True)
    assert number is not None
    assert later is not None
    assert later > number


async def test_a_server_that_was_put_back_is_still_obeyed(world: World) -> None:
    """The run has answered orders that this database has forgotten: a lower number it would take for answered, too."""
    await world.remote(started(1), ev.LimitsChanged(by="alex", changes={"max_runs": 9}, order=70))
    assert await world.give("stop") == 71


async def test_what_is_asked_of_a_run_of_this_machine_is_in_its_log(world: World, tmp_path: Path) -> None:
    await world.local(started(1), folder=tmp_path)
    assert await world.give("message", content="look at the lexer") is None
    assert await world.give("limits", max_cost_usd=9.5) is None
    assert await world.give("stop") is None
    asked = [record.event for record in await world.log.read("run1", after=3)]
    by = "alex"
    assert asked == [
        ev.MessageReceived(by=by, content="look at the lexer"),
        ev.LimitsChanged(by=by, changes={"max_cost_usd": 9.5}),
        ev.StopRequested(by=by),
    ]
    assert await world.archive.orders.newest("run1") == 0


async def test_a_run_of_this_machine_that_nobody_drives_cannot_be_stopped_and_takes_messages(
    world: World, tmp_path: Path
) -> None:
    lease = await world.local(started(1), folder=tmp_path)
    await world.log.release(lease, status="suspended")
    for kind in ("stop", "pause", "skip_wait"):
        with pytest.raises(OrderImpossible, match="it is not running"):
            await world.give(kind)  # type: ignore[arg-type]
    given = await world.steering.give("run1", "message", {"content": "later"}, by="alex")
    assert given.said == "the agent reads it in its next prompt, once somebody goes on with it"


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("message", {"content": "  "}, "the message is empty"),
        ("message", {"content": "x" * 20_001}, "longer than 20,000"),
        ("message", {"content": 7}, "the message is empty"),
        ("limits", {}, "no limit was named"),
        ("limits", {"max_runs": None}, "nothing would limit the run any more"),
        ("limits", {"max_runs": 0}, "above zero"),
        ("limits", {"max_runs": 1.5}, "whole number"),
        ("limits", {"max_cost_usd": float("inf")}, "above zero"),
        ("limits", {"max_cost_usd": float("nan")}, "above zero"),
        ("limits", {"max_cost_usd": True}, "above zero"),
        ("limits", {"goal": 7}, "goal is no limit"),
        ("waive", {"patterns": []}, "patterns"),
        ("waive", {"patterns": [7]}, "patterns"),
        ("waive", {"patterns": ["tests/a.py", "/etc/../x"]}, "/etc/../x means no file of the project"),
        ("waive", {"patterns": ["/tests/a.py"]}, "write it from its folder on"),
        ("waive", {"patterns": ["tests/../../x"]}, "means no file of the project"),
        ("dance", {}, "does not know how"),
    ],
)
async def test_what_makes_no_sense_is_refused(world: World, kind: Any, data: dict[str, Any], said: str) -> None:
    await world.remote(started(1), policy=Policy(max_runs=5))
    with pytest.raises(UsageError, match=said):
        await world.give(kind, **data)
    assert await world.archive.orders.newest("run1") == 0


async def test_a_run_nobody_knows_takes_nothing(world: World) -> None:
    with pytest.raises(RunNotFound, match="there is no run x"):
        await world.give("stop", run_id="x")


async def test_a_run_that_is_done_takes_nothing(world: World) -> None:
    await world.remote(started(1), completed(1), ev.ContinuousCompleted(stop_reason="completion_signal"))
    for kind in ("message", "stop", "resume", "reset"):
        with pytest.raises(OrderImpossible, match="it is done"):
            await world.give(kind, content="x")  # type: ignore[arg-type]


async def test_between_two_goals_a_stop_is_heard(world: World) -> None:
    ended = ev.ContinuousCompleted(stop_reason="completion_signal")
    await world.remote(started(1), completed(1, claim=done_claim()), ended, then=("docs.md",), then_goals=("docs",))
    assert await world.give("stop") is not None
    with pytest.raises(OrderImpossible):
        await world.give("pause")


async def test_a_silent_run_cannot_be_stopped_now(world: World) -> None:
    await world.remote(started(1))
    world.clock.at += 600
    with pytest.raises(OrderImpossible, match="nothing was heard of it for 10m"):
        await world.give("stop")
    with pytest.raises(OrderImpossible, match="not running"):
        await world.give("message", content="x", message_type="interrupt")
    assert await world.give("message", content="x") is not None
    assert await world.give("limits", max_runs=50) is not None


async def test_a_run_that_stopped_is_resumed_where_it_lives(world: World) -> None:
    await world.remote(started(1), ev.ContinuousSuspended(stop_reason="stop_requested"))
    with pytest.raises(OrderImpossible, match=r"untildone resume run1` on h"):
        await world.give("resume")


async def test_a_loop_inside_a_session_is_steered_there(world: World) -> None:
    begin = opening()[0]
    assert isinstance(begin, ev.ContinuousStarted)
    options = replace(begin.spec.options, agent=SESSION)
    await world.remote(started(1), options=options)
    with pytest.raises(OrderImpossible, match="inside a Claude Code session"):
        await world.give("message", content="x")


async def test_a_published_worker_gets_messages_and_nothing_else(world: World) -> None:
    await world.archive.events.publish("box", stored(records([started(1)])), now=world.clock.now())
    run_id = published_run("box")
    assert await world.give("message", run_id, content="hello", message_type="guardian_nudge") is None
    assert await world.give("message", run_id, content="halt", message_type="interrupt") is None
    queued = await world.archive.orders.take("box")
    assert [(one.content, one.message_type) for one in queued] == [("hello", "guardian_nudge"), ("halt", "interrupt")]
    with pytest.raises(OrderImpossible, match="only fetches messages"):
        await world.give("stop", run_id)
    with pytest.raises(UsageError, match="empty"):
        await world.give("message", run_id, content="")


async def test_text_that_no_database_holds_is_mended(world: World) -> None:
    await world.remote(started(1))
    await world.give("message", content="a\0b\ud800c")
    (order,) = await world.archive.orders.after("run1", 0, now=world.clock.now())
    assert order.data["content"] == "a\ufffdb?c"


async def test_a_name_cannot_fake_another(world: World) -> None:
    await world.remote(started(1))
    await world.steering.give("run1", "stop", {}, by="x\n\x1b[31m" + "y" * 500)
    (order,) = await world.archive.orders.after("run1", 0, now=world.clock.now())
    assert order.by.isprintable()
    assert len(order.by) < 100


async def test_runs_of_this_machine_are_not_steered_without_their_log(world: World, tmp_path: Path) -> None:
    await world.local(started(1), folder=tmp_path)
    steering = Steering(world.archive, world.fanout, world.clock)  # type: ignore[arg-type]  # nobody sleeps here
    with pytest.raises(UntildoneError, match="steer it there"):
        await steering.give("run1", "stop", {}, by="alex")


async def test_limits_that_are_used_up_already_say_what_comes_of_them(world: World) -> None:
    policy = Policy(max_runs=20, max_cost_usd=5.0)
    work = [event for number in (1, 2) for event in (started(number), completed(number, cost_usd=1.0))]
    await world.remote(*work, started(3), policy=policy)
    assert await world.said("limits", max_runs=30) == "the new limits hold"
    used = "that is less than what is used"
    assert await world.said("limits", max_runs=1) == f"runs: {used}: it stops after its running iteration"
    assert await world.said("limits", max_cost_usd=1.5) == f"budget: {used}: it stops now"
    assert await world.said("limits", max_cost_usd=2.05) == "budget: that is as good as used up: it stops now"
    assert await world.said("limits", deadline=world.clock.now() - 60) == "this deadline is past: it stops now"
    assert await world.said("limits", deadline=world.clock.now() + 6000) == "the new limits hold"
    world.clock.at += 600
    left = await world.said("limits", max_runs=2)
    assert left == f"runs: {used}: whoever goes on with it is stopped at once"
    assert await world.said("limits", max_runs=3) == "the new limits hold, once somebody goes on with it"


async def test_what_a_person_should_think_twice_about_is_told_before(world: World) -> None:
    work = [event for number in (1, 2) for event in (started(number), completed(number, cost_usd=1.0))]
    await world.remote(*work, started(3), policy=Policy(max_runs=20, max_cost_usd=5.0))

    async def told(kind: OrderKind, **data: Any) -> str:
        return await world.steering.warning("run1", kind, data)

    assert await told("limits", max_runs=30) == ""
    assert await told("limits", max_cost_usd=1.5) == "budget: that is less than what is used: it stops now"
    assert await told("limits", deadline=world.clock.now() - 60) == "this deadline is past: it stops now"
    for everything in ("**", "*", "**/*"):
        assert (
            await told("waive", patterns=["a.py", everything])
            == f"{everything} means every file: tests, CI and thresholds, too"
        )
    assert await told("waive", patterns=["tests/**", "*.py"]) == ""
    assert await told("stop") == ""
    # Nothing was asked of the run by looking.
    assert await world.archive.orders.newest("run1") == 0


async def test_a_waiver_says_whether_it_is_of_use(world: World) -> None:
    finding = Finding(path="tests/test_a.py", kind="test_removed", text="gone", blocking=True)
    seen = ev.IterationValidation(iteration_num=1, passed=False, findings=(finding,))
    await world.remote(started(1), completed(1, claim=done_claim()), seen, started(2))
    assert await world.said("waive", patterns=["docs/*"]) == (
        "these files may change, 1 other finding still in the way; nothing that was found last is meant by that"
    )
    assert await world.said("waive", patterns=["tests/*"]) == "these files may change"


async def test_the_limits_of_a_run_are_those_that_were_asked_for_last(world: World, tmp_path: Path) -> None:
    await world.remote(started(1), policy=Policy(max_runs=20, max_cost_usd=5.0), run_id="far")
    await world.give("limits", "far", max_runs=25)
    await world.give("limits", "far", max_cost_usd=None)
    held = await world.steering.limits("far")
    assert (held.max_runs, held.max_cost_usd) == (25, None)
    await world.local(started(1), folder=tmp_path)
    await world.give("limits", max_runs=7)
    assert (await world.steering.limits("run1")).max_runs == 7
    with pytest.raises(RunNotFound):
        await world.steering.limits("nowhere")
