"""The seams: what the engine needs from the world, as small Protocols. Adapters live in the other rooms."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from untildone.core.events import Event, Record
from untildone.core.liveness import Pulse
from untildone.core.notice import Note
from untildone.core.outcome import CheckResult, Order, Outcome

Tell = Callable[[Event], Awaitable[None]]
"""Records an event of the running iteration. It returns when the event is durable (control) or queued (trace)."""


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> float:
        """Epoch seconds."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Agent(Protocol):
    """Executes iterations, one at a time."""

    async def iterate(self, order: Order, tell: Tell) -> Outcome:
        """Run one iteration to its end, telling events as they happen.

        `agent.session`, `agent.reply_started` and `agent.reply` must be told (and awaited) before anything else
        is done with what they describe. Never raises for what the agent did; raises AgentError only when it
        cannot be started at all.
        """
        ...

    async def interrupt(self, *, discard: bool = False) -> None:
        """End the running iteration soon: `iterate` returns with `interrupted=True`. Harmless when idle.

        What the iteration started is ended with it; with `discard`, the process it ran in too.
        """
        ...

    def pulse(self) -> Pulse | None:
        """Signs of life of the running iteration; None while nothing is expected of it (idle, or done talking)."""
        ...

    async def close(self) -> None:
        """End the agent's whole process tree. Bounded in time; may be called at any moment, more than once."""
        ...


class Process(Protocol):
    """A running program with pipes."""

    @property
    def pid(self) -> int: ...

    async def read(self, size: int = 1 << 16) -> bytes:
        """The next bytes of its stdout; b"" at its end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its stdin. Raises BrokenPipeError when it is gone."""
        ...

    async def close_stdin(self) -> None: ...

    async def wait(self) -> int:
        """Its exit status; negative for a signal."""
        ...

    def stderr_tail(self) -> str:
        """The last few KB it wrote to stderr."""
        ...

    def starved(self) -> bool:
        """Whether the system killed something for want of memory since it was started."""
        ...

    def vitals(self) -> Pulse:
        """What its whole tree did so far; fields the system cannot tell are None."""
        ...

    def family(self) -> set[int]:
        """Every living process of its tree, itself included; empty where the system cannot tell."""
        ...

    async def end(self, grace: float = 2.0) -> None:
        """SIGINT, SIGTERM, then kill the whole tree, escapees too."""
        ...


class Spawner(Protocol):
    """Where programs are executed: the host, a sandbox, a container."""

    async def spawn(
        self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], stdin: Literal["pipe", "null"] = "pipe"
    ) -> Process: ...

    def sweep(self, run_id: str) -> int:
        """End what a dead driver of this run left behind; returns how many processes were ended."""
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to drive a run. `token` grows with every driver: an older one is refused."""

    run_id: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One line of the list of runs."""

    run_id: str
    name: str
    folder: str
    created_at: float
    updated_at: float
    status: str
    """running, waiting, paused, suspended, completed: as last recorded by a driver."""
    alive: bool
    """A driver holds the lease right now."""


class EventLog(Protocol):
    """The runs. Append-only; one numbering per run.

    What somebody else wrote into it is never given back; a driver finds it recorded as `continuous.tampered`.
    """

    async def append(self, run_id: str, events: Sequence[Event], *, lease: Lease | None = None) -> list[Record]:
        """Append all or nothing, durably if any is a control event.

        Without a lease only what humans ask for belongs here. With one: LeaseLost if another driver took over.
        """
        ...

    async def read(self, run_id: str, *, after: int = 0, trace: bool = False, limit: int | None = None) -> list[Record]:
        """Records with seq > after, in order; control events only unless `trace`."""
        ...

    def follow(self, run_id: str, *, after: int = 0, trace: bool = False) -> AsyncIterator[Record]:
        """Records with seq > after as they arrive, also from other processes, for ever."""
        ...

    async def acquire(self, run_id: str, *, name: str, folder: str) -> Lease:
        """Become the driver of this run and the only one in this folder. RunBusy if someone living is."""
        ...

    async def release(self, lease: Lease, *, status: str) -> None: ...

    async def runs(self) -> list[RunRow]: ...

    async def save_snapshot(self, lease: Lease, seq: int, state: bytes) -> None:
        """Keep a disposable copy of the folded state up to `seq`; only the newest is kept."""
        ...

    async def load_snapshot(self, run_id: str) -> tuple[int, bytes] | None: ...

    async def rebuild(self, lease: Lease, seq: int, state: bytes) -> None:
        """After StoreSpoilt: go on in a new store that begins with this snapshot. What is left of the old is kept."""
        ...

    async def trim_trace(self, lease: Lease, *, keep_bytes: int, keep_seconds: float) -> int:
        """Remove the oldest trace events beyond these bounds; returns how many. Numbers are never given again."""
        ...

    async def trim_ended(self, *, before: float, most: int) -> int:
        """Remove the trace of runs nobody drives or touched since then, about `most` events; returns how many."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeState:
    """The working tree at a moment."""

    fingerprint: str
    """Changes whenever any file that counts changes, is added or removed, or HEAD moves."""
    head: str | None = None
    branch: str | None = None
    dirty: tuple[str, ...] = ()
    """Paths with uncommitted changes, untracked ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What was done with an iteration's changes."""

    tree: TreeState
    changed: bool
    files_changed: int = 0
    commit: str | None = None
    by: Literal["loop", "agent"] = "loop"
    message: str = ""
    warning: str = ""
    """Why a commit could not be made (a failing hook, no identity); the work is kept as it is."""
    left: tuple[str, ...] = ()
    """Paths that should have been committed and were not: no commit holds their present content."""


class Workspace(Protocol):
    """The folder the agent works in."""

    async def prepare(self) -> list[str]:
        """Make it ready before the first iteration (branch, excludes, snapshot); returns lines to tell the user.

        DirtyWorkspace when the user's own uncommitted work is there and nobody said to keep it.
        """
        ...

    async def observe(self) -> TreeState: ...

    async def settle(self, before: TreeState, *, iteration_num: int, message: str) -> Settled:
        """Compare with `before` and commit what changed, if commits are wanted."""
        ...

    async def snapshot(self, *, iteration_num: int, reason: str) -> tuple[str, str, tuple[str, ...]] | None:
        """Save uncommitted work under a private ref, leaving tree, index and branches alone.

        Returns (ref, commit, files), or None when there is nothing to save.
        """
        ...


class Check(Protocol):
    """One condition the loop verifies by itself."""

    @property
    def name(self) -> str: ...

    async def run(self) -> CheckResult: ...


class Usher(Protocol):
    """Runs the user's own commands around iterations, and reads the user's files."""

    async def call(self, command: str, facts: bytes, *, timeout: float) -> tuple[int | None, str]:
        """Run a shell command with `facts` on stdin; (exit code or None on timeout, tail of its output)."""
        ...

    def read_text(self, path: str, *, cap: int) -> tuple[str, int] | None:
        """(the first `cap` bytes as text, the full size in bytes), or None when there is no such file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWords:
    """What the agent of a killed loop said that the loop may not have written down any more."""

    session: Event | None = None
    """`agent.session` of its newest conversation."""
    replies: tuple[Event, ...] = ()
    """`agent.reply_started` and `agent.reply`, in order; most of them are in the log already."""
    awaits_reply: bool | None = None
    """A request was out and no reply to it had begun; None: it cannot be told."""
    result_usd: float | None = None
    """What the agent says the conversation has cost, if that was its last word."""
    result_session: str | None = None


class Ledger(Protocol):
    """Finds out what replies cost, after a crash: from Claude's own transcripts, and from its last words."""

    def replies(self, session_id: str, cwd: str) -> list[Event]:
        """`agent.reply` events of that session, one per message id."""
        ...

    def unanswered(self, session_id: str, cwd: str, *, only_subagents: bool = False) -> bool:
        """Whether something asked in that session left no answer behind: it may have been served unseen."""
        ...

    def find_session(self, cwd: str, *, since: float, prompt: str) -> str | None:
        """The session that was begun in that folder since then with a prompt that starts so."""
        ...

    def last_words(self, run_id: str, iteration_num: int) -> LastWords:
        """What the agents of dead drivers of this run said last, as events of that iteration."""
        ...

    def forget_last_words(self, run_id: str) -> None:
        """They are in the log."""
        ...


class Notifier(Protocol):
    """A channel on which a human is told what happens."""

    @property
    def name(self) -> str:
        """How it is called in messages: never with a secret in it."""
        ...

    async def send(self, note: Note) -> str:
        """Deliver a note: "" or one line of trouble. Bounded in time, may be cancelled at any moment."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What the machine has left. None: it cannot be told here."""

    disk_free: int | None = None
    """Bytes, on the fullest of the disks the run writes to."""
    disk_where: str = ""
    memory_free: int | None = None
    memory_total: int | None = None
    processes: int | None = None
    """Of this user."""
    process_limit: int | None = None


class Machine(Protocol):
    """The computer the run works on. Both methods may block for a moment: call them in a thread."""

    def look(self) -> MachineFacts: ...

    def reclaimable(self, where: str) -> list[tuple[str, int]]:
        """What on that disk could be removed, and its bytes (at least), largest first."""
        ...
