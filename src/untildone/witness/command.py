"""Running one of the user's shell commands: bounded in time and memory, and nothing of it left behind."""

import asyncio
import hashlib
import os
import re
import shlex
import signal
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line
from untildone.errors import AgentError, WorkspaceError
from untildone.ports import Process
from untildone.ports.delivery import Start

OUTPUT_CAP = 64 * 1024

_CHUNK = 1 << 16
_END_GRACE = 1.0
_DEATH_GRACE = 0.2
_GUARD_GRACE = 6.0
_DRAIN_GRACE = 1.0
_ASK_EVERY = 0.02
_READ_TIMEOUT = 60.0
_SAID = 200

# A hook or an alias that started the loop leaves the ones of git behind: they name its repository, not the folder's.
_TELLING = frozenset(
    {
        "CLAUDECODE", "CLAUDE_AGENT_SDK_VERSION", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT",
        "GIT_COMMON_DIR", "GIT_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX",
        "GIT_WORK_TREE",
    }
)  # fmt: skip

_TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended and the end of what it said."""

    exit_code: int | None
    """None: it did not end in time. Negative: a signal ended it."""
    output_tail: str
    sha256: str
    """Of everything it wrote, as far as it was read."""
    seconds: float


class _Tail:
    """Hashes everything and keeps only the end."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._kept = bytearray()
        self._digest = hashlib.sha256()

    def feed(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self._kept += chunk
        del self._kept[: -self._cap]

    def text(self) -> str:
        return readable_output(bytes(self._kept))

    def sha256(self) -> str:
        return self._digest.hexdigest()


async def run_command(
    command: str,
    *,
    cwd: Path | str,
    timeout: float,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    withheld: Collection[str] = (),
    output_cap: int = OUTPUT_CAP,
    behind: Sequence[str] = (),
    start: Start | None = None,
) -> CommandResult:
    """Run a shell command in a process group of its own; `env` adds to the environment, `withheld` takes from it.

    What it leaves running in that group is ended with it, so that checks do not pile up processes overnight.
    `behind`: a program and its arguments that runs the command and ends it should we die. Asked by SIGTERM it ends the
    command with some grace, asked again at once, and its exit status is the command's. `start`: starts it elsewhere.
    """
    started = time.monotonic()
    tail = _Tail(output_cap)
    if start is not None:
        ended = await _run_elsewhere(command, start, _environment(env, withheld), timeout, tail)
        return CommandResult(
            exit_code=ended, output_tail=tail.text(), sha256=tail.sha256(), seconds=time.monotonic() - started
        )
    read_end, write_end = os.pipe()
    try:
        argv = (*behind, "/bin/sh", "-c", command)
        process = await _start(argv, cwd=cwd, stdin=stdin, env=_environment(env, withheld), output=write_end)
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    reading = asyncio.create_task(_read(read_end, tail))
    code: int | None = None
    try:
        async with asyncio.timeout(timeout):
            code = await process.wait()
    except TimeoutError:
        pass
    finally:
        await _end_group(process, guarded=bool(behind))
        await _finish(reading)
    return CommandResult(
        exit_code=code, output_tail=tail.text(), sha256=tail.sha256(), seconds=time.monotonic() - started
    )


async def _run_elsewhere(command: str, start: Start, env: Mapping[str, str], timeout: float, tail: _Tail) -> int | None:
    """Run it where everything that it starts ends with it; its exit status, or None if it did not end in time."""
    try:
        process = await start(command, env)
    except AgentError as trouble:
        raise WorkspaceError(f"cannot run `{one_line(command, _SAID)}`: {trouble}") from trouble
    reading = asyncio.create_task(_feed(process, tail))
    try:
        async with asyncio.timeout(timeout):
            return await process.wait()
    except TimeoutError:
        return None
    finally:
        await process.end(_END_GRACE)
        await _finish(reading)


async def _feed(process: Process, tail: _Tail) -> None:
    while chunk := await process.read():
        tail.feed(chunk)


async def unusable(command: str) -> str:
    """Why a command could never judge anything: it says nothing to do, or the shell cannot read it; "" if it could."""
    if all(not line.strip() or line.lstrip().startswith("#") for line in command.split("\n")):
        return "there is nothing to run in it"
    if "\0" in command:
        return "it holds a NUL character"
    read = await run_command(f"exec /bin/sh -n -c {shlex.quote(command)}", cwd="/", timeout=_READ_TIMEOUT)
    said = one_line(read.output_tail.strip().removeprefix("/bin/sh: "), _SAID)
    return f"the shell cannot read it ({said})" if read.exit_code else ""


def readable_output(raw: bytes) -> str:
    """Program output as plain text: bad bytes replaced, colours and other terminal codes taken out."""
    text = _TERMINAL_CODES.sub("", raw.decode("utf-8", "replace"))
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _environment(extra: Mapping[str, str] | None, withheld: Collection[str]) -> dict[str, str]:
    """Ours without what tells a program that it runs inside the loop, inside an agent, or in another repository."""
    telling = _TELLING.union(withheld)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("UNTILDONE_") and k not in telling}
    return kept | dict(extra or {})


async def _start(
    argv: Sequence[str], *, cwd: Path | str, stdin: bytes | None, env: Mapping[str, str], output: int
) -> asyncio.subprocess.Process:
    # A file as stdin: a command that never reads it cannot block us.
    with tempfile.TemporaryFile() as given:
        given.write(stdin or b"")
        given.seek(0)
        try:
            return await asyncio.create_subprocess_exec(
                *argv, cwd=cwd, env=env,
                stdin=asyncio.subprocess.DEVNULL if stdin is None else given,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        except OSError as trouble:
            what = one_line(argv[-1], _SAID)
            raise WorkspaceError(f"cannot run `{what}` in {cwd}: {trouble.strerror or trouble}") from trouble


async def _read(read_end: int, tail: _Tail) -> None:
    # A pipe of our own: asyncio's would make `wait` last until every grandchild has closed it.
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_CHUNK)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    try:
        while chunk := await reader.read(_CHUNK):
            tail.feed(chunk)
    finally:
        transport.close()


async def _end_group(process: asyncio.subprocess.Process, *, guarded: bool) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if process.returncode is None:
            await _signal_group(process, signal.SIGTERM, _END_GRACE)
        if guarded:  # it is on its way through the command's whole tree: killed, it could not finish
            await _signal_group(process, signal.SIGTERM, _GUARD_GRACE)
        await _signal_group(process, signal.SIGKILL, _DEATH_GRACE)
    await process.wait()


async def _signal_group(process: asyncio.subprocess.Process, sign: signal.Signals, grace: float) -> None:
    """Send it and wait a while for the group to be gone. ProcessLookupError once nobody is left."""
    os.killpg(process.pid, sign)
    with suppress(TimeoutError):
        async with asyncio.timeout(grace):
            await process.wait()
            await _until_empty(process.pid)


async def _until_empty(group: int) -> None:
    """The shell is gone, but what it started may still be tidying up: there is no event for that, only asking."""
    while True:
        os.killpg(group, 0)
        await asyncio.sleep(_ASK_EVERY)


async def _finish(reading: asyncio.Task[None]) -> None:
    """Take what is still in the pipe; a process that left the group may hold it open, so not for ever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_GRACE):
            await reading
