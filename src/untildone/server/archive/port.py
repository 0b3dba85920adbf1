"""What the server keeps: copies of runs, what people ask of them, parcels, and who may come in.

One class behind each of these protocols, for SQLite and for PostgreSQL. Numbers, times and payloads are as the
machine of the run wrote them: a copy is never renumbered.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Literal, Protocol

import msgspec

from untildone.core.dataclass import dataclass
from untildone.core.event import Kind, Source
from untildone.core.history import IterationRow
from untildone.core.wire import PUBLISHED, Order, OrderKind, Receipt

Origin = Literal["worker", "local", "published"]
"""Who sends a run: a worker with our uplink, this very machine, or a program that speaks the published endpoints."""
Scope = Literal["viewer", "operator", "worker"]

HEARD_WITHIN = 90.0
"""Seconds after which a run that is silent counts as left alone: three signs of life that did not come."""
HEARD_HERE_WITHIN = 15.0
"""The same for the runs of the server's own machine: no network is in between."""
AT_WORK = frozenset({"running", "waiting", "paused"})
"""What a run is only as long as somebody drives it."""
INTERRUPTED = "interrupted"
"""What a run is that is at work by its log, and silent."""


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event of a run, its payload unparsed. There are many: this is made in a third of a dataclass's time."""

    seq: int
    at: float
    kind: Kind
    type: str
    source: Source
    version: int
    data: str
    """JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Whose events these are."""

    sandbox_id: str
    origin: Origin = "worker"
    tenure: int = 0
    after: int | None = None
    """The newest number that is here, as far as the sender knows: what it skips after that, its log has no more."""
    driver_hash: str = field(default="", repr=False)
    """Of the key that the sender showed; empty: none."""
    trusted: bool = False
    """Whoever sends this may steer any run, so that no key is asked for."""


class EventPage(list[StoredEvent]):
    """Events in order, as many as fit."""

    def __init__(self, events: Iterable[StoredEvent] = (), *, more: bool = False) -> None:
        super().__init__(events)
        self.more = more
        """It ends at its limit, of events or of bytes: there may be more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What the list of runs shows of one: derived from its events, and made anew whenever they grow."""

    folded_seq: int = 0
    """The newest control event that is in it."""
    name: str = ""
    goal: str = ""
    folder: str = ""
    host: str = ""
    in_session: bool = False
    """It is a loop inside Claude Code, which only a session there can go on with."""
    status: str = "new"
    """As in `core.views.Status`, as far as the log tells: whether a driver lives is not in it."""
    phase: str = ""
    why: str = ""
    """Why it stopped, or what it waits for: one sentence."""
    success: bool = False
    verified: bool = False
    verdict: str = ""
    cost_usd: float = 0.0
    estimated_usd: float = 0.0
    unknown_costs: int = 0
    attempts: int = 0
    successes: int = 0
    progress: float | None = None
    """0 to 1: the fullest of its limits, or the ticked tasks."""
    waiting_until: float | None = None
    started_at: float = 0.0
    state: bytes = b""
    """The folded state, as `codec.encode_value(Snapshot)` writes it; of a published run only what it takes to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """A run the server knows."""

    run_id: str
    sandbox_id: str
    origin: Origin
    created_at: float
    """When the server first heard of it, by the server's clock."""
    heard_at: float
    """When it last did: events, or a sign of life."""
    last_seq: int
    control_seq: int
    """The newest control event; more than `projection.folded_seq`: the projection is behind."""
    trimmed_seq: int = 0
    """Trace events up to here may be gone."""
    tenure: int = 0
    driver_hash: str = field(default="", repr=False)
    """Of its driver's key; empty: it began without one."""
    projection: Projection = field(default_factory=Projection)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs are wanted, the one heard of last first."""

    text: str = ""
    """Part of a name, a goal, a folder or an id, in whatever case."""
    statuses: tuple[str, ...] = ()
    now: float | None = None
    """The moment the statuses are those of: what is at work by its log and silent is interrupted then.

    None: as the logs have it, whoever drives them.
    """
    heard_since: float | None = None
    sandbox_id: str | None = None
    run_ids: tuple[str, ...] = ()
    """These only, if any are named."""
    before: tuple[float, str] | None = None
    """(heard_at, run_id) of the last one of the page before."""
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events of a run are wanted: forwards from `after`, or backwards from `before` (given in order, too)."""

    after: int | None = None
    before: int | None = None
    kind: Kind | None = None
    types: tuple[str, ...] = ()
    """Dotted names; one that ends with `.*` means all that begin so."""
    iteration: int | None = None
    text: str = ""
    """Part of the payload, in whatever case."""
    limit: int = 200


class Events(Protocol):
    """The copies themselves."""

    async def receive(self, sender: Sender, run_id: str, events: Sequence[StoredEvent], *, now: float) -> Receipt:
        """Keep what is new, durably, before returning. Numbers that are there already are left as they are.

        SenderRefused when the run is another sandbox's or of another origin, or its tenure or its driver's key is
        another one, or when the events do not go on where the copy ends. NoRoom when the disk is nearly full.
        """
        ...

    async def publish(self, sandbox_id: str, events: Sequence[StoredEvent], *, now: float) -> Receipt:
        """Keep events that came without a number, as trace of the run `published_run(sandbox_id)`, numbered here."""
        ...

    def must_be_writable(self) -> None: ...

    async def read(self, run_id: str, wanted: EventFilter) -> EventPage:
        """In ascending order; what they hold is bounded, too."""
        ...

    async def event(self, run_id: str, seq: int) -> StoredEvent | None: ...

    async def trim(self, run_id: str, *, before: float, keep_bytes: int, most: int) -> int:
        """Remove at most so many of the oldest trace events beyond these bounds; returns how many."""
        ...

    async def overgrown(self, *, before: float, keep_bytes: int, limit: int) -> list[str]:
        """Runs of which `trim` would remove something: found without looking at the events of all the others."""
        ...


class Runs(Protocol):
    """The list of runs, and what is derived from their events."""

    async def entry(self, run_id: str) -> RunEntry | None: ...

    async def entries(self, wanted: RunFilter) -> list[RunEntry]:
        """Without their folded states (`projection.state` is empty)."""
        ...

    async def counts(self, *, now: float) -> dict[str, int]:
        """Runs by status, as it is at that moment."""
        ...

    async def spent_since(self, moment: float) -> float:
        """Dollars that iterations begun since then have cost, of all runs, estimates included."""
        ...

    async def behind(self, *, limit: int) -> list[RunEntry]:
        """Runs whose projection lacks control events (or, of published ones, any events)."""
        ...

    async def project(self, run_id: str, projection: Projection, rows: Sequence[IterationRow]) -> bool:
        """Replace what is derived. False, and nothing changed, when a newer projection is there already.

        `rows` are the iterations that changed, each in place of the one with its number: all others stay as they are.
        """
        ...

    async def iterations(self, run_id: str, *, before: int | None = None, limit: int = 100) -> list[IterationRow]:
        """The newest ones, in ascending order."""
        ...

    async def heard(self, run_id: str, *, now: float) -> None:
        """A sign of life."""
        ...

    async def take_over(
        self, run_id: str, *, sandbox_id: str, tenure: int, origin: Origin = "worker", driver_hash: str = ""
    ) -> int | None:
        """Let another driver have the run, if its tenure still is this one: the new one; None: it is not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A message for whoever asks with the published endpoint."""

    id: str
    content: str
    message_type: str
    at: float


class Orders(Protocol):
    """What people ask of runs. Numbers grow over all runs."""

    async def give(
        self, run_id: str, kind: OrderKind, data: dict[str, object], *, by: str, now: float, after: int = 0
    ) -> Order:
        """`after`: the newest that the run has answered; one with a lower number it would take for answered, too."""
        ...

    async def after(self, run_id: str, number: int, *, now: float, limit: int = 100) -> list[Order]:
        """Orders with higher numbers, in order, with their ages."""
        ...

    async def newest(self, run_id: str) -> int: ...

    async def put(self, sandbox_id: str, content: str, message_type: str, *, now: float) -> QueuedMessage:
        """Queue a message for the published endpoint."""
        ...

    async def queued(self, sandbox_id: str, *, limit: int = 20) -> list[QueuedMessage]:
        """The newest messages that wait for a sandbox, in order: they stay."""
        ...

    async def take(self, sandbox_id: str) -> list[QueuedMessage]:
        """All messages queued for a sandbox, which are gone then: each is given to one caller only."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredParcel:
    """Something that travels beside the events of a run, as it was sent."""

    name: str
    seq: int
    at: float
    size: int
    sha256: str
    content: bytes = b""
    """Left out in lists."""


class Parcels(Protocol):
    """Transcripts, notes and trees. The newest of a name replaces the one before."""

    async def put(
        self, run_id: str, name: str, content: bytes, *, seq: int, now: float, tenure: int = 0
    ) -> StoredParcel:
        """Keep a parcel, unless a later one of that name is there; returns the one that is there then.

        SenderRefused when the run has another tenure, or parcels enough. NoRoom when the disk is nearly full.
        """
        ...

    async def get(self, run_id: str, name: str) -> StoredParcel | None: ...

    async def all(self, run_id: str) -> list[StoredParcel]:
        """Without their contents."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A token, a one-time login or a browser session: only the hash of its secret is kept."""

    key_id: str
    kind: Literal["token", "login", "session"]
    scope: Scope
    sandbox_id: str | None
    """Of a worker: the only sandbox it may speak for."""
    label: str
    created_at: float
    expires_at: float | None
    last_used_at: float | None = None
    parent_id: str | None = None
    """The token a session or a login came from: revoking that ends it, too."""


class Keys(Protocol):
    """Who may come in."""

    async def add(self, key: Key, secret_hash: str) -> None: ...

    async def find(self, secret_hash: str, *, now: float) -> Key | None:
        """The living key with that hash: neither revoked nor expired, nor its parent."""
        ...

    async def spend(self, secret_hash: str, *, now: float) -> Key | None:
        """The same, and it is gone: a one-time login can be spent once, whoever else tries at the same moment."""
        ...

    async def used(self, key_id: str, *, now: float) -> None: ...

    async def tokens(self) -> list[Key]:
        """Living tokens, the newest first."""
        ...

    async def sessions(self) -> list[Key]:
        """Living sessions of browsers, the newest first."""
        ...

    async def revoke(self, key_id: str) -> bool:
        """End a key and all that came from it. False: there is none."""
        ...

    async def guarded(self, sandbox_id: str) -> bool:
        """Whether a token was ever given out for this sandbox: then it takes one to speak for it."""
        ...


class Archive(Protocol):
    """All of it, behind one database."""

    @property
    def events(self) -> Events: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def orders(self) -> Orders: ...
    @property
    def parcels(self) -> Parcels: ...
    @property
    def keys(self) -> Keys: ...

    async def announce(self, topic: str) -> None:
        """Tell every other server process on this database."""
        ...

    async def heard(self) -> str:
        """The next topic that another server process announced. Waits; for ever, where there can be no other.

        MISSED: the connection was lost for a while, and what was announced meanwhile with it.
        """
        ...

    async def sweep(self, *, now: float, messages_before: float) -> int:
        """Remove keys that have expired and queued messages older than that; returns how many."""
        ...

    async def compact(self, *, most_bytes: int) -> int:
        """Give back to the disk at most so many bytes that nothing uses any more, if they are worth it; how many."""
        ...

    async def close(self) -> None: ...


MISSED = "*"
"""A topic: anything may be new."""
LOCAL = "local"
"""The sandbox under which the runs of the server's own machine are shown."""


def published_run(sandbox_id: str) -> str:
    """The run under which the events of a program are kept that knows of no runs."""
    return PUBLISHED + sandbox_id
