"""`--detach` and `attach`: a run in the background that outlives its terminal, and a look at it from anywhere."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click

from untildone import config
from untildone.cli.chaining import drive_chain
from untildone.cli.driving import Job, Output, foreground, opened
from untildone.cli.guarding import operator_only
from untildone.cli.logfiles import bounded, make_way
from untildone.cli.streams import put, say
from untildone.core import codec
from untildone.core.dataclass import dataclass
from untildone.core.policy import Policy, RunSpec
from untildone.errors import StoreError, UsageError
from untildone.store.leftovers import RUN_LOGS

READY = b"ready"
OWN_LINE = "untildone: "
TAIL = 1 << 16
PATIENCE = 5.0
"""Seconds a child that is told to end has for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """A job on its way to the process that will drive it."""

    run_id: str
    begin: tuple[RunSpec, Policy] | None
    before: tuple[tuple[str, int, str, bytes], ...]
    """Events: type, version, kind and payload."""
    greeting: str
    store: str
    verbose: bool


def hand_over(job: Job, store: Path, output: Output) -> int:
    """Start a process that drives the job without us; return once the run is in the log, or say why it is not."""
    if output.format is not None:
        raise UsageError("--format shows how a run ended, and --detach does not wait for that: give one of them")
    log_file = _log_file(store, job.run_id)
    make_way(log_file)
    fresh = not log_file.exists() or log_file.stat().st_size == 0
    told_before = 0 if fresh else log_file.stat().st_size
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = _spawn(theirs, log_file)
        theirs.close()
        try:
            begun = _hand(ours, _packed(job, store, output))
            code = 0 if begun else process.wait()
        except BaseException:
            _end(process)
            raise
    if not begun:
        return _refused(code, log_file, told_before, remove=fresh)
    process.returncode = 0  # it is on its own now: Python must not warn that it still runs
    _announce(job, process.pid, log_file, store, output)
    return 0


@click.command(hidden=True)
@operator_only
def detached() -> int:
    """Drive the job that comes in on standard input. For `--detach`, not for people."""
    try:
        line = socket.socket(fileno=os.dup(0))
    except OSError as none:
        raise UsageError("this is not for people: give --detach to `untildone run` or `untildone resume`") from none
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 -- no file of anybody's
        os.dup2(nothing.fileno(), 0)
    # Nobody's terminal is ours, so no hangup is meant for us.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with line:
        handed = codec.decode_value(_read_all(line), Handed)
        return foreground(_drive(handed, lambda: _tell_ready(line)))


async def _drive(handed: Handed, taken_up: Callable[[], None]) -> int:
    before = tuple(codec.decode(*event) for event in handed.before)
    job = Job(run_id=handed.run_id, begin=handed.begin, before=before, greeting=handed.greeting)
    store = Path(handed.store)
    async with bounded(_log_file(store, job.run_id)), opened(store) as log:
        return await drive_chain(log, job, store, Output(verbose=handed.verbose), taken_up)


def _packed(job: Job, store: Path, output: Output) -> bytes:
    before = tuple(
        (codec.event_type(event), codec.event_version(event), codec.event_kind(event), codec.encode(event))
        for event in job.before
    )
    return codec.encode_value(
        Handed(
            run_id=job.run_id,
            begin=job.begin,
            before=before,
            greeting=job.greeting,
            store=str(store),
            verbose=output.verbose,
        )
    )


def _log_file(store: Path, run_id: str) -> Path:
    try:
        folder = store / RUN_LOGS
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as refused:
        raise StoreError(f"{store / 'runs'} cannot be made: {refused.strerror}") from refused
    return folder / f"{run_id}.log"


def _spawn(line: socket.socket, log_file: Path) -> subprocess.Popen[bytes]:
    try:
        log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as refused:
        raise StoreError(f"{log_file} cannot be written: {refused.strerror}") from refused
    try:
        # -P: a folder called untildone in the project is not us.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "untildone", "detached"],
            stdin=line.fileno(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)


def _hand(line: socket.socket, job: bytes) -> bool:
    """Give the job away and wait: True once it was taken up, False if that will not happen."""
    with suppress(BrokenPipeError, ConnectionResetError):
        line.sendall(job)
        line.shutdown(socket.SHUT_WR)
    try:
        return line.recv(len(READY)) == READY
    except ConnectionResetError:
        return False


def _read_all(line: socket.socket) -> bytes:
    chunks = []
    while chunk := line.recv(TAIL):
        chunks.append(chunk)
    return b"".join(chunks)


def _tell_ready(line: socket.socket) -> None:
    """Whoever started us may be gone: that changes nothing. The second run of a chain has nobody to tell."""
    with suppress(OSError):
        line.sendall(READY)
        line.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _refused(code: int, log_file: Path, told_before: int, *, remove: bool) -> int:
    """Say what the child said. Its log is kept only if that explains nothing."""
    with log_file.open("rb") as file:
        file.seek(told_before)
        told = file.read(TAIL).decode("utf-8", "replace").splitlines()
    lines = [line.removeprefix(OWN_LINE) for line in told if line.startswith(OWN_LINE)]
    for line in lines:
        say(line)
    if not lines:
        say(f"the run could not be started in the background: see {log_file}")
    elif remove:
        log_file.unlink(missing_ok=True)
    return code if code > 0 else 1


def _announce(job: Job, pid: int, log_file: Path, store: Path, output: Output) -> None:
    if output.json:
        put(json.dumps({"run_id": job.run_id, "pid": pid, "log": str(log_file)}))
        return
    if output.quiet:
        put(job.run_id)
        return
    if job.greeting:
        say(job.greeting)
    place = "" if store == config.state_dir(os.environ) else f" --store {shlex.quote(str(store))}"
    put(
        f"Run {job.run_id} works in the background (pid {pid}).\n"
        f"  watch it  untildone attach {job.run_id}{place}\n"
        f"  stop it   untildone stop {job.run_id}{place}\n"
        f"  its log   {log_file}"
    )
