"""Opening logs, and driving them from other processes."""

import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from store.store_kit import OpenLog, OpenSqlite, StartDriver, Ticks
from untildone.ports import EventLog
from untildone.store.memory import MemoryLog
from untildone.store.sqlite import SqliteLog

DRIVER = Path(__file__).parent / "store_driver.py"


@pytest.fixture
def clock() -> Ticks:
    return Ticks()


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "the state \u00fc \U0001f600" / "untildone.db"


@pytest.fixture(params=["memory", "sqlite"])
async def open_log(request: pytest.FixtureRequest, db: Path, clock: Ticks) -> AsyncIterator[OpenLog]:
    """Opens the same runs anew at each call, as another process would (in memory there is only one)."""
    opened: list[EventLog] = []

    def open_memory() -> EventLog:
        return opened[0] if opened else open_with(MemoryLog(clock))

    def open_with(log: EventLog) -> EventLog:
        opened.append(log)
        return log

    yield open_memory if request.param == "memory" else lambda: open_with(SqliteLog(db, clock))
    for log in opened:
        await log.close()


@pytest.fixture
async def open_sqlite(db: Path, clock: Ticks) -> AsyncIterator[OpenSqlite]:
    opened: list[SqliteLog] = []

    def open_one() -> SqliteLog:
        opened.append(SqliteLog(db, clock))
        return opened[-1]

    yield open_one
    for log in opened:
        await log.close()


@pytest.fixture
async def start_driver(db: Path) -> AsyncIterator[StartDriver]:
    """Starts `store_driver.py`, and ends it with the test whatever happens."""
    started: list[Process] = []

    async def start(verb: str, *arguments: str) -> Process:
        process = await create_subprocess_exec(
            sys.executable, str(DRIVER), verb, str(db), *arguments, stdin=PIPE, stdout=PIPE
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()
