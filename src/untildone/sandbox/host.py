"""Runs programs on this machine, behind a guard that lets nothing of them outlive the loop."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from untildone.core.liveness import Pulse
from untildone.errors import AgentError, AgentMissing
from untildone.ports import Process
from untildone.sandbox import guard
from untildone.sandbox.vitals import TreeVitals

MARKER = "UNTILDONE_RUN"
"""Environment variable by which the processes of a run are found again after a crash."""
STDERR_KEPT = 64 << 10
PIPE_BUFFER = 1 << 20
LAST_RESORT = 1.0
"""Seconds each of the harder steps of ending a process may take."""
SWEEP_GRACE = 2.0


class HostProcess:
    """A program running behind its guard."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._stderr = bytearray()
        self._drain = asyncio.create_task(self._drain_stderr())
        self._vitals = TreeVitals(process.pid)

    @property
    def pid(self) -> int:
        """The guard's pid: the root of the program's whole tree."""
        return self._process.pid

    async def read(self, size: int = 1 << 16) -> bytes:
        """Return the next bytes of its stdout; b"" at its end."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(size)

    async def write(self, data: bytes) -> None:
        """Write to its stdin; BrokenPipeError when it is gone or its input was closed."""
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing():
            raise BrokenPipeError("the program's input is closed")
        try:
            stdin.write(data)
            await stdin.drain()
        except ConnectionError as gone:
            raise BrokenPipeError("the program closed its input") from gone

    async def close_stdin(self) -> None:
        """End its input."""
        if self._process.stdin is not None:
            self._process.stdin.close()
            with contextlib.suppress(ConnectionError):
                await self._process.stdin.wait_closed()

    async def wait(self) -> int:
        """Return its exit status; negative for a signal."""
        status = await self._process.wait()
        with contextlib.suppress(TimeoutError):  # someone beyond the guard's reach may still hold the pipe
            await asyncio.wait_for(asyncio.shield(self._drain), LAST_RESORT)
        return status

    def stderr_tail(self) -> str:
        """Return the end of what it wrote to stderr."""
        return self._stderr[-STDERR_KEPT:].decode("utf-8", "replace")

    def vitals(self) -> Pulse:
        """Return what its whole tree did so far."""
        return self._vitals.look()

    def family(self) -> set[int]:
        """Return every living process of its tree."""
        if self._process.returncode is not None:
            return set()
        return {self.pid, *(pid for pid in guard.descendants(self.pid) if not guard.is_zombie(pid))}

    async def end(self, grace: float = 2.0) -> None:
        """SIGINT, SIGTERM, then kill the whole tree, escapees too."""
        # A second SIGTERM tells the guard to kill at once.
        for number, patience in (
            (signal.SIGINT, grace / 2),
            (signal.SIGTERM, grace / 2),
            (signal.SIGTERM, LAST_RESORT),
        ):
            if await self._gone_after(number, patience):
                return
        for pid in guard.descendants(self.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        await self._gone_after(signal.SIGKILL, LAST_RESORT)

    async def _gone_after(self, number: signal.Signals, patience: float) -> bool:
        if self._process.returncode is None:
            # Not `send_signal`: it looks for the exit status first, and takes it away from whoever waits for it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._process.wait()
        return self._process.returncode is not None

    async def _drain_stderr(self) -> None:
        """Read all the time: a program whose stderr is full stands still."""
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(PIPE_BUFFER):
            self._stderr += chunk
            if len(self._stderr) > 2 * STDERR_KEPT:
                del self._stderr[:-STDERR_KEPT]


class HostSpawner:
    """Spawns programs on this machine.

    The kernel tells the guard when its parent dies, and by parent it means the *thread* that spawned it: call
    `spawn` on the event loop of a thread that lives as long as the program shall.
    """

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: Literal["pipe", "null"] = "pipe",
    ) -> Process:
        """Start a program in `cwd` with exactly this environment."""
        program = shutil.which(argv[0], path=env.get("PATH", os.defpath))
        if program is None:
            raise AgentMissing(f"there is no program {argv[0]!r} that could be started: install it or name its path")
        if not os.path.isdir(cwd):  # noqa: PTH112 - one stat
            raise AgentError(f"the folder {cwd!r} does not exist: nothing can be run there")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), "--", program, *argv[1:],
            cwd=cwd,
            env=dict(env),
            stdin=asyncio.subprocess.PIPE if stdin == "pipe" else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=PIPE_BUFFER,
        )  # fmt: skip
        return HostProcess(process)

    def sweep(self, run_id: str) -> int:
        """End every process that carries this run's marker; returns how many there were."""
        ended: set[int] = set()
        spared = _self_and_ancestors()
        for number in (signal.SIGTERM, signal.SIGKILL):
            give_up = time.monotonic() + SWEEP_GRACE
            signalled: set[int] = set()
            while (marked := _marked(run_id) - spared) and time.monotonic() < give_up:
                for pid in marked - signalled:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
                signalled |= marked
                ended |= marked
                time.sleep(0.02)
        return len(ended - _marked(run_id))


def _marked(run_id: str) -> set[int]:
    """Our user's processes that carry the marker. A zombie has no environment any more."""
    wanted = f"{MARKER}={run_id}".encode()
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
    return found


def _self_and_ancestors() -> set[int]:
    found = set()
    pid: int | None = os.getpid()
    while pid:
        found.add(pid)
        pid = guard.parent_of(pid)
    return found
