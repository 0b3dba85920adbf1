"""Events come in: the envelope is looked at, the payload is not; then they are stored, and only then acknowledged."""

from datetime import UTC, datetime
from time import perf_counter

import msgspec

from untildone.core.dataclass import dataclass
from untildone.core.event import Source
from untildone.core.wire import NAME, PUBLISHED, Batch, Receipt
from untildone.errors import UntildoneError
from untildone.server.archive.port import Sender, StoredEvent, published_run
from untildone.server.context import Context

MOST_PAYLOAD = 4 << 20
"""Bytes of one event. Our own uplink cuts longer ones; whoever reads a few hundred must not need a machine for it."""
LATEST = 1e11
"""Epoch seconds that no clock shows: beyond them, dates cannot be written any more."""


class Unreadable(UntildoneError):
    """The body is JSON perhaps, but no event and no batch of events."""


class Published(msgspec.Struct, frozen=True):
    """One event, as the published endpoint takes it."""

    event_type: NAME
    event_data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    source: Source = "agent"


class _Probe(msgspec.Struct, frozen=True):
    event_type: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_batch = msgspec.json.Decoder(Batch)
_published = msgspec.json.Decoder(Published)
_probe = msgspec.json.Decoder(_Probe)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """What the published endpoint says."""

    status: str
    sandbox_id: str
    event_type: str
    event_id: str
    timestamp: str


def parsed(body: bytes) -> Batch | Published:
    """What a body holds; Unreadable: neither a batch nor a published event."""
    try:
        return _batch.decode(body)
    except (ValueError, RecursionError) as error:
        not_a_batch = error
    try:
        if _probe.decode(body).event_type is msgspec.UNSET:
            raise Unreadable(f"neither an event nor a batch of events: {not_a_batch}")
        return _published.decode(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not an event: {error}") from None


def stored_events(batch: Batch) -> list[StoredEvent]:
    """Events of a batch as they are kept; Unreadable when they are not what a run writes."""
    if batch.run_id.startswith(PUBLISHED):
        raise Unreadable(f"a run cannot be called {PUBLISHED}...: that is for events without a number")
    before = 0
    events = []
    # Every event of every run comes through here: what could be a function of its own is in line.
    for wire in batch.events:
        seq, at, name = wire.seq, wire.at, wire.event_type
        if seq <= before:
            raise Unreadable(f"event {seq} comes after event {before}: they must be in order")
        if not 0 <= at <= LATEST:
            raise Unreadable(f"event {seq} has no time that a clock shows")
        if not name.isprintable():
            raise _unshowable()
        before = seq
        events.append(
            StoredEvent(
                seq=seq,
                at=at,
                kind=wire.kind,
                type=name,
                source=wire.source,
                version=wire.version,
                data=_payload(wire.event_data),
            )
        )
    return events


def _unshowable() -> Unreadable:
    return Unreadable("the type of an event has characters in it that cannot be shown")


def _payload(raw: msgspec.Raw) -> str:
    if len(raw) > MOST_PAYLOAD:
        raise Unreadable(f"the payload of an event is larger than {MOST_PAYLOAD >> 20} MiB: cut it before it is sent")
    try:
        text = str(raw, "utf-8")
    except UnicodeDecodeError:
        raise Unreadable("the payload of an event is not UTF-8") from None
    if not text.startswith("{"):
        raise Unreadable("the payload of an event must be a JSON object")
    return text


async def receive(
    context: Context, sandbox_id: str, batch: Batch, *, driver_hash: str = "", trusted: bool = False
) -> Receipt:
    """Store a batch, then tell who follows the run."""
    began = perf_counter()
    events = stored_events(batch)
    if not events and await context.archive.runs.entry(batch.run_id) is None:
        # A sign of life begins no run: else a name would be anybody's who guesses it before the first event is sent.
        return Receipt(last_seq=0)
    sender = Sender(
        sandbox_id=sandbox_id, tenure=batch.tenure, after=batch.after, driver_hash=driver_hash, trusted=trusted
    )
    receipt = await context.archive.events.receive(sender, batch.run_id, events, now=context.clock.now())
    metrics = context.metrics
    metrics.batch_seconds.observe(perf_counter() - began)
    metrics.stored.inc(receipt.stored)
    metrics.duplicates.inc(len(events) - receipt.stored)
    if receipt.stored:
        context.fanout.events(batch.run_id, events)
        # Nothing is derived from trace.
        if any(event.kind == "control" for event in events):
            context.projector.touch(batch.run_id)
    return receipt


async def publish(context: Context, sandbox_id: str, published: Published) -> Acknowledged:
    """Store one event of a program that knows of no numbers."""
    if not published.event_type.isprintable():
        raise _unshowable()
    now = context.clock.now()
    event = StoredEvent(
        seq=0,
        at=now,
        kind="trace",
        type=published.event_type,
        source=published.source,
        version=1,
        data="{}" if published.event_data is msgspec.UNSET else _payload(published.event_data),
    )
    receipt = await context.archive.events.publish(sandbox_id, [event], now=now)
    run_id = published_run(sandbox_id)
    context.metrics.stored.inc(receipt.stored)
    context.fanout.events(run_id, [msgspec.structs.replace(event, seq=receipt.last_seq)])
    context.projector.touch(run_id)
    return Acknowledged(
        status="received",
        sandbox_id=sandbox_id,
        event_type=published.event_type,
        event_id=f"{run_id}:{receipt.last_seq}",
        timestamp=iso(now),
    )


def iso(at: float) -> str:
    """A time as other programs read it."""
    return datetime.fromtimestamp(at, UTC).isoformat()
