"""How server processes on one PostgreSQL tell each other what is new."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped] # it ships no types

from untildone.server.archive.port import MISSED

CHANNEL = "untildone"
_LONGEST = 7_900  # PostgreSQL takes payloads under 8000 bytes
_MOST_WAITING = 10_000
_SECONDS_BETWEEN_PINGS = 20.0
_SECONDS_BETWEEN_TRIES = (0.2, 0.5, 1.0, 2.0, 5.0)
_LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


class Wire:
    """A connection of its own, made anew whenever it is lost."""

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._connect = connect
        self._me = uuid4().hex
        self._said: dict[str, None] = {}
        self._heard: asyncio.Queue[str] = asyncio.Queue(_MOST_WAITING)
        self._wake = asyncio.Event()
        self._listening = asyncio.Event()
        self._task = asyncio.create_task(self._work(), name="archive wire")

    def announce(self, topic: str) -> None:
        """Tell the others, soon."""
        if len(self._said) >= _MOST_WAITING or len(topic.encode()) > _LONGEST:
            self._said.clear()
            topic = MISSED
        self._said[topic] = None
        self._wake.set()

    async def heard(self) -> str:
        """What another process announced next."""
        return await self._heard.get()

    async def ready(self) -> None:
        """Wait until nothing that is announced from now on can be missed."""
        await self._listening.wait()

    async def close(self) -> None:
        """Hang up."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _work(self) -> None:
        tries = 0
        while True:
            try:
                connection = await self._connect()
            except _LOST:
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES[min(tries, len(_SECONDS_BETWEEN_TRIES) - 1)])
                tries += 1
                continue
            tries = 0
            try:
                await self._serve(connection)
            except _LOST:
                pass
            finally:
                self._listening.clear()
                connection.terminate()
            self._missed()

    async def _serve(self, connection: Any) -> None:
        connection.add_termination_listener(lambda _: self._wake.set())
        await connection.add_listener(CHANNEL, self._on_notice)
        self._listening.set()
        while not connection.is_closed():
            if self._said:
                said, self._said = self._said, {}
                await connection.execute(
                    "SELECT pg_notify($1, $2 || ' ' || topic) FROM unnest($3::text[]) AS topic",
                    CHANNEL,
                    self._me,
                    list(said),
                )
                continue
            self._wake.clear()
            try:
                async with asyncio.timeout(_SECONDS_BETWEEN_PINGS):
                    await self._wake.wait()
            except TimeoutError:
                # A connection can be dead without a word: then this does not come back in time.
                await connection.execute("SELECT 1")

    def _on_notice(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        by, _, topic = payload.partition(" ")
        if by == self._me:
            return
        try:
            self._heard.put_nowait(topic)
        except asyncio.QueueFull:
            self._missed()

    def _missed(self) -> None:
        """Whoever listens looks for himself what is new."""
        while not self._heard.empty():
            self._heard.get_nowait()
        self._heard.put_nowait(MISSED)
