"""Words the tests of this room share."""

import asyncio
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from pathlib import Path

from patience import PATIENCE
from untildone.core.events import Event, MessageReceived
from untildone.core.trace import AgentMessage
from untildone.ports import EventLog, Lease
from untildone.store.sqlite import SqliteLog

OpenLog = Callable[[], EventLog]
OpenSqlite = Callable[[], SqliteLog]
StartDriver = Callable[..., Awaitable[Process]]


class Ticks:
    """A clock that moves one second whenever it is asked."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def now(self) -> float:
        self.seconds += 1
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def says(text: str) -> Event:
    """A trace event."""
    return AgentMessage(iteration_num=1, text=text)


def asks(text: str) -> Event:
    """A control event."""
    return MessageReceived(by="me", content=text)


async def begin(log: EventLog, folder: Path, run_id: str = "r1") -> Lease:
    return await log.acquire(run_id, name=f"name of {run_id}", folder=str(folder))


async def line_of(process: Process) -> str:
    """The next line a process says."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        return (await process.stdout.readline()).decode().strip()
