"""What the agent did, for eyes and for the ledger: the `agent.*` family of events."""

from dataclasses import field
from typing import Any, ClassVar, Literal

from untildone.core.dataclass import dataclass
from untildone.core.diffs import ChangedFile
from untildone.core.events import Event, Kind, Source
from untildone.core.outcome import Usage

TOOL_RESULT_CAP = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent(Event):
    """Something that happened inside the agent."""

    KIND: ClassVar[Kind] = "trace"
    SOURCE: ClassVar[Source] = "agent"


# --- control: the ledger ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession(AgentEvent):
    """The conversation of this iteration has an id: after a crash its transcript can be read."""

    TYPE: ClassVar[str] = "agent.session"
    KIND: ClassVar[Kind] = "control"
    iteration_num: int
    session_id: str
    transcript: str | None = None
    """Where Claude keeps the transcript, if known."""
    model: str | None = None
    version: str | None = None
    lane: str | None = None
    """`apiKeySource`: which purse is being spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReplyStarted(AgentEvent):
    """A reply began: its input is already being billed."""

    TYPE: ClassVar[str] = "agent.reply_started"
    KIND: ClassVar[Kind] = "control"
    iteration_num: int
    message_id: str
    model: str
    usage: Usage
    cost_usd: float | None = None
    """What it costs so far by the price list; None: no price known."""
    estimated_usd: float = 0.0
    """What it costs so far at the dearest known price, if the model has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReply(AgentEvent):
    """A reply was served in full. Recorded before anything is done with it."""

    TYPE: ClassVar[str] = "agent.reply"
    KIND: ClassVar[Kind] = "control"
    iteration_num: int
    message_id: str
    model: str
    usage: Usage
    cost_usd: float | None = None
    estimated_usd: float = 0.0
    """What it costs at the dearest known price, if the model has none."""
    by_wire: bool = False
    """Only the door of the sandbox saw it pass: Claude Code did not tell of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBooksDiffer(AgentEvent):
    """What Claude Code says an iteration cost is not what passed the door of its sandbox; the larger sum is booked."""

    TYPE: ClassVar[str] = "agent.books_differ"
    KIND: ClassVar[Kind] = "control"
    iteration_num: int
    told_usd: float
    """By Claude Code."""
    passed_usd: float
    """By the replies that passed in full."""
    replies: int = 0
    """Those among them that Claude Code did not tell of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPriceUnknown(AgentEvent):
    """The price of this model is not known: its tokens are counted at the dearest known price."""

    TYPE: ClassVar[str] = "agent.price_unknown"
    KIND: ClassVar[Kind] = "control"
    iteration_num: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHostRefused(AgentEvent):
    """From its sandbox the agent tried to reach a host that is not allowed: told once for each host."""

    TYPE: ClassVar[str] = "agent.host_refused"
    KIND: ClassVar[Kind] = "control"
    host: str
    """As `--allow-host` takes it."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBoundExceeded(AgentEvent):
    """What works in the sandbox used more than it may, and something of it was ended."""

    TYPE: ClassVar[str] = "agent.bound_exceeded"
    KIND: ClassVar[Kind] = "control"
    what: str
    """`memory`, `pids` or `disk_reserve`: the setting that says how much."""
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWoken(AgentEvent):
    """The result of a background task started another turn of the agent, and that turn is over."""

    TYPE: ClassVar[str] = "agent.woken"
    KIND: ClassVar[Kind] = "control"
    iteration_num: int
    tasks_started: int = 0
    """Background tasks that it started in that turn: each will wake it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWindow:
    """One window of a subscription's usage limit."""

    name: str
    utilization: float
    """From 0 to 1."""
    resets_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQuota(AgentEvent):
    """How much of the subscription's windows is used, as Claude last said."""

    TYPE: ClassVar[str] = "agent.quota"
    KIND: ClassVar[Kind] = "control"
    iteration_num: int
    windows: tuple[QuotaWindow, ...]


# --- trace -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStarted(AgentEvent):
    """The agent's process is up."""

    TYPE: ClassVar[str] = "agent.started"
    iteration_num: int
    pid: int | None = None
    warm: bool = False
    """The process was already there from the iteration before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHeartbeat(AgentEvent):
    """A sign of life for clients that only read."""

    TYPE: ClassVar[str] = "agent.heartbeat"
    SOURCE: ClassVar[Source] = "worker"
    iteration_num: int
    status: str = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMessage(AgentEvent):
    """Text the agent wrote."""

    TYPE: ClassVar[str] = "agent.assistant_message"
    iteration_num: int
    text: str
    subagent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentThinking(AgentEvent):
    """The agent thought; only the length is kept."""

    TYPE: ClassVar[str] = "agent.thinking"
    iteration_num: int
    chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToolUse(AgentEvent):
    """The agent called a tool."""

    TYPE: ClassVar[str] = "agent.tool_use"
    iteration_num: int
    tool: str
    tool_use_id: str
    detail: str = ""
    """One line a person understands: the command, the path, the pattern."""
    subagent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToolResult(AgentEvent):
    """What a tool answered, cut at TOOL_RESULT_CAP characters."""

    TYPE: ClassVar[str] = "agent.tool_result"
    iteration_num: int
    tool_use_id: str
    is_error: bool = False
    text: str = ""
    full_length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFileEdited(AgentEvent):
    """A tool of the agent's wrote to a file."""

    TYPE: ClassVar[str] = "agent.file_edited"
    iteration_num: int
    tool_use_id: str
    tool: str
    file_path: str
    """As the agent wrote it."""
    change_type: Literal["created", "modified"] = "modified"
    lines_added: int = 0
    lines_removed: int = 0
    diff_preview: str = ""
    """The first 100 lines of the unified diff, at most 5000 characters."""
    full_diff: str | None = None
    """All of it, up to 50000 characters."""
    full_diff_available: bool = True
    full_diff_size: int = 0
    """Characters of the whole diff."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationFilesChanged(Event):
    """All that an iteration changed, once it is committed or saved."""

    TYPE: ClassVar[str] = "iteration.files_changed"
    KIND: ClassVar[Kind] = "trace"
    iteration_num: int
    files: tuple[ChangedFile, ...] = ()
    """The first 200 of them."""
    files_changed: int = 0
    lines_added: int = 0
    lines_removed: int = 0
    diff_preview: str = ""
    full_diff: str | None = None
    full_diff_available: bool = True
    full_diff_size: int = 0
    """Characters of the whole diff; of a very large one, at least so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSystem(AgentEvent):
    """A system line worth seeing: api_retry, compaction, permission_denied, model_fallback, rate limits."""

    TYPE: ClassVar[str] = "agent.system_message"
    iteration_num: int
    subtype: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStreamError(AgentEvent):
    """A line of the stream could not be read; it was skipped."""

    TYPE: ClassVar[str] = "agent.stream_error"
    iteration_num: int
    error: str
