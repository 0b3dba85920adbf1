"""Runs programs on this machine, behind a guard that lets nothing of them outlive the loop."""

import asyncio
import contextlib
import os
import select
import shutil
import signal
import sys
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Self
from weakref import WeakSet

from untildone.core.liveness import Pulse
from untildone.errors import AgentError, AgentMissing
from untildone.ports import Watcher
from untildone.sandbox import guard
from untildone.sandbox.memory import Listener, Memory
from untildone.sandbox.vitals import TreeVitals, memory_kills

MARKER = "UNTILDONE_RUN"
"""Environment variable by which the processes of a run are found again after a crash."""
CHECK_MARKER = "UNTILDONE_CHECK_OF"
"""The same for the checks of a run: they are the user's own commands, not the agent's, and may do what users may."""
STDERR_KEPT = 64 << 10
PIPE_BUFFER = 1 << 20
LAST_RESORT = 1.0
"""Seconds each of the harder steps of ending a process may take."""
SWEEP_GRACE = 2.0
FAREWELL = 2.5
"""Seconds a guard whose loop died may take to end its program and to write down what that said last."""


# As a module it is compiled once; a script would be compiled each time it starts.
_AS_MODULE = "import sys; sys.path.append(sys.argv[1].rpartition('/')[0]); import guard; guard.run(sys.argv[2:])"
_GUARD = (sys.executable, "-I", "-S", "-c", _AS_MODULE, guard.__file__)


def behind_guard(*, whole_tree: bool, apart: bool = False) -> tuple[str, ...]:
    """What to put before a command of the user's own that must not outlive the loop.

    Asked to end, its whole process group has the same grace. `whole_tree`: nothing it starts outlives the command
    either. Without, what it detached on purpose goes on. `apart`: it does not get the keys of our session.
    """
    group = "--group" if whole_tree else "--group-only"
    return (*_GUARD, group, *(["--apart"] if apart else []), str(os.getpid()), "--")


class HostProcess:
    """A program running behind its guard."""

    def __init__(
        self, process: asyncio.subprocess.Process, stdout: asyncio.StreamReader, memory: Memory | None = None
    ) -> None:
        """`memory`: what is shared with the guard."""
        self._process = process
        self.memory = memory
        self._memory_kills = memory_kills()
        self._stdout = stdout
        self._stderr = bytearray()
        self._drain = asyncio.create_task(self._drain_stderr())
        self._adopted: _Held | None = None
        self._vitals = TreeVitals()

    @property
    def pid(self) -> int:
        """The guard's pid: the root of the program's whole tree."""
        return self._process.pid

    def adopt(self, pid: int) -> None:
        """Take a process and all below it for part of its tree: the first one of a container. It ends with it."""
        self._adopted = _Held(pid)

    def lives(self) -> bool:
        """Whether anything of it may still be there."""
        return bool(self._roots())

    def _roots(self) -> list[int]:
        own = [self.pid] if self._process.returncode is None else []
        return [*own, *([self._adopted.pid] if self._adopted and self._adopted.lives() else [])]

    async def read(self, size: int = 1 << 16) -> bytes:
        """Return the next bytes of its stdout; b"" at its end."""
        return await self._stdout.read(size)

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

    def starved(self) -> bool:
        """Whether the system killed something for want of memory since it was started."""
        before, now = self._memory_kills, memory_kills()
        return before is not None and now is not None and now > before

    def vitals(self) -> Pulse:
        """Return what its whole tree did so far."""
        roots = self._roots()
        return self._vitals.look({*roots, *(pid for root in roots for pid in guard.descendants(root))} - {self.pid})

    def family(self) -> set[int]:
        """Return every living process of its tree."""
        roots = self._roots()
        return {*roots, *(pid for root in roots for pid in guard.descendants(root) if not guard.is_zombie(pid))}

    def at_rest(self) -> set[int]:
        """The program and what serves it, all in its own session; empty if it waits for something in another one."""
        family = self.family()
        resting = family - self._in_other_sessions(family)
        guards = {pid for pid in resting if _is_guard(pid) or _is_first_of_its_own(pid)}
        waited_for = {pid for pid in family - resting if guard.parent_of(pid) in resting - guards}
        return set() if waited_for else resting

    def commands(self) -> set[int]:
        """What of its tree has a session of its own: Claude Code gives one to each command that the agent runs."""
        return self._in_other_sessions(self.family())

    def _in_other_sessions(self, family: set[int]) -> set[int]:
        sessions = {_session_of(root) for root in self._roots()} - {-1}
        return {pid for pid in family if _session_of(pid) not in sessions}

    async def end(self, grace: float = 2.0) -> None:
        """SIGINT, SIGTERM, then kill the whole tree, escapees too."""
        await self._end_tree(grace)
        if self._adopted is not None:
            self._adopted.kill()

    async def _end_tree(self, grace: float) -> None:
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


class _Held:
    """A process that is held by more than its number, which another one gets when it is gone."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._file = os.pidfd_open(pid)
        except ProcessLookupError:
            self._file = -1
        else:
            weakref.finalize(self, os.close, self._file)

    def lives(self) -> bool:
        """Whether it has not ended."""
        if self._file < 0:
            return False
        ended = select.poll()
        ended.register(self._file, select.POLLIN)
        return not ended.poll(0)

    def kill(self) -> None:
        """The first process of a container takes all others along."""
        if self._file >= 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._file, signal.SIGKILL)


class HostSpawner:
    """ports.Sandbox: this machine as it is, with no walls.

    The kernel tells the guard when its parent dies, and by parent it means the *thread* that spawned it: call
    `spawn` on the event loop of a thread that lives as long as the program shall.
    """

    def __init__(self, last_words: Path | None = None, *, mark: str = "") -> None:
        """`last_words` is where a guard keeps what the programs of a run said last, should the loop die.

        `mark`, as NAME=VALUE: only processes with it in their environment are ours, whatever run they name.
        """
        self._last_words = last_words
        self._mark = mark
        self._living: WeakSet[HostProcess] = WeakSet()
        self._working: list[HostProcess] = []
        """Those that were started since the programs last rested: how they ended may be asked when they are gone."""
        self._work_ends: float | None = None
        """When the programs must end, by the monotonic clock; None: they rest."""

    def open(self, watcher: Watcher) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - nothing passes a door
        """ports.Sandbox."""
        return contextlib.nullcontext()

    def words(self, cwd: str) -> tuple[str, ...]:
        """ports.Sandbox."""
        return ("env", "--chdir", cwd, "--")

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: Literal["pipe", "null"] = "pipe",
        apart: bool = False,
        files: tuple[int, ...] = (),
        pipe: tuple[int, int] | None = None,
    ) -> HostProcess:
        """Start a program in `cwd` with exactly this environment, and with these open files.

        `apart`: it does not get the keys of our session. `pipe`: both ends of what takes its output; they are closed.
        """
        program = shutil.which(argv[0], path=env.get("PATH", os.defpath))
        if program is None:
            raise AgentMissing(f"there is no program {argv[0]!r} that could be started: install it or name its path")
        if not os.path.isdir(cwd):  # noqa: PTH112 - one stat
            raise AgentError(f"the folder {cwd!r} does not exist: nothing can be run there")
        async with _Output(self._words_path(env), pipe or os.pipe()) as output:
            process = await asyncio.create_subprocess_exec(
                *_GUARD, *(["--apart"] if apart else []), str(os.getpid()), *output.for_guard, "--", program, *argv[1:],
                cwd=cwd,
                env=dict(env),
                stdin=asyncio.subprocess.PIPE if stdin == "pipe" else asyncio.subprocess.DEVNULL,
                stdout=output.writer,
                stderr=asyncio.subprocess.PIPE,
                limit=PIPE_BUFFER,
                pass_fds=(*output.passed, *files),
            )  # fmt: skip
            spawned = HostProcess(process, await output.listen(), output.memory)
            self._living.add(spawned)
            if self._work_ends is not None:
                self._working.append(spawned)
            self._tell_end(spawned)
            return spawned

    def end_within(self, seconds: float | None) -> None:
        """Have the guards end the programs after so many seconds if the loop cannot; None: they rest."""
        self._work_ends = None if seconds is None else time.monotonic() + seconds
        for process in self._living:
            self._tell_end(process)
        if seconds is None:
            self._working.clear()

    def has_enforced(self) -> bool:
        """Whether a guard ended a program of this loop because the loop was stopped."""
        return any(process.memory is not None and process.memory.was_enforced() for process in self._living)

    def _tell_end(self, process: HostProcess) -> None:
        if process.memory is not None:
            ends = self._work_ends
            process.memory.end_within(None if ends is None else max(0.0, ends - time.monotonic()))

    def _words_path(self, env: Mapping[str, str]) -> Path | None:
        """Where its last words go, but for the end of the name; only of programs that belong to a run."""
        run_id = env.get(MARKER)
        if self._last_words is None or not run_id:
            return None
        self._last_words.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._last_words / run_id

    def sweep(self, run_id: str) -> int:
        """End every process that carries a marker of this run; returns how many."""
        spared = _self_and_ancestors()
        ours = (f"{MARKER}={run_id}", f"{CHECK_MARKER}={run_id}")
        marked = _marked(ours, self._mark) - spared
        _wait_for_guards(marked)
        return _end(ours, self._mark, spared, ended=marked)

    def end_leftovers(self, run_id: str) -> int:
        """End what programs of this run left running in the background; returns how many processes.

        The programs themselves go on, unless they wait for what is ended: hearing of it would wake them.
        """
        spared = _self_and_ancestors().union(*(process.at_rest() for process in self._living))
        return _end((f"{MARKER}={run_id}",), self._mark, spared)


def _end(marks: Sequence[str], common: str, spared: set[int], ended: Collection[int] = ()) -> int:
    """End all processes with one of these marks; `ended`: those that were there and may have ended by now."""
    ended = set(ended)
    for number in (signal.SIGTERM, signal.SIGKILL):
        give_up = time.monotonic() + SWEEP_GRACE
        signalled: set[int] = set()
        while (marked := _marked(marks, common) - spared) and time.monotonic() < give_up:
            for pid in marked - signalled:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            signalled |= marked
            ended |= marked
            time.sleep(0.02)
        if not ended:  # as usual: a look at every process of the machine is dear
            return 0
    return len(ended - _marked(marks, common))


class _Output:
    """The pipe a program's output comes through, and the memory of it that outlives the loop."""

    def __init__(self, words: Path | None, pipe: tuple[int, int]) -> None:
        self.reader, self.writer = pipe
        self._listening = False
        self.memory = Memory.make() if words is not None else None
        self.for_guard: tuple[str, ...] = ()
        self.passed: tuple[int, ...] = ()
        if words is not None:
            memory = self.memory.file if self.memory else self.reader
            self.for_guard = (str(self.reader), str(memory), str(words))
            self.passed = tuple({self.reader, memory})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, failed: object, *_: object) -> None:
        os.close(self.writer)
        if self.memory:
            self.memory.hand_over()
        if failed is not None and not self._listening:
            os.close(self.reader)

    async def listen(self) -> asyncio.StreamReader:
        """Read it from here on."""
        loop = asyncio.get_running_loop()
        stream = asyncio.StreamReader(limit=PIPE_BUFFER, loop=loop)
        protocol = Listener(stream, self.memory)
        # From here on asyncio closes it, also when we are cancelled while it connects.
        self._listening = True
        await loop.connect_read_pipe(lambda: protocol, os.fdopen(self.reader, "rb", buffering=0))
        return stream


def _wait_for_guards(pids: set[int]) -> None:
    """Guards whose loop died are ending their programs already, in a better order than we could."""
    give_up = time.monotonic() + FAREWELL
    while time.monotonic() < give_up and any(_is_guard(pid) for pid in pids):
        time.sleep(0.02)


def _is_guard(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.fsencode(guard.__file__) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


def _is_first_of_its_own(pid: int) -> bool:
    """Whether it is the first process of a namespace: what lost its parent there becomes its child."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines():
            name, *numbers = line.split()
            if name == "NSpid:":
                return len(numbers) > 1 and numbers[-1] == "1"
    return False


def _marked(marks: Sequence[str], common: str) -> set[int]:
    """Our user's processes that carry one of the marks and the common one. A zombie has no environment any more."""
    wanted, needed = {os.fsencode(mark) for mark in marks}, {os.fsencode(common)} if common else set()
    found = set()
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if not entry.name.isdigit() or entry.stat().st_uid != os.getuid():
                continue
            environ = Path(entry.path, "environ").read_bytes()
            if any(mark in environ for mark in wanted):
                carried = set(environ.split(b"\0"))
                if wanted & carried and needed <= carried:
                    found.add(int(entry.name))
    return found


def _session_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return -1


def _self_and_ancestors() -> set[int]:
    found = set()
    pid: int | None = os.getpid()
    while pid:
        found.add(pid)
        pid = guard.parent_of(pid)
    return found
