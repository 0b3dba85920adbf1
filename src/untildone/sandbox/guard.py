"""Stands between the loop and a program, so that nothing of the program outlives the loop.

Run as `python3 -I -S guard.py [OPTIONS] PARENT_PID [PIPE MEMORY PATH] -- program arguments...`. It stands before every
check, hook and commit, so it loads nothing that takes long: `signal` and `contextlib` bring a dozen modules along.

It is two processes, one above the other: the keeper watches the loop, the guard below it watches the program. If
either is killed (out of memory, `kill -9 $PPID`), the other ends everything: both are subreapers, so that what left
its session or its environment behind is reparented to the one that lives.

- The parent dies, by whatever means: the program gets SIGINT, on which Claude Code still says what it has spent,
  then SIGTERM, then SIGKILL, all within two seconds. With PIPE (the read end of the program's output) and MEMORY (the
  end of what the parent had read of it; PIPE again: none), what the program said last goes to PATH-<our pid>.jsonl
  (the keeper's), and a reply under way is given a moment to come to its end before the first signal. As long as the
  parent lives neither is read.
- The parent is stopped (SIGSTOP, Ctrl+Z): the limits hold without it. With MEMORY, in which the parent writes until
  when the program may work, the keeper ends the program at that moment, or when the parent is stopped for too long.
- The program ends: every descendant is killed.
- SIGINT goes to the program alone. SIGTERM too, with SIGKILL after the grace; a second one kills at once.
- `--group`: signals go to the program's whole process group, which has the same grace to tidy up. `--group-only`:
  besides, what left that group on purpose is left alone; then there is no keeper.
- `--apart`: the program does not get the keys that the kernel keeps for the session we were started in.
- The program's exit status becomes ours; a signal that killed it kills us too.

Without Linux' prctl and /proc (macOS) it degrades: signals are forwarded and the program's process group is
killed at its end, but descendants in a group of their own survive, and a busy program survives the loop.
"""

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

PARENT_DIED = signal.SIGUSR1
"""Sent by the kernel, once for every thread of the parent that happens to outlive another: not to be told by count."""
GRACE = 2.0
REPLY_GRACE = 0.8
"""Seconds an orphaned program may go on listening to a reply that is being paid for."""
ORPHANED = ((signal.SIGINT, 0.7), (signal.SIGTERM, 0.5), (signal.SIGKILL, GRACE))
ASKED = ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE))
DESERTED = ((signal.SIGKILL, GRACE),)
"""Signals the program gets, and the seconds until the next one; the last is repeated."""
# In valid JSON these bytes can only be structure: inside a string the quotes would be escaped.
REPLY_BEGINS = (
    b'\n{"type":"system","subtype":"status","status":"requesting"',
    b'\n{"type":"stream_event","event":{"type":"message_start"',
)
REPLY_ENDS = (b'\n{"type":"stream_event","event":{"type":"message_stop"', b'"type":"result"')
WORDS_KEPT = 8 << 20
"""Bytes of last words that are kept: the end of them."""
POSITION = 8
"""The memory begins with this many bytes that count all bytes ever remembered."""
ENDS_AT = slice(8, 16)
"""Until when the program may work, in nanoseconds of the monotonic clock. 0: it rests, and nothing is enforced."""
ENFORCED = 16
"""A byte that the keeper sets when it ends the program in the loop's place."""
HEADER = 24
"""What follows after this many bytes is a ring of the bytes that were remembered."""
LOOK_EVERY = 1.0
STOPPED_FOR = 15.0
"""Seconds a working program may go on while the loop is stopped: somebody may only have pressed Ctrl+Z."""
LATE = 30.0
"""Seconds after that moment in which a loop that runs ends the program itself."""
CLEANUP = 5.0
"""Seconds after which a tree that forks faster than it can be killed is given up."""
NOT_FOUND = 127
NOT_EXECUTABLE = 126
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KEYCTL = {"x86_64": 250, "aarch64": 219}
KEYCTL_JOIN_SESSION_KEYRING = 1


class _ignored:  # noqa: N801 - used like a function
    """What `contextlib.suppress` does."""

    def __init__(self, *kinds: type[OSError]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


def _prctl(option: int, value: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # here, because it is half of the start-up time

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _leave_keyring() -> None:
    number = KEYCTL.get(os.uname().machine)
    if number is not None and sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).syscall(number, KEYCTL_JOIN_SESSION_KEYRING, None)


def main(arguments: list[str]) -> int:
    """Run the program and clean up after it; returns the exit status to leave with, negative for a signal."""
    options, arguments = _options(arguments)
    separator = arguments.index("--") if "--" in arguments else 0
    program = arguments[separator + 1 :]
    if separator not in (1, 4) or not program or not all(word.isdigit() for word in arguments[: separator - 1 or 1]):
        sys.stderr.write("usage: guard.py [OPTIONS] PARENT_PID [PIPE MEMORY PATH] -- program arguments...\n")
        return 2
    parent, words = int(arguments[0]), LastWords(*arguments[1:separator])
    is_reaper = "--group-only" not in options
    if "--apart" in options:
        _leave_keyring()
    wakeup = _listen()
    if not _serve(parent, is_reaper=is_reaper):
        return -signal.SIGTERM  # it died before we could ask to be told
    with _ignored(PermissionError):  # already leading a session
        os.setsid()
    above = parent
    if is_reaper and sys.platform.startswith("linux"):
        above = os.getpid()
        if guard := os.fork():
            words.close_pipe()
            return _keep(guard, parent, wakeup, words.memory)
        os.setpgid(0, 0)  # what is sent to the keeper's group comes once, from the keeper
        wakeup = _listen()
        if not _serve(above, is_reaper=True):
            return -signal.SIGTERM
    return _guard(program, (above, parent), wakeup, words, to_group=bool(options - {"--apart"}))


def _serve(parent: int, *, is_reaper: bool) -> bool:
    """Ask to be told of the parent's death, and to inherit orphans; False: it is dead already."""
    if is_reaper:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _prctl(PR_SET_PDEATHSIG, PARENT_DIED)
    return os.getppid() == parent


def _guard(program: list[str], above: tuple[int, int], wakeup: int, words: "LastWords", *, to_group: bool) -> int:
    """Run the program; returns its exit status. `above`: our parent and the loop, which may be the same."""
    child = os.fork()
    if child == 0:
        _become(program)
    with _ignored(OSError):  # it does so itself; whoever comes first
        os.setpgid(child, child)
    _let_go_of_pipes()
    target = -child if to_group else child
    status, due = _watch(child, target, wakeup, words, above)
    if target < 0 and due is not None:
        _let_tidy_up(target, wakeup, due)
    with _ignored(OSError):
        os.killpg(child, signal.SIGKILL)
    _end_descendants()
    if words.begun or is_zombie(above[1]):
        words.save()
    return os.waitstatus_to_exitcode(status)


def _keep(guard: int, loop: int, wakeup: int, memory: int) -> int:
    """Pass signals on to the guard, hold the limits while the loop is stopped, and clean up after a killed guard."""
    _let_go_of_pipes()
    watch = LoopWatch(loop, memory)
    due: list[tuple[float, int]] = []
    while (status := reap(guard)) is None:
        ready, _, _ = select.select([wakeup], [], [], LOOK_EVERY if memory >= 0 else None)
        for number in os.read(wakeup, 512) if ready else b"":
            if number != signal.SIGCHLD:
                _kill(guard, number)
        now = time.monotonic()
        if not due and watch.must_enforce(now):
            # As the loop would: first so that Claude Code says what it has spent.
            due = [(now, signal.SIGINT), (now + 1, signal.SIGTERM), (now + 1 + GRACE, signal.SIGTERM)]
        while due and now >= due[0][0]:
            _kill(guard, due.pop(0)[1])
    _end_descendants()
    return os.waitstatus_to_exitcode(status)


class LoopWatch:
    """Looks whether the loop can still end the program itself."""

    def __init__(self, loop: int, memory: int) -> None:
        self._loop = loop
        self._memory = memory
        self._stopped_at: float | None = None
        self._enforced = False

    def must_enforce(self, now: float) -> bool:
        """Whether the program is to be ended in the loop's place; True once."""
        if self._memory < 0 or self._enforced:
            return False
        is_stopped = _stat(self._loop)[:1] == [b"T"]
        if not is_stopped:
            self._stopped_at = None
        elif self._stopped_at is None:
            self._stopped_at = now
        ends_at = int.from_bytes(os.pread(self._memory, 8, ENDS_AT.start), "little")
        late = now - ends_at / 1e9
        stopped_for = 0.0 if self._stopped_at is None else now - self._stopped_at
        self._enforced = ends_at > 0 and (late >= (0 if is_stopped else LATE) or stopped_for >= STOPPED_FOR)
        if self._enforced:
            os.pwrite(self._memory, b"\x01", ENFORCED)
        return self._enforced


def _let_go_of_pipes() -> None:
    """The pipes belong to the program alone: its end of them is their end."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)


class LastWords:
    """What the program said that the parent may not have understood before it died."""

    def __init__(self, pipe: str = "", memory: str = "", path: str = "") -> None:
        """Without a pipe nothing is kept."""
        self._pipe = int(pipe) if pipe else -1
        self.memory = int(memory) if memory != pipe else -1
        self._path = path
        self._kept = bytearray()
        self.begun = False
        self.sources: list[int] = []
        """What to read from while the parent is dead and more may come."""
        for file in (self._pipe, self.memory):
            if file >= 0:
                # The program must not be a reader of its own output.
                os.set_inheritable(file, False)  # noqa: FBT003 - it takes no keywords

    def close_pipe(self) -> None:
        """In the keeper, which does not listen."""
        if self._pipe >= 0:
            os.close(self._pipe)

    def begin(self) -> None:
        """The parent is dead: from here on we listen in its place."""
        self.begun = True
        if self._pipe >= 0 and not self.sources:
            self._kept += _remembered(self.memory)
            os.set_blocking(self._pipe, False)
            self.sources = [self._pipe]
            self.hear()

    def awaits_reply(self) -> bool:
        """Whether the last request the program made is still being answered."""
        return max(map(self._kept.rfind, REPLY_BEGINS)) > max(map(self._kept.rfind, REPLY_ENDS))

    def hear(self) -> None:
        """Take in all there is at the moment."""
        while self.sources:
            try:
                chunk = os.read(self._pipe, 1 << 18)
            except OSError:  # nothing at the moment
                return
            self._kept += chunk
            if not chunk:
                self.sources, self._pipe = [], -1
            if len(self._kept) > 2 * WORDS_KEPT:
                self._shorten()

    def save(self) -> None:
        """Write down what was heard, whole lines of it. What cannot be written is lost."""
        self.begin()
        self.hear()
        self._shorten()
        if not self._kept:
            return
        with _ignored(OSError):
            whole = f"{self._path}-{os.getsid(0)}.jsonl"
            part = f"{whole}.part"
            # No pathlib: it would double the start-up time.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with open(os.open(part, flags, 0o600), "wb") as file:  # noqa: PTH123 - as above
                file.write(self._kept)
            os.rename(part, whole)  # noqa: PTH104 - as above

    def _shorten(self) -> None:
        if len(self._kept) > WORDS_KEPT:
            del self._kept[: len(self._kept) - WORDS_KEPT]
            del self._kept[: self._kept.find(b"\n") + 1]


def _remembered(memory: int) -> bytes:
    """The end of what the parent had read, in order, from its first whole line on."""
    if memory < 0:
        return b""
    size = os.fstat(memory).st_size - HEADER
    count = int.from_bytes(os.pread(memory, POSITION, 0), "little")
    ring = os.pread(memory, size, HEADER)
    if count <= size:
        return ring[:count]
    start = count % size
    return (ring[start:] + ring[:start]).partition(b"\n")[2]


def _listen() -> int:
    """Turn the signals into bytes on a pipe, so that none is lost between two looks."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, PARENT_DIED):
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
            PARENT_DIED,
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


def _watch(child: int, target: int, wakeup: int, words: LastWords, above: tuple[int, int]) -> tuple[int, float | None]:
    """Forward signals to `target`, reap, and listen in the loop's place, until the program is gone.

    Returns its wait status and, if somebody asked it to end, until when the grace lasts.
    """
    steps: tuple[tuple[int, float], ...] = ()
    due: float | None = None
    while (status := reap(child)) is None:
        timeout = None if due is None else max(0.0, due - time.monotonic())
        ready, _, _ = select.select([wakeup, *words.sources], [], [], timeout)
        numbers = os.read(wakeup, 512) if wakeup in ready else b""
        words.hear()
        if signal.SIGINT in numbers:
            _kill(target, signal.SIGINT)
        for _ in range(numbers.count(signal.SIGTERM) + numbers.count(signal.SIGHUP)):
            steps = steps[-1:] or ASKED  # asked again: the last step, now
            due = time.monotonic()
        if PARENT_DIED in numbers and not _has_loop_died(*above):
            steps, due = DESERTED, time.monotonic()
        elif PARENT_DIED in numbers:
            words.begin()
            if not steps:
                steps, due = ORPHANED, time.monotonic() + REPLY_GRACE
        if due is not None and (time.monotonic() >= due or (steps is ORPHANED and not words.awaits_reply())):
            number, patience = steps[0]
            _kill(target, number)
            steps = steps[1:] or steps
            due = time.monotonic() + patience
    return status, due


def _has_loop_died(parent: int, loop: int) -> bool:
    """Whether it was the loop that died, or only the keeper. A keeper that lives passes on what it was told."""
    return parent == loop or os.getppid() == parent or is_zombie(loop)


def _let_tidy_up(group: int, wakeup: int, due: float) -> None:
    """The program is gone, what it started was asked to end as well: wait for it, unless asked again."""
    while time.monotonic() < due:
        reap(0)
        try:
            os.kill(group, 0)
        except OSError:  # nobody is left in it
            return
        ready, _, _ = select.select([wakeup], [], [], 0.01)
        if ready and signal.SIGTERM in os.read(wakeup, 512):
            return


def _options(arguments: list[str]) -> tuple[set[str], list[str]]:
    """Take the leading options off the arguments."""
    options = set()
    while arguments and arguments[0].startswith("--") and arguments[0] != "--":
        options.add(arguments[0])
        arguments = arguments[1:]
    return options, arguments


def reap(child: int) -> int | None:
    """Collect every dead child and adopted orphan; the program's wait status if it was among them."""
    found = None
    with _ignored(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = status
    return found


def _end_descendants() -> None:
    """Kill what the program left behind until nothing is left."""
    give_up = time.monotonic() + CLEANUP
    while time.monotonic() < give_up:
        reap(0)
        # To go through all processes of the machine takes longer than all the rest; most programs leave nothing.
        left = descendants(os.getpid()) if _has_children() else []
        if not left:
            return
        for pid in left:
            _kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


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
    with _ignored(ProcessLookupError, PermissionError):
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


def run(arguments: list[str]) -> None:
    """Do it, and exit as the program did."""
    _leave(main(arguments))


if __name__ == "__main__":
    run(sys.argv[1:])
