"""Runs programs behind walls whose only way out is the door."""

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from untildone.core.door import PORT, Table
from untildone.ports import Process, Watcher
from untildone.sandbox.bounds import Bounds, Keeper
from untildone.sandbox.door import Door
from untildone.sandbox.host import HostSpawner
from untildone.sandbox.view import View
from untildone.sandbox.walls import Close, Walls


class BoxedSpawner:
    """ports.Sandbox. What it starts has a network of its own, in which only the door is reached."""

    def __init__(self, host: HostSpawner, walls: Walls, table: Table, bounds: Bounds | None = None) -> None:
        """`table`: where the door leads. `bounds`: what all programs may use together."""
        self._host = host
        self._walls = walls
        self._table = table
        self._keeper = Keeper(bounds or Bounds())

    @asynccontextmanager
    async def open(self, watcher: Watcher) -> AsyncIterator[None]:
        """ports.Sandbox."""
        async with Door(self._table, watcher) as door:
            services = self._table.services

            async def make_door(listening: Sequence[socket.socket]) -> Close:
                first, *more = listening
                leading = [await door.lead(one, to) for one, to in zip(more, services, strict=True)]
                servers = [await door.serve(first), *leading]

                def close() -> None:
                    for server in servers:
                        server.close()

                return close

            ports = (PORT, *(service.port for service in services))
            async with self._walls.stand(make_door, ports), self._keeper.keeping(watcher.exceeded):
                yield

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: Literal["pipe", "null"] = "pipe",
        seen: View | None = None,
    ) -> Process:
        """ports.Spawner. What the program says to the door is answered before it can say anything.

        `seen`: what it sees, if that is something else than what the agent does.
        """
        process = await self._walls.start(argv, cwd=cwd, env=env, stdin=stdin, seen=seen)
        self._keeper.watch(process)
        return process

    def words(self, cwd: str) -> tuple[str, ...]:
        """ports.Sandbox."""
        return self._walls.words(cwd)

    def end_within(self, seconds: float | None) -> None:
        """ports.Spawner."""
        self._host.end_within(seconds)

    def has_enforced(self) -> bool:
        """ports.Spawner."""
        return self._host.has_enforced()

    def sweep(self, run_id: str) -> int:
        """ports.Spawner."""
        return self._host.sweep(run_id)
