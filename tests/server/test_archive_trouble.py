"""Databases and processes that die in the middle."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg  # type: ignore[import-untyped] # it ships no types
import pytest

from archives import new_archive
from patience import PATIENCE, soon
from postgres_kit import Postgres, PostgresServer
from server.events_kit import BOX, many
from untildone.errors import DatabaseStarting, ServeError
from untildone.server.archive.database import postgres_database
from untildone.server.archive.opening import open_archive
from untildone.server.archive.port import MISSED, Archive, EventFilter, RunFilter
from untildone.server.context import ServerSettings
from untildone.serving import open_server

pytestmark = pytest.mark.anyio

_SENDER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from server.events_kit import BOX, many
from untildone.server.archive.opening import open_archive

async def main():
    archive = await open_archive(sys.argv[1])
    first = 1
    while True:
        receipt = await archive.events.receive(BOX, "run", many(first, first + 99), now=1.0)
        print(receipt.last_seq, flush=True)
        first += 100

asyncio.run(main())
"""


async def test_what_was_acknowledged_survives_a_kill(archive_url: str) -> None:
    tests = str(Path(__file__).parent.parent)
    sender = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SENDER, archive_url, tests, stdout=asyncio.subprocess.PIPE
    )
    assert sender.stdout is not None
    acknowledged = 0
    async with asyncio.timeout(PATIENCE):
        while acknowledged < 3000:
            acknowledged = int(await sender.stdout.readline())
        sender.kill()
        rest = await sender.stdout.read()
        await sender.wait()
    # A line that was cut off was not told to anybody.
    acknowledged = int((rest.decode().rpartition("\n")[0].splitlines() or [str(acknowledged)])[-1])
    archive = await open_archive(archive_url)
    entry = await archive.runs.entry("run")
    assert entry is not None
    assert entry.last_seq >= acknowledged
    kept, after = [], 0
    while page := await archive.events.read("run", EventFilter(after=after, limit=5000)):
        kept += page
        after = page[-1].seq
    assert kept == many(1, entry.last_seq)
    await archive.close()


@pytest.fixture
def unstarted() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="untildone-pg-") as folder:
        yield PostgresServer(Path(folder))


@pytest.fixture
def mortal(unstarted: PostgresServer) -> Iterator[PostgresServer]:
    unstarted.start()
    try:
        yield unstarted
    finally:
        unstarted.stop("immediate")


@pytest.fixture
def mortal_url(mortal: PostgresServer) -> str:
    return mortal.new_database("runs")


@pytest.fixture
async def opened(mortal_url: str) -> AsyncIterator[Archive]:
    archive = await open_archive(mortal_url)
    yield archive
    await archive.close()


async def test_a_database_that_starts_later_is_waited_for_with_one_line_and_a_ceiling(
    unstarted: PostgresServer, tmp_path: Path
) -> None:
    told: list[str] = []
    settings = ServerSettings(port=0, database=f"{unstarted.url}/postgres", local=False)
    with pytest.raises(DatabaseStarting, match="does not answer"):
        async with open_server(settings, tmp_path, patience=1.0, waiting=told.append):
            pass
    assert len(told) == 1
    assert "waiting for it" in told.pop()

    def wait(line: str) -> None:
        told.append(line)
        begun.set()

    async def start() -> None:
        await begun.wait()
        await asyncio.to_thread(unstarted.start)

    begun = asyncio.Event()
    starting = asyncio.create_task(start())
    try:
        async with open_server(settings, tmp_path, patience=PATIENCE, waiting=wait) as server:
            assert await server.context.archive.runs.entry("none") is None
        assert len(told) == 1
    finally:
        await starting
        await asyncio.to_thread(unstarted.stop, "immediate")


async def test_a_database_that_says_that_it_is_starting_up_is_one_that_starts() -> None:
    database = postgres_database(asyncpg.connect, place="there", troubles=())
    starting = asyncpg.exceptions.CannotConnectNowError("the database system is starting up")
    assert isinstance(database.spoken(starting), DatabaseStarting)
    assert not isinstance(database.spoken(asyncpg.exceptions.InvalidPasswordError("no")), DatabaseStarting)
    await database.close()


async def test_a_database_that_crashes_and_comes_back_loses_nothing(mortal: PostgresServer, opened: Archive) -> None:
    acknowledged = 0
    down, back = asyncio.Event(), asyncio.Event()
    said: set[str] = set()

    async def send() -> None:
        nonlocal acknowledged
        # As long as the database has not been away and come back, and for one batch more.
        while not back.is_set():
            try:
                batch = many(acknowledged + 1, acknowledged + 100)
                acknowledged = (await opened.events.receive(BOX, "run", batch, now=1.0)).last_seq
                await asyncio.sleep(0.005)
            except ServeError as trouble:
                said.add(str(trouble).partition(":")[0])
                down.set()
                await asyncio.sleep(0.05)

    async with asyncio.timeout(PATIENCE):
        sending = asyncio.create_task(send())
        while acknowledged < 500:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(mortal.stop, "immediate")
        await down.wait()
        with pytest.raises(ServeError, match="does not answer"):
            await opened.runs.entries(RunFilter())
        with pytest.raises(ServeError, match="does not answer"):
            await opened.orders.give("run", "stop", {}, by="me", now=1.0)
        before = acknowledged
        await asyncio.to_thread(mortal.start)
        await soon(lambda: acknowledged > before, "an event after the crash")
        back.set()
        await sending
    assert said == {"the database does not answer"}
    assert await opened.events.read("run", EventFilter(after=0, limit=100_000)) == many(1, acknowledged)


class Cable:
    """Between a client and a server: when cut, nothing comes through, and nobody is told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, far_writer]
        for one, other in ((reader, far_writer), (far_reader, writer)):
            self._tasks.add(asyncio.create_task(self._carry(one, other)))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._whole.wait()
            writer.write(data)
        writer.close()


async def test_a_database_that_falls_silent_holds_nobody_up(
    postgres: Postgres, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("untildone.server.archive.postgres.CONNECT_SECONDS", 2.0)
    monkeypatch.setattr("untildone.server.archive.postgres.COMMAND_SECONDS", 2.0)
    cable = Cable(postgres.port)
    url = postgres_url.replace(f":{postgres.port}/", f":{await cable.open()}/")
    archive = await open_archive(url)
    await archive.events.receive(BOX, "run", many(1, 3), now=1.0)
    cable.cut()
    async with asyncio.timeout(PATIENCE):
        tries = [archive.events.receive(BOX, "run", many(4, 6), now=1.0) for _ in range(3)]
        looks = [archive.runs.entries(RunFilter()) for _ in range(3)]
        answers = await asyncio.gather(*tries, *looks, return_exceptions=True)
    assert {type(answer) for answer in answers} == {ServeError}
    cable.mend()
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await archive.events.receive(BOX, "run", many(4, 6), now=1.0)
                break
            except ServeError:
                await asyncio.sleep(0.05)
    assert await archive.events.read("run", EventFilter(after=0)) == many(1, 6)
    await archive.close()
    await cable.close()


async def test_servers_on_one_database_hear_each_other_and_not_themselves(postgres_url: str) -> None:
    one, two = await open_archive(postgres_url), await open_archive(postgres_url)
    for number in range(50):
        await one.announce(f"e:run:{number}")
    await two.announce("c:run é")
    async with asyncio.timeout(PATIENCE):
        assert [await two.heard() for _ in range(50)] == [f"e:run:{number}" for number in range(50)]
        assert await one.heard() == "c:run é"
    await one.announce("x" * 9000)
    async with asyncio.timeout(PATIENCE):
        assert await two.heard() == MISSED
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await one.heard()
    await one.close()
    await two.close()


async def test_who_was_cut_off_is_told_that_something_may_be_missing(
    mortal: PostgresServer, mortal_url: str, opened: Archive
) -> None:
    await asyncio.to_thread(mortal.stop)
    await opened.announce("said into the void")
    await asyncio.to_thread(mortal.start)
    async with asyncio.timeout(PATIENCE):
        assert await opened.heard() == MISSED
        other = await open_archive(mortal_url)
        while (topic := await _soon(opened)) is None:
            await other.announce("hello")
    assert topic == "hello"
    await other.close()


async def _soon(archive: Archive) -> str | None:
    try:
        async with asyncio.timeout(0.2):
            return await archive.heard()
    except TimeoutError:
        return None


async def test_nobody_else_can_speak_on_a_file(tmp_path: Path) -> None:
    archive = await open_archive(new_archive(tmp_path))
    await archive.announce("c:run")
    assert await _soon(archive) is None
    await archive.close()


async def test_a_file_somebody_holds_is_one_line_and_works_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    monkeypatch.setattr("untildone.server.archive.sqlite_intake.BUSY_SECONDS", 0.05)
    archive = await open_archive(new_archive(tmp_path))
    thief = sqlite3.connect(tmp_path / "server.db", isolation_level=None)
    thief.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ServeError, match=r"does not answer: .*locked"):
        await archive.events.receive(BOX, "run", many(1, 3), now=1.0)
    thief.execute("ROLLBACK")
    thief.close()
    assert (await archive.events.receive(BOX, "run", many(1, 3), now=1.0)).stored == 3
    await archive.close()
