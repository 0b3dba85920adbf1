"""The checks of a loop: commands of the user's that have to succeed before the agent is believed."""

import os
import select
import signal
import subprocess
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OUTPUT_CAP = 16 << 10
DEFAULT_SECONDS = 300.0
_CHUNK = 1 << 16
_LOOK_EVERY = 0.05
_GRACE = 0.5
"""Seconds between asking a command to end and ending it."""
_DRAIN = 0.2
_SHELL_SIGNAL = 128
"""A shell says with a higher number that a signal ended its command."""
_OURS = ("CLAUDE", "UNTILDONE_", "GIT_")
"""What tells a program that it runs inside Claude Code, inside a loop, or in another repository."""
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Checked:
    """How a command ended, and the end of what it said."""

    __slots__ = ("command", "expired", "output", "passed", "seconds")

    def __init__(self, command: str, *, passed: bool, expired: bool, seconds: float, output: str) -> None:
        self.command = command
        self.passed = passed
        self.expired = expired
        self.seconds = seconds
        self.output = output


class _Asked(BaseException):
    """Claude Code wants this hook to end."""


def run_checks(commands: "Sequence[str]", *, cwd: str, env: "Mapping[str, str]", limit: float) -> "list[Checked]":
    """Run them in turn until one fails, all within `limit` seconds; a command the time is not enough for has failed."""
    until = time.monotonic() + limit
    done: list[Checked] = []
    kept = {name: value for name, value in env.items() if not name.startswith(_OURS)}
    # Only noted when it comes: raised at any moment, it could hit between a start and the care for what was started.
    asked: list[int] = []
    before = {number: signal.signal(number, lambda sign, _: asked.append(sign)) for number in _ENDING}
    try:
        for command in commands:
            done.append(_run(command, cwd, kept, until, asked))
            if not done[-1].passed:
                break
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return done


def _run(command: str, cwd: str, env: "Mapping[str, str]", until: float, asked: "list[int]") -> Checked:
    began = time.monotonic()
    process = subprocess.Popen(  # noqa: S603 the user's own command
        ["/bin/sh", "-c", command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    tail = bytearray()
    try:
        expired = not _follow(process, process.stdout.fileno(), tail, until, asked)
    finally:
        _end(process)
        process.stdout.close()
    _refuse_what_was_ended(0 if expired else process.returncode, asked)
    output = tail.decode("utf-8", "replace")
    if expired:
        output += f"\n(not finished within its time: ended after {time.monotonic() - began:.0f} s)"
    passed = not expired and process.returncode == 0
    return Checked(command, passed=passed, expired=expired, seconds=time.monotonic() - began, output=output)


def _follow(process: "subprocess.Popen[bytes]", pipe: int, tail: bytearray, until: float, asked: "list[int]") -> bool:
    """Keep the end of what it says until it is over; whether it was over in time."""
    os.set_blocking(pipe, False)
    is_open = True
    while process.poll() is None:
        if asked:
            raise _Asked
        left = until - time.monotonic()
        if left <= 0:
            return False
        if is_open:
            is_open = _read(pipe, tail, min(left, _LOOK_EVERY))
        else:
            time.sleep(min(left, _LOOK_EVERY))
    # What it left running may hold the pipe open: only what is there by now belongs to it.
    stop = time.monotonic() + _DRAIN
    while is_open and time.monotonic() < stop and select.select([pipe], [], [], 0)[0]:
        is_open = _read(pipe, tail, 0)
    return True


def _refuse_what_was_ended(returncode: int, asked: "list[int]") -> None:
    """Claude Code ends a hook with all that it started, one by one: a check that fell first has not failed."""
    by_signal = returncode < 0 or returncode > _SHELL_SIGNAL
    stop = time.monotonic() + (_GRACE if by_signal else 0)
    while not asked and time.monotonic() < stop:
        time.sleep(0.01)
    if asked:
        raise _Asked


def _read(pipe: int, tail: bytearray, patience: float) -> bool:
    """Take what is there; whether more may come."""
    if not select.select([pipe], [], [], patience)[0]:
        return True
    chunk = os.read(pipe, _CHUNK)
    tail += chunk
    del tail[: max(0, len(tail) - OUTPUT_CAP)]
    return bool(chunk)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Nothing of it stays: the whole group is ended, kindly first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        stop = time.monotonic() + _GRACE
        while time.monotonic() < stop and _lives(process):
            time.sleep(0.01)
    process.wait()


def _lives(process: "subprocess.Popen[bytes]") -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
