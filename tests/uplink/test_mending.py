"""What stood in the way for ever is mended without anybody: an older server, an event too large, a full disk."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from store.store_kit import Ticks
from untildone import wiring
from untildone.core.codec import encode, event_type
from untildone.core.events import ContinuousWarning, IterationCompleted, Record
from untildone.core.wire import Receipt
from untildone.engine.clock import SystemClock
from untildone.errors import UplinkDown, UplinkRefused
from untildone.ports import EventLog, Parcel
from untildone.server.archive.opening import open_archive
from untildone.server.keys import hash_of, new_token, token_key
from untildone.store.memory import MemoryLog
from untildone.uplink import outbox as subject
from untildone.uplink.client import HttpUplink
from untildone.uplink.outbox import CUT_TO, Outbox
from untildone.uplink.owed import new_key
from uplink.uplink_kit import PATIENCE, RUN, MemoryUplink, RealServer, begun, control, trace, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> EventLog:
    monkeypatch.setattr(subject, "FIRST_REST", 0.01)
    made = MemoryLog(Ticks())
    await begun(made)
    return made


@dataclass
class Told:
    lines: list[str] = field(default_factory=list)

    async def say(self, line: str) -> None:
        self.lines.append(line)


@asynccontextmanager
async def at_work(outbox: Outbox) -> AsyncIterator[None]:
    task = asyncio.create_task(outbox.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass
class Older(MemoryUplink):
    """A server that has forgotten that the run was taken over."""

    tenure: int = 0
    forgets: bool = False
    refuses: bool = False

    async def send(self, run_id: str, records: Sequence[Record], *, tenure: int = 0) -> Receipt:
        if tenure > self.tenure:
            raise UplinkRefused("take it over first", behind=self.tenure)
        return await super().send(run_id, records, tenure=tenure)

    async def take(self, run_id: str, *, tenure: int) -> int:
        self.taken.append(tenure)
        if self.refuses:
            raise UplinkRefused("taking a run over needs an operator token", taken=True)
        if not self.forgets:
            self.tenure = tenure + 1
        return tenure + 1


async def test_a_server_that_forgot_who_took_the_run_over_is_told_again(log: EventLog) -> None:
    uplink, told = Older(tenure=1), Told()
    async with at_work(Outbox(log, RUN, uplink, tenure=lambda: 3, say=told.say)):
        await until(lambda: list(uplink.kept.get(RUN, {})) == [1])
        uplink.tenure = 0
        await log.append(RUN, [control(2)])
        await until(lambda: list(uplink.kept[RUN]) == [1, 2])
    assert uplink.taken == [1, 2, 0, 1, 2]
    assert told.lines == []


async def test_a_server_that_never_learns_is_not_asked_for_ever(log: EventLog) -> None:
    uplink, told = Older(forgets=True), Told()
    outbox = Outbox(log, RUN, uplink, tenure=lambda: 1, say=told.say)
    async with at_work(outbox):
        await until(lambda: bool(told.lines))
        await asyncio.sleep(0.05)
    assert uplink.taken == [0]
    assert outbox.refused is not None
    assert "take it over first" in told.lines[0]


async def test_who_may_not_take_it_over_is_told_and_the_run_goes_on(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "REFUSED_REST", 0.01)
    uplink, told = Older(refuses=True), Told()
    outbox = Outbox(log, RUN, uplink, tenure=lambda: 1, say=told.say)
    async with at_work(outbox):
        await until(lambda: outbox.refused is not None)
        assert outbox.refused is not None
        assert not outbox.refused.taken
        uplink.refuses = False
        uplink.tenure = 1  # somebody mended it
        await until(lambda: list(uplink.kept.get(RUN, {})) == [1])
    assert len(told.lines) == 1


@dataclass
class Narrow(MemoryUplink):
    """A way to the server on which no body is larger than this, whoever else is told so."""

    most: int = 2000

    async def send(self, run_id: str, records: Sequence[Record], *, tenure: int = 0) -> Receipt:
        if sum(len(encode(one.event)) for one in records) > self.most:
            raise UplinkRefused("the body is too large", too_large=True)
        return await super().send(run_id, records, tenure=tenure)


def payload(uplink: MemoryUplink, seq: int) -> dict[str, object]:
    found: dict[str, object] = json.loads(encode(uplink.kept[RUN][seq].event))
    return found


async def test_an_event_too_large_for_the_way_is_sent_in_outline_and_the_rest_follows(log: EventLog) -> None:
    uplink, told = Narrow(), Told()
    large = IterationCompleted(iteration_num=4, cost_usd=0.5, output_preview="x" * 5000, session_id="s-1")
    await log.append(RUN, [trace("a"), large, *[trace(f"{n}" + "y" * 300) for n in range(20)], trace("z" * 9000)])
    async with at_work(Outbox(log, RUN, uplink, say=told.say)):
        await until(lambda: len(uplink.kept.get(RUN, {})) == 24)
        before = len(uplink.batches)
        await log.append(RUN, [trace(str(n)) for n in range(20)])
        await until(lambda: len(uplink.kept[RUN]) == 44)
        assert len(uplink.batches) - before < 5  # one that is too large does not make all the others slow
    assert list(uplink.kept[RUN]) == list(range(1, 45))
    assert event_type(uplink.kept[RUN][3].event) == "iteration.completed"
    outline = payload(uplink, 3)
    assert (outline["iteration_num"], outline["session_id"]) == (4, "s-1")
    assert "output_preview" not in outline
    assert 5000 <= int(str(outline["left_out_bytes"])) <= 5100
    assert payload(uplink, 24)["left_out_bytes"] == len(encode(trace("z" * 9000)))
    kept = await log.read(RUN, after=2, trace=True, limit=1)
    assert kept[0].event == large
    assert len(told.lines) == 1


async def test_where_nothing_is_small_enough_it_is_told_and_tried_again(log: EventLog) -> None:
    uplink, told = Narrow(most=1), Told()
    outbox = Outbox(log, RUN, uplink, say=told.say)
    async with at_work(outbox):
        await until(lambda: outbox.refused is not None)
    assert "too large" in told.lines[0]


def test_an_outline_is_small_however_many_small_things_an_event_holds() -> None:
    many = ContinuousWarning(message="m")
    record = Record(seq=1, at=1.0, event=control(1))
    wide = subject.Unknown(
        type="a.b", version=1, kind="trace", data=json.dumps({f"n{n}": "v" * 500 for n in range(1000)}).encode()
    )
    for event, most in ((wide, CUT_TO), (wide, 0), (many, 0), (control(1), CUT_TO)):
        cut = subject._cut(subject.replace(record, event=event), most)
        assert len(encode(cut.event)) < most + 2000
        assert event_type(cut.event) == event_type(event)


async def test_a_full_disk_is_asked_about_seldom(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "REFUSED_REST", 30.0)
    uplink = MemoryUplink()

    def full() -> None:
        raise UplinkDown("nearly full", seldom=True)

    uplink.fail = full
    outbox = Outbox(log, RUN, uplink)
    async with at_work(outbox):
        await until(lambda: uplink.asked >= 1)
        await asyncio.sleep(0.2)
        assert uplink.asked == 1
        assert outbox.refused is None  # nothing that anybody would give up for


async def test_a_server_put_back_to_before_the_run_was_taken_over_gets_all_of_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "LONGEST_REST", 0.2)
    server = RealServer(tmp_path)
    await server.start()
    operator = await operator_of(server)
    log = wiring.open_log(tmp_path / "log", wiring.system_clock())
    await begun(log)
    keys = {"old": new_key(), "new": new_key()}
    old = HttpUplink(server.url, "old", key=lambda _: keys["old"])
    new = HttpUplink(server.url, "new", operator, key=lambda _: keys["new"])
    await old.send(RUN, await log.read(RUN, trace=True))
    backup = kept_aside(server)
    assert await new.take(RUN, tenure=0) == 1
    outbox = Outbox(log, RUN, new, tenure=lambda: 1, heartbeat=0.1)
    async with at_work(outbox):
        await log.append(RUN, [control(2), trace("a")])
        await until(lambda: outbox.delivered == 3)
        await new.put(RUN, Parcel(name="tree", content=b"t", seq=3, tenure=1))
        await server.kill()
        for name in ("server.db-wal", "server.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        shutil.copy(backup, server.database)
        assert numbers(server) == [1]
        await server.start()
        await log.append(RUN, [control(3)])
        await until(lambda: numbers(server) == [1, 2, 3, 4])
        assert outbox.refused is None
    assert new.losses > 0
    await new.put(RUN, Parcel(name="tree", content=b"t", seq=3, tenure=1))
    with pytest.raises(UplinkRefused) as late:
        await old.send(RUN, [])
    assert late.value.taken
    for uplink in (old, new):
        await uplink.close()
    await log.close()
    await server.kill()


async def operator_of(server: RealServer) -> str:
    secret, now = new_token(), SystemClock().now()
    archive = await open_archive(f"sqlite:///{server.database}", serving=False)
    key = token_key("operator", sandbox_id=None, label="test", lasts=None, now=now)
    await archive.keys.add(key, hash_of(secret))
    await archive.close()
    return secret


def kept_aside(server: RealServer) -> Path:
    """A backup, as the docs say."""
    path = server.home / "backup.db"
    with closing(sqlite3.connect(server.database)) as there, closing(sqlite3.connect(path)) as backup:
        there.backup(backup)
    return path


def numbers(server: RealServer) -> list[int]:
    with closing(sqlite3.connect(server.database, timeout=PATIENCE)) as db:
        return [seq for (seq,) in db.execute("SELECT seq FROM events ORDER BY seq")]
