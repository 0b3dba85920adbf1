"""How events travel between machines: the published envelope, with our number, time, version and kind beside it.

The payload stays the bytes that the log holds. Whoever carries events (outbox, server, browser) never parses it.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from untildone.core.codec import decode, encode, event_kind, event_type, event_version
from untildone.core.event import Kind, Record, Source

MOST_EVENTS = 1000
"""Events in one batch."""
NAME = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
RUN_ID = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}\Z")]
"""What a run, or a sandbox, may be called."""
COUNT = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A number that every store and every reader of JSON can hold: what another machine says is not believed beyond it."""
TENURE = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
PUBLISHED = "published-"
"""What our server calls the run of a sandbox that sends single events, before the name of the sandbox."""
DRIVER = "Untildone-Driver"
"""The header with the key of whoever drives a run: the server keeps its hash, and hears nobody else about that run."""


class Wire(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of a run, on its way."""

    event_type: NAME
    event_data: msgspec.Raw
    """The payload as JSON: bytes as the log holds them."""
    seq: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    at: float
    """Epoch seconds, by the clock of the machine that wrote it."""
    source: Source = "worker"
    kind: Kind = "control"
    version: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Events of one run, in order. Empty: a sign of life."""

    run_id: RUN_ID
    events: Annotated[list[Wire], msgspec.Meta(max_length=MOST_EVENTS)] = []
    tenure: TENURE = 0
    """Which driver's words these are: a machine that took a run over has a higher one, and older ones are refused."""
    after: COUNT | None = None
    """The newest number that the server has, as far as the sender knows: what it skips after that, its log has no
    more. None: it skips nothing, but before the first event that it ever sends."""


class Receipt(msgspec.Struct, frozen=True):
    """What became of a batch."""

    last_seq: COUNT
    """The newest number the server has of this run: what comes after it is still wanted."""
    stored: COUNT = 0
    """Events of the batch that were new."""
    orders: COUNT = 0
    """The number of the newest order for this run: a reason to fetch when it is higher than the newest one known."""


OrderKind = Literal["message", "stop", "pause", "resume", "limits", "skip_wait", "waive", "reset"]


class Order(msgspec.Struct, frozen=True):
    """What somebody at the server asks of a run."""

    number: COUNT
    kind: OrderKind
    by: str
    at: float
    age: float = 0.0
    """Seconds since it was given, by the server's clock: clocks of two machines do not agree."""
    seen: COUNT = 0
    """The newest event of the run that the server had when it was given, and so which driver it was for; 0: unknown."""
    data: dict[str, str | int | float | bool | list[str] | None] = {}
    """`content`, `message_type`, `urgent` of a message; `after_iteration` of a stop; the limits by field;
    `patterns` of a waiver; `circuit`, `session`, `history` of a reset."""


def wire(record: Record) -> Wire:
    """A record, ready to travel."""
    event = record.event
    return Wire(
        event_type=event_type(event),
        event_data=msgspec.Raw(encode(event)),
        seq=record.seq,
        at=record.at,
        source=event.SOURCE,
        kind=event_kind(event),
        version=event_version(event),
    )


def batch(run_id: str, records: Iterable[Record], *, tenure: int = 0) -> bytes:
    """Records of one run as the body of a request."""
    return msgspec.json.encode(Batch(run_id=run_id, events=[wire(record) for record in records], tenure=tenure))


def record(travelled: Wire) -> Record:
    """The record that was sent; an event this version does not know is kept as it is."""
    event = decode(travelled.event_type, travelled.version, travelled.kind, bytes(travelled.event_data))
    return Record(seq=travelled.seq, at=travelled.at, event=event)
