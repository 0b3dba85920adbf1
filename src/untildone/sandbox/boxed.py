"""Runs programs behind walls whose only way out is the door."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from untildone.core.door import PORT, Table
from untildone.core.printable import one_line
from untildone.errors import AgentError
from untildone.ports import Process, Watcher
from untildone.sandbox import listen_inside
from untildone.sandbox.door import Door
from untildone.sandbox.host import HostSpawner
from untildone.sandbox.walls import Held, Walls

_BEGIN_PATIENCE = 20.0
_GLANCE = 0.005
_SAID = 300


class BoxedSpawner:
    """ports.Sandbox. What it starts has a network of its own, in which only the door is reached."""

    def __init__(self, host: HostSpawner, walls: Walls, table: Table) -> None:
        """`table`: where the door leads."""
        self._host = host
        self._walls = walls
        self._table = table
        self._door: Door | None = None
        self._watches: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self, watcher: Watcher) -> AsyncIterator[None]:
        """ports.Sandbox."""
        async with self._walls.stand(), Door(self._table, watcher) as self._door:
            try:
                yield
            finally:
                for watch in self._watches:
                    watch.cancel()
                await asyncio.gather(*self._watches, return_exceptions=True)

    async def spawn(
        self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], stdin: Literal["pipe", "null"] = "pipe"
    ) -> Process:
        """ports.Spawner. What the program says to the door is answered before it can say anything."""
        assert self._door is not None, "a sandbox without a door"
        async with self._walls.hold(argv, cwd=cwd, env=env, stdin=stdin) as held:
            server = await self._door.serve(await _listening_in(held))
            await held.release()
        watch = asyncio.create_task(_close_after(held.process, server))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return held.process

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


async def _close_after(process: Process, server: asyncio.Server) -> None:
    """A socket that listens keeps its network alive, and with it all that the kernel holds for it."""
    try:
        await process.wait()
    finally:
        server.close()


async def _listening_in(held: Held) -> socket.socket:
    """A socket that listens in the network of a program that was just started in a sandbox."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_BEGIN_PATIENCE):
            while (pid := held.find_inside()) is None and held.process.family():  # noqa: ASYNC110
                await asyncio.sleep(_GLANCE)  # nothing tells of it
            if pid is not None:
                return await asyncio.to_thread(_opened, pid)
    await held.process.end(0.0)
    await held.process.wait()
    said = one_line(held.process.stderr_tail().strip(), _SAID)
    raise AgentError(f"the sandbox did not start: {said or 'it ended at once'}")


def _opened(pid: int) -> socket.socket:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [sys.executable, "-I", "-S", listen_inside.__file__, str(pid), str(PORT), str(theirs.fileno())]
        done = subprocess.run(  # noqa: S603, TID251 - it lives for milliseconds
            argv, pass_fds=[theirs.fileno()], capture_output=True, text=True, check=False, timeout=_BEGIN_PATIENCE
        )
        if done.returncode:
            raise AgentError(f"no door can be opened in the sandbox: {one_line(done.stderr.strip(), _SAID)}")
        _, (handle, *_), *_ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=handle)
