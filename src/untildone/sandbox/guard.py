"""Stands between the loop and a program, so that nothing of the program outlives the loop.

Run as `python3 -I -S guard.py PARENT_PID -- program arguments...`; stdlib only, ready in milliseconds.

- The parent dies, by whatever means: the program gets SIGTERM, two seconds later SIGKILL.
- The program ends: every descendant is killed, also those that left its session or its environment behind,
  because they are reparented to this process (it is a subreaper).
- SIGINT goes to the program alone. SIGTERM too, with SIGKILL after the grace; a second one kills at once.
- The program's exit status becomes ours; a signal that killed it kills us too.

Without Linux' prctl and /proc (macOS) it degrades: signals are forwarded and the program's process group is
killed at its end, but descendants in a group of their own survive, and a busy program survives the loop.
"""

import contextlib
import os
import select
import signal
import sys
import time

GRACE = 2.0
CLEANUP = 5.0
"""Seconds after which a tree that forks faster than it can be killed is given up."""
NOT_FOUND = 127
NOT_EXECUTABLE = 126
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # here, because it is half of the start-up time

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main(arguments: list[str]) -> int:
    """Run the program and clean up after it; returns the exit status to leave with, negative for a signal."""
    program = arguments[2:]
    if not program or arguments[1] != "--" or not arguments[0].isdigit():
        sys.stderr.write("usage: guard.py PARENT_PID -- program arguments...\n")
        return 2
    wakeup = _listen()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(arguments[0]):
        return -signal.SIGTERM  # it died before we could ask to be told
    with contextlib.suppress(PermissionError):  # already leading a session
        os.setsid()
    child = os.fork()
    if child == 0:
        _become(program)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)  # the pipes belong to the program alone: its end of them is their end
    os.dup2(null, 1)
    status = _watch(child, wakeup)
    _end_descendants(child)
    return os.waitstatus_to_exitcode(status)


def _listen() -> int:
    """Turn the signals into bytes on a pipe, so that none is lost between two looks."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reader


def _become(program: list[str]) -> None:
    """In the child: be the program, and die with the guard even if that is killed."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (
            signal.SIGCHLD,
            signal.SIGTERM,
            signal.SIGINT,
            signal.SIGHUP,
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.execvp(program[0], program)  # noqa: S606 - running it is the purpose; no shell is involved
    except OSError as trouble:
        sys.stderr.write(f"cannot start {program[0]}: {trouble.strerror}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND if isinstance(trouble, FileNotFoundError) else NOT_EXECUTABLE)


def _watch(child: int, wakeup: int) -> int:
    """Forward signals and reap until the program is gone; returns its wait status."""
    kill_at: float | None = None
    while (status := _reap(child)) is None:
        timeout = None if kill_at is None else max(0.0, kill_at - time.monotonic())
        ready, _, _ = select.select([wakeup], [], [], timeout)
        numbers = os.read(wakeup, 512) if ready else b""
        if signal.SIGINT in numbers:
            _kill(child, signal.SIGINT)
        for number in numbers:
            if number not in (signal.SIGTERM, signal.SIGHUP):
                continue
            if kill_at is None:
                kill_at = time.monotonic() + GRACE
                _kill(child, signal.SIGTERM)
            else:
                kill_at = time.monotonic()
        if kill_at is not None and time.monotonic() >= kill_at:
            _kill(child, signal.SIGKILL)
            kill_at = time.monotonic() + GRACE
    return status


def _reap(child: int) -> int | None:
    """Collect every dead child and adopted orphan; the program's wait status if it was among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = status
    return found


def _end_descendants(group: int) -> None:
    """Kill what the program left behind until nothing is left."""
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)
    give_up = time.monotonic() + CLEANUP
    while time.monotonic() < give_up:
        _reap(0)
        left = descendants(os.getpid())
        if not left:
            return
        for pid in left:
            _kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def descendants(root: int) -> list[int]:
    """Every living process below `root`, by /proc; empty where there is none."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - pathlib would double the start-up time
    except OSError:
        return []
    for name in names:
        if name.isdigit() and (parent := parent_of(int(name))) is not None:
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def parent_of(pid: int) -> int | None:
    """The parent's pid, by /proc; None when the process is gone."""
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else None


def is_zombie(pid: int) -> bool:
    """Is it dead and only not yet waited for, or gone?"""
    return _stat(pid)[:1] in ([b"Z"], [b"X"], [])


def _stat(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib would double the start-up time
            return file.read().rpartition(b")")[2].split()  # the name before it may hold spaces and brackets
    except OSError:
        return []


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _leave(code: int) -> None:
    """Exit with the program's status: killed by a signal if it was."""
    if code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core dump, the program's own, is enough
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    _leave(main(sys.argv[1:]))
