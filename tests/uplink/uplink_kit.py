"""A server in memory that can be away, refuse and forget; the real one as a process; and a wire that can be cut."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL
from typing import Self

from archives import new_archive
from patience import PATIENCE, eventually, soon
from ports import own_port
from untildone.core.events import ContinuousWarning, Event, LimitsChanged, Record
from untildone.core.outcome import Order as AgentOrder
from untildone.core.outcome import Outcome
from untildone.core.trace import AgentStarted
from untildone.core.wire import Order, OrderKind, Receipt
from untildone.errors import UplinkDown, UplinkRefused
from untildone.ports import EventLog, Parcel, Tell

RUN = "run-1"


@dataclass
class MemoryUplink:
    """An Uplink to a server that is a few dictionaries."""

    kept: dict[str, dict[int, Record]] = field(default_factory=dict)
    given: dict[str, list[Order]] = field(default_factory=dict)
    parcels: dict[tuple[str, str], Parcel] = field(default_factory=dict)
    batches: list[tuple[str, int]] = field(default_factory=list)
    """(run, events) of each that came."""
    taken: list[int] = field(default_factory=list)
    """Tenures from which the run was taken over."""
    losses: int = 0
    asked: int = 0
    """How often somebody wanted to know how far it has come."""
    fail: Callable[[], None] = lambda: None
    """Called before each answer; raises what is wrong."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def received(self, run_id: str) -> Receipt:
        self.asked += 1
        self.fail()
        return self._receipt(run_id)

    async def send(self, run_id: str, records: Sequence[Record], *, tenure: int = 0) -> Receipt:
        self.fail()
        assert [one.seq for one in records] == sorted({one.seq for one in records})
        have = self.kept.setdefault(run_id, {})
        new = [one for one in records if one.seq not in have]
        have.update({one.seq: one for one in new})
        self.batches.append((run_id, len(records)))
        self.changed.set()
        return self._receipt(run_id, len(new))

    async def take(self, run_id: str, *, tenure: int) -> int:
        self.fail()
        self.taken.append(tenure)
        return tenure + 1

    async def orders(self, run_id: str, *, after: int, wait: float) -> list[Order]:
        self.fail()
        ends = time.monotonic() + wait
        while not (found := [one for one in self.given.get(run_id, ()) if one.number > after]):
            if time.monotonic() >= ends:
                return []
            await asyncio.sleep(0.01)
        return found

    async def put(self, run_id: str, parcel: Parcel) -> None:
        self.fail()
        self.parcels[run_id, parcel.name] = parcel

    async def close(self) -> None: ...

    def give(self, kind: OrderKind, *, run_id: str = RUN, age: float = 0.0, **data: object) -> Order:
        orders = self.given.setdefault(run_id, [])
        order = Order(number=10 + len(orders), kind=kind, by="ann", at=1.0, age=age, data=data)  # type: ignore[arg-type]
        orders.append(order)
        return order

    def _receipt(self, run_id: str, stored: int = 0) -> Receipt:
        orders = self.given.get(run_id, ())
        newest = max(self.kept.get(run_id, {}), default=0)
        return Receipt(last_seq=newest, stored=stored, orders=max((one.number for one in orders), default=0))


def down() -> None:
    raise UplinkDown("the server is away")


def refused() -> None:
    raise UplinkRefused("the token is not valid")


def taken() -> None:
    raise UplinkRefused("another machine has it", taken=True)


def trace(text: str) -> Event:
    return ContinuousWarning(message=text)


def control(value: int) -> Event:
    return LimitsChanged(by="me", changes={"max_runs": value})


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that others bring about."""
    await soon(condition)


async def begun(log: EventLog, run_id: str = RUN, folder: str = "/") -> None:
    lease = await log.acquire(run_id, name=run_id, folder=folder)
    await log.append(run_id, [control(1)], lease=lease)
    await log.release(lease, status="running")


Acting = Callable[[AgentOrder], Awaitable[Outcome]]


class ActingAgent:
    """An agent whose iterations are functions, which may wait for what others do."""

    def __init__(self, *acts: Acting | Outcome) -> None:
        self._acts = iter(acts)
        self._cut = asyncio.Event()

    async def iterate(self, order: AgentOrder, tell: Tell) -> Outcome:
        self._cut.clear()
        await tell(AgentStarted(iteration_num=order.iteration_num))
        act = next(self._acts)
        if isinstance(act, Outcome):
            return act
        acting, cut = asyncio.ensure_future(act(order)), asyncio.ensure_future(self._cut.wait())
        await asyncio.wait([acting, cut], return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        if acting.done():
            return acting.result()
        acting.cancel()
        return Outcome(interrupted=True, cost_usd=None)

    async def interrupt(self, *, discard: bool = False) -> None:
        self._cut.set()

    def pulse(self) -> None:
        return None

    async def close(self) -> None: ...


# --- the real server ---------------------------------------------------------------------------------


@dataclass
class RealServer:
    """`untildone serve` as a process of its own, which can be killed and started again."""

    home: Path
    port: int = field(default_factory=own_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> Path:
        return self.home / "server.db"

    async def start(self) -> None:
        await asyncio.to_thread(self.start_here)

    async def kill(self) -> None:
        await asyncio.to_thread(self.kill_here)

    def start_here(self) -> None:
        """The same without a loop."""
        serve = ("-m", "untildone", "serve", "--port", str(self.port), "--no-local")
        self.process = subprocess.Popen(
            [sys.executable, *serve, "--database", new_archive(self.home)],
            env=os.environ | {"HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state")},
            stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL,
        )  # fmt: skip
        eventually(self._answers, "the start of the server")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the server ended"
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/healthz", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
        return False

    def kill_here(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def rows(self, run_id: str) -> list[tuple[int, str, str]]:
        """(seq, type, payload) of what it keeps, as it is on the disk."""
        with closing(sqlite3.connect(self.database, timeout=PATIENCE)) as db:
            table = "SELECT seq, type, data FROM events WHERE run_id = ? ORDER BY seq"
            return list(db.execute(table, (run_id,)))


class Wire:
    """A relay between a worker and a server that can be cut, so that nothing gets through and nobody is told."""

    def __init__(self, port: int) -> None:
        self._there = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.whole = asyncio.Event()
        self.whole.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self.whole.clear()

    def mend(self) -> None:
        """Connections that were cut are dead."""
        self.drop()
        self.whole.set()

    def drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, to_there = await asyncio.open_connection("127.0.0.1", self._there)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, to_there}
        for one, other in ((reader, to_there), (there, writer)):
            task = asyncio.create_task(self._pump(one, other))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                await self.whole.wait()
                writer.write(piece)
                await writer.drain()
        writer.close()
