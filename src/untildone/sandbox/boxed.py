"""Runs programs in sandboxes whose only way out is the door."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from untildone.core.door import PORT, Table
from untildone.core.printable import one_line
from untildone.errors import AgentError
from untildone.ports import Process
from untildone.sandbox import listen_inside
from untildone.sandbox.door import Door, Watcher
from untildone.sandbox.host import HostProcess, HostSpawner

_BEGIN_PATIENCE = 20.0
_GLANCE = 0.005
_SAID = 300


class BoxedSpawner:
    """ports.Spawner. What it starts has a network of its own, in which only the door is reached."""

    def __init__(self, host: HostSpawner, words: Callable[[str], Sequence[str]], table: Table) -> None:
        """`words` go before a program that is to work in a folder, so that it does so in a sandbox."""
        self._host = host
        self._words = words
        self._table = table
        self._door: Door | None = None
        self._watches: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self, watcher: Watcher) -> AsyncIterator[None]:
        """Programs can be started inside; at its end no connection is left."""
        async with Door(self._table, watcher) as self._door:
            try:
                yield
            finally:
                for watch in self._watches:
                    watch.cancel()
                await asyncio.gather(*self._watches, return_exceptions=True)

    async def spawn(
        self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], stdin: Literal["pipe", "null"] = "pipe"
    ) -> Process:
        """Start a program in a sandbox of its own; what it says to the door is answered before it can say anything."""
        assert self._door is not None, "a sandbox without a door"
        words = await asyncio.to_thread(self._words, cwd)
        with _gate() as gate:
            process = await self._host.spawn(
                (words[0], "--block-fd", str(gate.waiting), *words[1:], *argv),
                cwd=cwd, env=env, stdin=stdin, apart=True, files=(gate.waiting,),
            )  # fmt: skip
            try:
                server = await self._door.serve(await _listening_in(process))
            except BaseException:
                await process.end(0.0)
                raise
            gate.open()
        watch = asyncio.create_task(_close_after(process, server))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return process

    def end_within(self, seconds: float | None) -> None:
        """ports.Spawner."""
        self._host.end_within(seconds)

    def has_enforced(self) -> bool:
        """ports.Spawner."""
        return self._host.has_enforced()

    def sweep(self, run_id: str) -> int:
        """ports.Spawner."""
        return self._host.sweep(run_id)


class _Gate(NamedTuple):
    """Bubblewrap waits before it, with all but the program itself made."""

    waiting: int
    opening: int

    def open(self) -> None:
        os.write(self.opening, b".")


@contextlib.contextmanager
def _gate() -> Iterator[_Gate]:
    gate = _Gate(*os.pipe())
    try:
        yield gate
    finally:
        for end in gate:
            os.close(end)


async def _close_after(process: Process, server: asyncio.Server) -> None:
    """A socket that listens keeps its network alive, and with it all that the kernel holds for it."""
    try:
        await process.wait()
    finally:
        server.close()


async def _listening_in(process: HostProcess) -> socket.socket:
    """A socket that listens in the network of a program that was just started in a sandbox."""
    ours = _network_of("self")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_BEGIN_PATIENCE):
            while (pid := _in_another_network(process, ours)) is None and process.family():  # noqa: ASYNC110
                await asyncio.sleep(_GLANCE)  # nothing tells of it
            if pid is not None:
                return await asyncio.to_thread(_opened, pid)
    await process.end(0.0)
    await process.wait()
    said = one_line(process.stderr_tail().strip(), _SAID)
    raise AgentError(f"the sandbox did not start: {said or 'it ended at once'}")


def _in_another_network(process: HostProcess, ours: Path) -> int | None:
    for pid in sorted(process.family()):
        with contextlib.suppress(OSError):
            if _network_of(pid) != ours:
                return pid
    return None


def _network_of(pid: int | str) -> Path:
    return Path(f"/proc/{pid}/ns/net").readlink()


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
