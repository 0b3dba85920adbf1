"""A whole run with a server beside it: reported, steered, and neither hurt nor held up by whatever becomes of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engine.rig import Rig
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent
from untildone.core import events as ev
from untildone.core.beginning import beginning
from untildone.core.codec import event_type
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy
from untildone.core.state import LoopState
from untildone.core.trace import AgentHeartbeat
from untildone.engine.journal import Journal
from untildone.ports import Parcel, Uplink
from untildone.uplink import opening, outbox, serving
from untildone.uplink.owed import MOST_REFUSALS, Account, Accounts
from untildone.uplink.settings import UplinkSettings
from uplink.uplink_kit import PATIENCE, Acting, ActingAgent, MemoryUplink, down, refused, taken, until

pytestmark = pytest.mark.anyio
SETTINGS = UplinkSettings(server="http://server.test", sandbox_id="box", heartbeat=30.0, poll=0.01, patience=PATIENCE)
ONE = Policy(max_runs=1)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def uplink(monkeypatch: pytest.MonkeyPatch) -> MemoryUplink:
    """A server in memory, behind every line that is opened."""
    made = MemoryUplink()
    monkeypatch.setattr(opening, "SandboxUplink", lambda *_, **__: made)
    monkeypatch.setattr(outbox, "FIRST_REST", 0.02)
    monkeypatch.setattr(outbox, "LONGEST_REST", 0.1)
    return made


async def drive(
    rig: Rig, *steps: Outcome | Acting, settings: UplinkSettings = SETTINGS, policy: Policy = ONE, resume: bool = False
) -> LoopState:
    around = replace(rig.around(ActingAgent(*steps or (Outcome(final_text="did it"),))), uplink=settings)
    if resume:
        return await wiring.resume_run(rig.run_id, around)
    return await wiring.start_run(rig.spec(), policy, around, run_id=rig.run_id)


async def written(rig: Rig) -> list[tuple[int, str]]:
    return [(one.seq, event_type(one.event)) for one in await rig.log.read(rig.run_id, trace=True)]


def arrived(rig: Rig, uplink: MemoryUplink) -> list[tuple[int, str]]:
    return [(seq, event_type(one.event)) for seq, one in uplink.kept.get(rig.run_id, {}).items()]


async def test_all_that_is_in_the_log_is_at_the_server_when_the_run_has_ended(rig: Rig, uplink: MemoryUplink) -> None:
    state = await drive(rig)
    assert state.stop_reason == "max_runs_reached"
    assert arrived(rig, uplink) == await written(rig)
    account = Accounts(rig.tmp / "state").read(rig.run_id)
    assert account == Account(
        run_id=rig.run_id,
        server=SETTINGS.server,
        sandbox_id="box",
        acknowledged=state.last_seq,
        settled=True,
        key=account.key if account else "",
    )


async def test_without_a_server_nothing_is_opened(rig: Rig, uplink: MemoryUplink) -> None:
    await wiring.start_run(rig.spec(), ONE, rig.around(ScriptedAgent([Outcome(final_text="x")])), run_id=rig.run_id)
    assert uplink.asked == 0
    assert not (rig.tmp / "state" / "uplink").exists()


async def test_of_a_start_that_is_refused_the_server_hears_nothing(rig: Rig, uplink: MemoryUplink) -> None:
    (rig.repo / "a.txt").write_text("the user's own\n")
    with pytest.raises(Exception, match="uncommitted"):
        await drive(rig)
    assert uplink.asked == 0
    assert uplink.batches == []


async def test_with_a_server_that_is_away_the_run_is_the_same_and_the_next_one_delivers(
    rig: Rig, uplink: MemoryUplink
) -> None:
    uplink.fail = down
    told_of = wait_for(lambda: any("cannot be reported" in line for line in warnings(rig)))
    state = await drive(rig, told_of, settings=replace(SETTINGS, patience=0.2))
    assert state.stop_reason == "max_runs_reached"
    told = warnings(rig)
    assert sum("cannot be reported" in line for line in told) == 1
    assert "still to be delivered (the server is away): the next run that reports to" in told[-1]
    assert arrived(rig, uplink) == []
    owing, rig.run_id = rig.run_id, "another"
    uplink.fail = lambda: None
    state = await drive(rig, wait_for(lambda: settled(rig)[owing]))
    assert state.stop_reason == "max_runs_reached"
    assert arrived(rig, uplink) == await written(rig)
    rig.run_id = owing
    assert arrived(rig, uplink) == await written(rig)
    assert settled(rig) == {owing: True, "another": True}


async def test_whoever_watches_is_told_at_once_what_is_waited_for(
    rig: Rig, uplink: MemoryUplink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "UNNOTICED", PATIENCE)
    shown: list[str] = []
    around = replace(rig.around(ActingAgent(Outcome(final_text="x"))), notice=shown.append)
    await wiring.start_run(rig.spec(), ONE, replace(around, uplink=SETTINGS), run_id=rig.run_id)
    assert shown == []
    monkeypatch.setattr(serving, "UNNOTICED", 0.02)
    uplink.fail, rig.run_id = down, "another"
    settings = replace(SETTINGS, patience=1.0)
    around = replace(around, agent=ActingAgent(Outcome(final_text="x")), uplink=settings)
    await wiring.start_run(rig.spec(), ONE, around, run_id=rig.run_id)
    assert shown == ["telling http://server.test the rest, for at most 1s; Ctrl+C leaves it for later"]
    assert not any("telling" in str(one.event) for one in await rig.log.read(rig.run_id, trace=True))


@pytest.mark.usefixtures("uplink")
async def test_a_token_that_others_can_read_on_the_way_is_warned_of(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "UNNOTICED", PATIENCE)  # how long the last words take is no business of this test
    shown: dict[str, list[str]] = {}
    for number, server in enumerate(
        ("http://server.test", "https://server.test", "http://127.0.0.1:8642", "http://localhost", "http://[::1]:1")
    ):
        rig.run_id, shown[server] = f"run{number}", []
        agent, settings = ActingAgent(Outcome(final_text="x")), replace(SETTINGS, server=server, token="ud_x")
        around = replace(rig.around(agent), uplink=settings, notice=shown[server].append)
        await wiring.start_run(rig.spec(), ONE, around, run_id=rig.run_id)
    assert [server for server, said in shown.items() if said] == ["http://server.test"]
    assert ["readable" in line and "ud_x" not in line for line in shown["http://server.test"]] == [True]


async def test_what_a_dead_driver_left_is_delivered_by_the_next(rig: Rig, uplink: MemoryUplink) -> None:
    """As if killed: nothing says that all was delivered, and the server has less than the log."""
    await drive(rig)
    accounts, dead = Accounts(rig.tmp / "state"), rig.run_id
    accounts.write(Account(run_id=dead, server=SETTINGS.server, sandbox_id="box", acknowledged=2))
    accounts.write(Account(run_id="gone", server=SETTINGS.server, sandbox_id="box"))
    accounts.write(Account(run_id="elsewhere", server="http://other.test", sandbox_id="box"))
    whole = dict(uplink.kept[dead])
    for seq in [seq for seq in whole if seq > 3]:
        del uplink.kept[dead][seq]
    rig.run_id = "another"
    await drive(rig, wait_for(lambda: settled(rig)[dead]))
    assert uplink.kept[dead] == whole
    assert settled(rig) == {dead: True, "another": True, "elsewhere": False}


async def test_what_a_server_refuses_again_and_again_is_given_up(rig: Rig, uplink: MemoryUplink) -> None:
    await drive(rig)
    accounts, first = Accounts(rig.tmp / "state"), rig.run_id
    accounts.write(Account(run_id=first, server=SETTINGS.server, sandbox_id="box"))
    del uplink.kept[first]
    line = opening.open_line(
        SETTINGS, opening.Here(env={}, state_dir=rig.tmp / "state", now=rig.clock.now), folder=str(rig.repo)
    )
    uplink.fail = refused
    for tries in range(MOST_REFUSALS):
        (owing,) = accounts.unsettled(SETTINGS.server)
        assert owing.refusals == tries
        await serving.deliver_owed(rig.log, owing, line)
    assert accounts.unsettled(SETTINGS.server) == []


def warnings(rig: Rig) -> list[str]:
    return [one.event.message for one in rig.records if isinstance(one.event, ev.ContinuousWarning)]


def settled(rig: Rig) -> dict[str, bool]:
    files = (rig.tmp / "state" / "uplink").glob("*.json")
    return {one["run_id"]: one["settled"] for one in (json.loads(file.read_bytes()) for file in files)}


def wait_for(condition: Callable[[], bool]) -> Acting:
    async def act(_: Order) -> Outcome:
        await until(condition)
        return Outcome(final_text="did it")

    return act


async def test_a_refused_token_is_told_and_the_run_goes_on(rig: Rig, uplink: MemoryUplink) -> None:
    uplink.fail = refused
    state = await drive(rig, wait_for(lambda: bool(warnings(rig))))
    assert state.stop_reason == "max_runs_reached"
    assert [line for line in warnings(rig) if "report" in line] == [
        "nothing of this run is reported until that is mended: the token is not valid"
    ]
    account = Accounts(rig.tmp / "state").read(rig.run_id)
    assert account is not None
    assert (account.refusals, account.given_up) == (1, False)


async def test_whatever_breaks_in_the_line_the_run_ends_well_and_the_rest_goes_on(
    rig: Rig, uplink: MemoryUplink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "FIRST_RESTART", 0.02)
    monkeypatch.setattr(serving, "LONGEST_RESTART", 0.05)

    def broken() -> None:
        raise OverflowError("of a kind that nobody foresaw")

    async def act(_: Order) -> Outcome:
        await until(lambda: uplink.asked > 2)
        uplink.fail = lambda: None
        uplink.give("message", run_id=rig.run_id, content="still there?")
        await until(lambda: any(isinstance(one.event, ev.MessageReceived) for one in rig.records))
        return Outcome(final_text="yes")

    uplink.fail = broken
    state = await drive(rig, act)
    assert state.stop_reason == "max_runs_reached"
    assert arrived(rig, uplink) == await written(rig)
    assert [line for line in warnings(rig) if "broke" in line] == [
        "reporting to the server broke and is tried again: OverflowError"
    ]


async def test_last_words_that_break_are_no_end_of_the_run(
    rig: Rig, uplink: MemoryUplink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: outbox.Outbox) -> None:
        raise OverflowError("of a kind that nobody foresaw")

    monkeypatch.setattr(outbox.Outbox, "left", broken)
    assert (await drive(rig)).stop_reason == "max_runs_reached"
    assert uplink.kept[rig.run_id]


async def test_a_run_that_another_machine_took_stops(rig: Rig, uplink: MemoryUplink) -> None:
    async def act(_: Order) -> Outcome:
        await until(lambda: len(uplink.kept[rig.run_id]) > 2)
        uplink.fail = taken
        return Outcome(final_text="more")  # the server hears of that, and says whose the run is

    async def wait(_: Order) -> Outcome:
        await asyncio.sleep(2 * PATIENCE)
        return Outcome(final_text="never")

    async with asyncio.timeout(PATIENCE):
        state = await drive(rig, act, wait, policy=Policy(max_runs=5))
    assert state.stop_reason == "taken_over"
    cut = [one.event.error_type for one in rig.records if isinstance(one.event, ev.IterationFailed)]
    assert set(cut) <= {"taken_over"}
    stops = [one.event.by for one in rig.records if isinstance(one.event, ev.StopRequested)]
    assert stops == ["server: taken over"]
    account = Accounts(rig.tmp / "state").read(rig.run_id)
    assert account is not None
    assert account.given_up


async def test_orders_reach_the_run_and_come_back_as_events(rig: Rig, uplink: MemoryUplink) -> None:
    prompts: list[str] = []

    async def first(order: Order) -> Outcome:
        uplink.give("message", run_id=rig.run_id, content="mind the gap")
        uplink.give("limits", run_id=rig.run_id, max_runs=2)
        uplink.give("limits", run_id=rig.run_id, max_runs=None)
        await until(lambda: any(isinstance(one.event, ev.OrderRefused) for one in rig.records))
        prompts.append(order.prompt)
        return Outcome(final_text="one")

    async def second(order: Order) -> Outcome:
        prompts.append(order.prompt)
        return Outcome(final_text="two")

    state = await drive(rig, first, second)
    assert state.attempts == 2
    assert "mind the gap" not in prompts[0]
    assert "mind the gap" in prompts[1]
    assert state.ordered == 12
    commands = [one.event for one in uplink.kept[rig.run_id].values() if isinstance(one.event, ev.Command)]
    assert [one.order for one in commands if one.order] == [10, 11, 12]


async def test_a_stop_from_the_server_ends_the_running_iteration(rig: Rig, uplink: MemoryUplink) -> None:
    async def act(_: Order) -> Outcome:
        uplink.give("stop", run_id=rig.run_id)
        await asyncio.sleep(2 * PATIENCE)
        return Outcome(final_text="never")

    async with asyncio.timeout(PATIENCE):
        state = await drive(rig, act, policy=Policy(max_runs=5))
    assert state.stop_reason == "stop_requested"


async def test_a_stop_meant_for_an_earlier_driver_is_refused(rig: Rig, uplink: MemoryUplink) -> None:
    uplink.give("stop", run_id=rig.run_id, age=3600.0)
    state = await drive(rig, wait_for(lambda: any(isinstance(one.event, ev.OrderRefused) for one in rig.records)))
    assert state.stop_reason == "max_runs_reached"


def _beats_in(event: object) -> bool:
    """Whether it is a sign of life of the first iteration: one may come before that."""
    return isinstance(event, AgentHeartbeat) and event.iteration_num == 1


async def test_signs_of_life_can_be_events(rig: Rig, uplink: MemoryUplink) -> None:
    settings = replace(SETTINGS, heartbeat=0.05, heartbeat_events=True)
    await drive(rig, wait_for(lambda: sum(_beats_in(r.event) for r in rig.records) >= 2), settings=settings)
    beats = [one.event for one in uplink.kept[rig.run_id].values() if isinstance(one.event, AgentHeartbeat)]
    assert len(beats) >= 2
    assert beats[0].status == "running"
    assert beats[-1].iteration_num == 1


async def test_what_goes_beside_the_events_has_its_last_word(rig: Rig, uplink: MemoryUplink) -> None:
    @asynccontextmanager
    async def packing(to: Uplink) -> AsyncIterator[None]:
        yield
        await to.put(rig.run_id, Parcel(name="notes", content=b"at the end"))

    here = opening.Here(env={}, state_dir=rig.tmp / "state", now=rig.clock.now, beside=(packing,))
    line = opening.open_line(SETTINGS, here, folder=str(rig.repo))
    lease = await rig.log.acquire(rig.run_id, name="it", folder=str(rig.repo))
    journal = Journal(rig.log, lease, rig.clock)
    async with serving.uplinked(rig.log, journal, line):
        await journal.record(
            beginning(rig.run_id, rig.spec(), ONE), ev.ContinuousResumed(pid=1, host="h", version="1", lease=1)
        )
        await until(lambda: bool(uplink.kept))
    assert uplink.parcels[rig.run_id, "notes"].content == b"at the end"


async def test_after_ctrl_c_the_end_is_quick(rig: Rig, uplink: MemoryUplink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "IN_A_HURRY", 0.2)
    uplink.fail = down

    async def act(_: Order) -> Outcome:
        await rig.log.append(rig.run_id, [ev.StopRequested(by="signal", signal="SIGINT")])
        await asyncio.sleep(2 * PATIENCE)
        return Outcome(final_text="never")

    async with asyncio.timeout(PATIENCE):
        state = await drive(rig, act, settings=replace(SETTINGS, patience=2 * PATIENCE), policy=Policy(max_runs=5))
    assert state.stop_reason == "shutdown_signal"


async def test_ctrl_c_while_the_last_words_are_delivered_ends_the_wait(
    rig: Rig, uplink: MemoryUplink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "IN_A_HURRY", 0.2)
    uplink.fail = down
    driving = asyncio.create_task(drive(rig, settings=replace(SETTINGS, patience=2 * PATIENCE)))
    await until(lambda: any(isinstance(one.event, ev.ContinuousSuspended) for one in rig.records))
    await rig.log.append(rig.run_id, [ev.StopRequested(by="signal", signal="SIGINT")])
    async with asyncio.timeout(PATIENCE):
        assert (await driving).stop_reason == "max_runs_reached"


@pytest.mark.usefixtures("uplink")
async def test_a_server_that_hangs_does_not_slow_the_run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(MemoryUplink):
        async def received(self, run_id: str) -> object:  # type: ignore[override]
            self.asked += 1
            await asyncio.sleep(3600)
            return run_id

    monkeypatch.setattr(opening, "SandboxUplink", lambda *_, **__: Hanging())
    done = [Outcome(final_text="did it")] * 5
    policy = Policy(max_runs=5, stagnation_threshold=99)
    async with asyncio.timeout(PATIENCE):  # the server would take an hour for its first answer
        state = await drive(rig, *done, policy=policy, settings=replace(SETTINGS, patience=0.1))
    assert state.attempts == 5
