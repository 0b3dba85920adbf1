"""What a run is driven with: time, the agent and the programs it runs, the user's commands, the books."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from untildone.core.dataclass import dataclass
from untildone.core.door import Refused
from untildone.core.events import Event
from untildone.core.liveness import Pulse
from untildone.core.outcome import Order, Outcome
from untildone.core.trace import AgentReply, AgentReplyStarted
from untildone.core.wire_book import WireReply

Tell = Callable[[Event], Awaitable[None]]
"""Records an event of the running iteration. It returns when the event is durable (control) or queued (trace)."""


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> float:
        """Epoch seconds. The clock may be set at any time."""
        ...

    def monotonic(self) -> float:
        """Seconds that pass evenly whatever the clock is set to; only differences mean something.

        Every duration is a difference of these, every moment that people name (a deadline, a reset) is one of `now`.
        Time in which the machine is suspended does not count.
        """
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

    def end_within(self, seconds: float | None) -> None:
        """Have its programs ended after so many seconds, also while the loop is stopped; None: they rest.

        The loop ends them itself and says so anew whenever that moment moves: this holds where it cannot. A loop that
        is stopped for long does not let them work on even if no limit of time is set (infinity).
        """
        ...

    def has_enforced(self) -> bool:
        """Whether a program was ended in this way since they last rested."""
        ...

    def sweep(self, run_id: str) -> int:
        """End what a dead driver of this run left behind; returns how many processes were ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Is told what passes the door of a sandbox, and what was too much in it."""

    asked: Callable[[], Callable[[WireReply], None]]
    """The model is about to be asked; what it returns is told what is known of the answer, before that is passed on."""
    refused: Callable[[Refused], None]
    exceeded: Callable[[str, str], None] = lambda *_: None
    """More was used than may be: the setting that says how much, and what was done about it."""


class Sandbox(Spawner, Protocol):
    """Where an agent works: this machine as it is, bubblewrap, or containers. One suite of tests holds for all.

    What is started in it has the environment it is given, and is gone with all that it started when it has ended, when
    the sandbox is closed, and at the latest when the next driver starts.
    """

    def open(self, watcher: Watcher) -> AbstractAsyncContextManager[None]:
        """Make it ready. Programs can be started until the end of the block; then nothing of it is left.

        NoSandbox where it cannot be had.
        """
        ...

    def words(self, cwd: str) -> tuple[str, ...]:
        """What goes before a command of the loop's own so that it works in a folder as the agent does.

        It needs no door and reaches no network. For use while the sandbox is open.
        """
        ...


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What the model served through the door of a sandbox, as far as it is not forgotten: all of it, and only that."""

    replies: tuple[AgentReply, ...] = ()
    """Served in full. The number of the iteration is for the reader to fill in."""
    begun: tuple[AgentReplyStarted, ...] = ()
    """Whose end did not pass, and will not."""
    under_way: tuple[AgentReplyStarted, ...] = ()
    """Whose end has not passed yet."""
    unseen: int = 0
    """Requests whose client left before anything of the reply was seen: served or not, it cannot be known."""
    unanswered: int = 0
    """Requests without any answer so far."""
    refused: int = 0
    """The status of the last answer, if that was an error."""
    retry_after: float | None = None
    """Seconds that this error asks for."""


class Ledger(Protocol):
    """Finds out what replies cost: from Claude's own transcripts and its last words, and from the door's notes."""

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
        """They are in the log, and so is what had passed the door of the dead driver."""
        ...

    def passed(self) -> Passed | None:
        """What passed the door of the agent's sandbox; None: nothing did, or nothing was watched."""
        ...

    def forget_passed(self) -> None:
        """What `passed` returned last is in the log."""
        ...
