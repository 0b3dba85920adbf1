"""What every event is: a frozen, versioned fact, and how it stands in the log."""

from typing import ClassVar, Literal

from untildone.core.dataclass import dataclass

Kind = Literal["control", "trace"]
Source = Literal["agent", "worker", "system"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact about a run."""

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    KIND: ClassVar[Kind] = "control"
    SOURCE: ClassVar[Source] = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An event as it stands in the log."""

    seq: int
    at: float
    """Epoch seconds, by the writer's clock."""
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Event):
    """An event of a type this version does not know: kept as it is, ignored by the fold."""

    TYPE: ClassVar[str] = "unknown"
    type: str
    version: int
    kind: Kind
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Event):
    """The flat counters that older consumers expect on the main events."""

    successful_iterations: int = 0
    error_count: int = 0
    """Counted faults in a row."""
    extra_iterations: int = 0
    """Attempts that were not successes."""
    total_cost_usd: float = 0.0
    completion_signal_count: int = 0
    elapsed_seconds: float = 0.0
    last_session_id: str | None = None
    """The newest conversation, which could be continued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Event):
    """What a human asks for: anyone may append these, at any time."""

    SOURCE: ClassVar[Source] = "system"
    by: str
    order: int | None = None
    """The number of the server's order that asked for it; None: it was asked for on this machine."""
