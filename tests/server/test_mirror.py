"""The runs of the server's own machine: in the archive, complete, once, in order, soon; and for next to nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from core.run_kit import completed, opening, started
from patience import PATIENCE
from server.archive_kit import HandClock, archive_in
from untildone.core import trace as tr
from untildone.core.codec import encode
from untildone.core.event import Event
from untildone.core.events import ContinuousSuspended
from untildone.core.wire import Receipt
from untildone.errors import UplinkDown, UplinkRefused
from untildone.ports import EventLog, Lease, RunRow
from untildone.ports.uplink import Parcel
from untildone.server.archive.port import Archive, EventFilter, RunEntry, RunFilter, Sender
from untildone.server.context import ServerSettings
from untildone.server.fanout import Fanout
from untildone.server.mirror import Mirror, reporting_here
from untildone.server.own_uplink import OwnUplink
from untildone.store.sqlite import SqliteLog
from untildone.uplink.owed import Account, Accounts

pytestmark = pytest.mark.anyio


class Machine:
    """A store with runs, and the archive of a server beside it."""

    def __init__(self, folder: Path, archive: Archive) -> None:
        self.folder = folder
        self.archive = archive
        self.clock = HandClock()
        self.log: EventLog = SqliteLog(folder / "store" / "untildone.db", self.clock)  # type: ignore[arg-type]
        self.fanout = Fanout(archive)
        self.touched: list[str] = []
        self.uplink = OwnUplink(archive, self.fanout, self.clock, self.touched.append)  # type: ignore[arg-type]

    async def begin(self, run_id: str) -> Lease:
        home = self.folder / run_id
        home.mkdir()
        lease = await self.log.acquire(run_id, name=run_id, folder=str(home))
        begun = replace(opening()[0], run_id=run_id)
        await self.log.append(run_id, [begun, *opening()[1:]], lease=lease)
        return lease

    async def work(self, lease: Lease, *, iterations: int = 3, words: int = 10) -> None:
        for number in range(1, iterations + 1):
            said: list[Event] = [tr.AgentMessage(iteration_num=number, text=f"word {n}") for n in range(words)]
            await self.log.append(lease.run_id, [started(number), *said, completed(number)], lease=lease)
            self.clock.at += 1

    async def end(self, lease: Lease) -> None:
        await self.log.append(lease.run_id, [ContinuousSuspended(stop_reason="stop_requested")], lease=lease)
        await self.log.release(lease, status="suspended")

    async def old_run(self, run_id: str, **size: int) -> None:
        lease = await self.begin(run_id)
        await self.work(lease, **size)
        await self.end(lease)
        self.clock.at += 10

    def mirror(self, **changes: object) -> Mirror:
        facts = {"every": 0.02, **changes}
        return Mirror(self.log, self.archive, self.uplink, self.clock, **facts)  # type: ignore[arg-type]

    async def entry(self, run_id: str) -> RunEntry | None:
        return await self.archive.runs.entry(run_id)

    async def assert_same(self, run_id: str) -> None:
        """Each event once, in order, byte by byte."""
        ours = [(r.seq, r.at, encode(r.event).decode()) for r in await self.log.read(run_id, trace=True)]
        theirs = await self.archive.events.read(run_id, EventFilter(after=0, limit=100_000))
        assert [(event.seq, event.at, event.data) for event in theirs] == ours

    async def until(self, run_id: str, holds: Callable[[RunEntry], bool]) -> RunEntry:
        async with asyncio.timeout(PATIENCE):
            while True:
                entry = await self.entry(run_id)
                if entry is not None and holds(entry):
                    return entry
                await asyncio.sleep(0.01)


@asynccontextmanager
async def machine_in(folder: Path) -> AsyncIterator[Machine]:
    async with archive_in(folder) as archive:
        machine = Machine(folder, archive)
        yield machine
        await machine.log.close()


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    async with machine_in(tmp_path) as made:
        yield made


async def test_a_run_is_followed_while_it_works(machine: Machine) -> None:
    async with machine.mirror().running():
        lease = await machine.begin("r1")
        entry = await machine.until("r1", lambda entry: entry.last_seq == 2)
        assert (entry.sandbox_id, entry.origin) == ("local", "local")
        await machine.work(lease)
        await machine.until("r1", lambda entry: entry.last_seq == 38)
        await machine.end(lease)
        await machine.until("r1", lambda entry: entry.last_seq == 39)
    await machine.assert_same("r1")
    assert set(machine.touched) == {"r1"}


async def test_what_is_asked_of_a_run_that_rests_arrives_too(machine: Machine) -> None:
    await machine.old_run("r1")
    mirror = machine.mirror()
    async with mirror.running():
        await mirror.settled()
        await machine.assert_same("r1")
        machine.clock.at += 100
        await machine.log.append("r1", [tr.AgentMessage(iteration_num=9, text="late")])
        await machine.until("r1", lambda entry: entry.last_seq == 40)
    await machine.assert_same("r1")


async def test_old_runs_are_copied_newest_first_and_shown_as_of_their_own_time(machine: Machine) -> None:
    names = [f"r{number}" for number in range(8)]
    for name in names:
        await machine.old_run(name, iterations=1)
    machine.clock.at += 1_000_000
    mirror = machine.mirror()
    async with mirror.running():
        await mirror.settled()
    for name in names:
        await machine.assert_same(name)
    assert list(dict.fromkeys(machine.touched)) == names[::-1]
    listed = await machine.archive.runs.entries(RunFilter(sandbox_id="local"))
    assert [entry.run_id for entry in listed] == names[::-1]
    assert all(entry.heard_at < machine.clock.now() - 900_000 for entry in listed)


async def test_a_copy_that_is_killed_again_and_again_is_exact(machine: Machine) -> None:
    for name in ("old1", "old2"):
        await machine.old_run(name, iterations=20, words=50)
    lease = await machine.begin("busy")
    for round_ in range(12):
        async with machine.mirror().running():
            await machine.work(lease, iterations=2, words=50)
            await asyncio.sleep(0.003 * round_)
    mirror = machine.mirror()
    async with mirror.running():
        await mirror.settled()
        newest = (await machine.log.read("busy", trace=True))[-1].seq
        await machine.until("busy", lambda entry: entry.last_seq == newest)
    for name in ("old1", "old2", "busy"):
        await machine.assert_same(name)


class _Counting:
    """A log that counts what is read of it."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.reads = 0
        self.looks = 0

    async def read(self, *args: object, **kwargs: object) -> object:
        self.reads += 1
        return await self._log.read(*args, **kwargs)  # type: ignore[arg-type]

    async def runs(self) -> list[RunRow]:
        self.looks += 1
        return await self._log.runs()

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


async def test_runs_that_ended_cost_nothing(machine: Machine) -> None:
    for number in range(5):
        await machine.old_run(f"r{number}", iterations=1)
    first = machine.mirror()
    async with first.running():
        await first.settled()
    machine.touched.clear()
    counting = _Counting(machine.log)
    mirror = Mirror(counting, machine.archive, machine.uplink, machine.clock, every=0.01)  # type: ignore[arg-type]
    async with mirror.running(), asyncio.timeout(PATIENCE):
        await mirror.settled()
        looked = counting.reads
        assert looked == 5  # one look at each, to see that nothing is missing
        upto = counting.looks + 10
        while counting.looks < upto:
            await asyncio.sleep(0.01)
    assert counting.reads == looked
    assert machine.touched == []


async def test_a_run_that_a_worker_reports_itself_is_left_to_it(machine: Machine) -> None:
    await machine.old_run("r1", iterations=1)
    lease = await machine.begin("r2")
    for run_id in ("r1", "r2"):
        await machine.archive.events.receive(Sender(sandbox_id="box"), run_id, [], now=machine.clock.now())
    mirror = machine.mirror()
    async with mirror.running():
        await mirror.settled()
        await machine.work(lease, iterations=1)
        await mirror.settled()
    for run_id in ("r1", "r2"):
        entry = await machine.entry(run_id)
        assert entry is not None
        assert (entry.sandbox_id, entry.last_seq) == ("box", 0)


async def test_a_run_whose_driver_reports_here_is_left_to_it_from_its_first_word(machine: Machine) -> None:
    state, settings = machine.folder / "store", ServerSettings(database="", port=7777, names=("runs.example",))
    servers = {
        "ours": "http://localhost:7777", "behind": "https://runs.example", "other": "http://127.0.0.1:8888",
        "bad": "http://[",
    }  # fmt: skip
    for run_id, server in servers.items():
        Accounts(state).write(Account(run_id=run_id, server=server, sandbox_id="box"))
    mirror = machine.mirror(reports_itself=reporting_here(state, settings))
    async with mirror.running():
        for run_id in [*servers, "none"]:
            await machine.begin(run_id)
        await mirror.settled()
        assert await machine.archive.runs.entries(RunFilter()) == []  # it is too early to tell
        machine.clock.at += 1
        for run_id in ("other", "bad", "none"):
            await machine.until(run_id, lambda entry: entry.last_seq == 2)
        await mirror.settled()
    known = {entry.run_id for entry in await machine.archive.runs.entries(RunFilter())}
    assert known == {"other", "bad", "none"}


async def test_a_run_whose_reports_are_refused_is_shown_all_the_same(machine: Machine) -> None:
    """The driver learns of it only after it began, and perhaps after its server was looked at for the first time."""
    state, settings = machine.folder / "store", ServerSettings(database="", port=7777)
    account = Account(run_id="r1", server="http://localhost:7777", sandbox_id="box")
    Accounts(state).write(account)
    mirror = machine.mirror(reports_itself=reporting_here(state, settings))
    async with mirror.running():
        lease = await machine.begin("r1")
        machine.clock.at += 1
        await mirror.settled()
        assert await machine.archive.runs.entries(RunFilter()) == []
        Accounts(state).write(msgspec.structs.replace(account, refusals=1))
        await machine.until("r1", lambda entry: entry.last_seq == 2)
        await machine.work(lease, iterations=1)
        await machine.end(lease)
        await machine.until("r1", lambda entry: entry.last_seq == 15)


async def test_what_a_driver_could_not_report_before_it_ended_is_shown(machine: Machine) -> None:
    state, settings = machine.folder / "store", ServerSettings(database="", port=7777)
    Accounts(state).write(Account(run_id="r1", server="http://localhost:7777", sandbox_id="box"))
    await machine.old_run("r1", iterations=1)
    mirror = machine.mirror(reports_itself=reporting_here(state, settings))
    async with mirror.running():
        await machine.until("r1", lambda entry: entry.last_seq == 15)


async def test_a_loop_that_lives_in_a_session_is_heard_of(machine: Machine) -> None:
    """No program drives it: whoever knows of its session says that it lives, and what its hooks wrote is folded."""
    looks = 0

    async def look() -> list[RunRow]:
        nonlocal looks
        looks += 1
        happened: list[tuple[float, Event]] = [(machine.clock.now(), event) for event in opening()]
        if looks == 1:
            await machine.log.transcribe("loop1", happened, name="l", folder="/", status="running", after=0)
        return [replace(row, alive=row.run_id == "loop1") for row in await machine.log.runs()]

    async with machine.mirror(look=look).running():
        await machine.until("loop1", lambda entry: entry.last_seq == 2)


async def test_a_store_that_cannot_be_read_for_a_while_ends_nothing(machine: Machine) -> None:
    await machine.old_run("r1", iterations=1)
    failures = 3

    async def look() -> list[RunRow]:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("the disk is away")
        return await machine.log.runs()

    mirror = machine.mirror(look=look)
    async with mirror.running(), asyncio.timeout(PATIENCE):
        await mirror.settled()
    await machine.assert_same("r1")


# --- the way into the own archive -------------------------------------------------------------------


async def test_the_own_uplink_is_an_uplink(machine: Machine) -> None:
    lease = await machine.begin("r1")
    records = await machine.log.read("r1", trace=True)
    assert await machine.uplink.received("r1") == Receipt(last_seq=0)
    assert (await machine.uplink.send("r1", records)).stored == 2
    assert (await machine.uplink.send("r1", records)).stored == 0
    assert (await machine.uplink.received("r1")).last_seq == 2
    await machine.uplink.put("r1", Parcel(name="notes", content=b"x", seq=2))
    parcel = await machine.archive.parcels.get("r1", "notes")
    assert parcel is not None
    assert await machine.uplink.orders("r1", after=0, wait=0) == []
    waiting = asyncio.create_task(machine.uplink.orders("r1", after=0, wait=PATIENCE))
    await asyncio.sleep(0.02)
    await machine.archive.orders.give("r1", "pause", {}, by="me", now=machine.clock.now())
    machine.fanout.ordered("r1")
    assert [order.kind for order in await waiting] == ["pause"]
    await machine.log.release(lease, status="suspended")


async def test_the_own_uplink_names_trouble_as_the_port_does(machine: Machine) -> None:
    await machine.archive.events.receive(Sender(sandbox_id="box"), "r1", [], now=machine.clock.now())
    with pytest.raises(UplinkRefused, match="box"):
        await machine.uplink.received("r1")
    with pytest.raises(UplinkRefused):
        await machine.uplink.send("r1", [])
    await machine.archive.close()
    with pytest.raises(UplinkDown):
        await machine.uplink.send("r2", [])
