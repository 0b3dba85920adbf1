"""What the API gives and takes, as the OpenAPI description says it, and how it is made of what the archive keeps."""

from dataclasses import asdict
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, Field, RootModel

from untildone.core.event import Kind, Source
from untildone.core.history import IterationRow
from untildone.core.wire import Batch, OrderKind
from untildone.server.archive.port import Origin, RunEntry, StoredEvent, StoredParcel
from untildone.server.folding import seen
from untildone.server.intake import Published

RunStatus = Literal["new", "running", "waiting", "paused", "suspended", "completed", "interrupted", "unreadable"]
_CENTS = 9
"""Digits of a sum that mean something: the rest is what adding floats leaves."""


class ReceiptOut(BaseModel):
    """What became of a batch."""

    last_seq: int
    stored: int = 0
    orders: int = 0


class AcknowledgedOut(BaseModel):
    """What became of an event without a number."""

    status: Literal["received"]
    sandbox_id: str
    event_type: str
    event_id: str
    timestamp: str


class EventsAnswer(RootModel[ReceiptOut | AcknowledgedOut]):
    """A receipt for a batch, an acknowledgement for a published event."""


class QueuedOut(BaseModel):
    """A message, as published."""

    id: str
    content: str
    message_type: str
    timestamp: str


class OrderOut(BaseModel):
    """Something asked of a run."""

    number: int
    kind: OrderKind
    by: str
    at: float
    age: float = 0
    seen: int = 0
    data: dict[str, Any] = Field(default_factory=dict)


class TenureOut(BaseModel):
    """Whose turn it is to drive a run."""

    tenure: int


class RunOut(BaseModel):
    """A run, as a list shows it."""

    run_id: str
    sandbox_id: str
    origin: Origin
    alive: bool
    """It is at work, and something was heard of it lately."""
    created_at: float
    heard_at: float
    last_seq: int
    control_seq: int
    folded_seq: int
    trimmed_seq: int
    tenure: int
    name: str
    goal: str
    folder: str
    host: str
    in_session: bool
    """It is a loop inside Claude Code, which is steered there alone."""
    status: str
    """`interrupted`: at work by its log, and nothing was heard of it lately."""
    phase: str
    why: str
    success: bool
    verified: bool
    verdict: str
    cost_usd: float
    estimated_usd: float
    unknown_costs: int
    attempts: int
    successes: int
    progress: float | None
    waiting_until: float | None
    started_at: float


class RunDetailOut(RunOut):
    """A run by itself."""

    questions: list[str]
    """What the agent asked and nobody has answered, the newest first, ten at most: an `answer` names one of them."""


class RunsOut(BaseModel):
    """A page of runs."""

    runs: list[RunOut]
    next: str | None
    """Pass it as `before` for the next page."""


class EventOut(BaseModel):
    """An event of a run."""

    seq: int
    at: float
    kind: Kind
    type: str
    source: Source
    version: int
    data: dict[str, Any]


class EventsOut(BaseModel):
    """A page of events, in ascending order."""

    events: list[EventOut]
    next: int | None
    """Pass it as `after`, or as `before` if you go backwards, for the next page."""


class IterationOut(BaseModel):
    """One iteration, all its tries together."""

    number: int
    started_at: float
    first_seq: int
    """The number of the event that began its first try."""
    tries: int
    outcome: str
    """`ok`, `running`, `abandoned` (nobody drives it any more), or the name of the fault that ended its last try."""
    faults: list[str]
    error: str
    cost_usd: float
    estimated_usd: float
    unknown_costs: int
    seconds: float
    files_changed: int
    commits: list[str]
    claim: str
    summary: str
    verdict: str
    review: str
    session_id: str
    """The conversation it ended in, as far as known."""


class IterationsOut(BaseModel):
    """A page of iterations: the newest, in ascending order."""

    iterations: list[IterationOut]
    next: int | None
    """Pass it as `before` for the page before."""


class ParcelOut(BaseModel):
    """Something that travels beside the events of a run."""

    name: str
    seq: int
    at: float
    size: int
    sha256: str


class ParcelsOut(BaseModel):
    """All parcels of a run."""

    parcels: list[ParcelOut]


class TranscriptOut(BaseModel):
    """A conversation that came along."""

    session_id: str
    seq: int
    """The event after which it was packed."""
    at: float
    size: int
    """Bytes, packed."""


class TranscriptsOut(BaseModel):
    """All conversations of a run."""

    transcripts: list[TranscriptOut]


class EventStruct(msgspec.Struct, frozen=True):
    """An event on its way out, its payload unparsed."""

    seq: int
    at: float
    kind: str
    type: str
    source: str
    version: int
    data: msgspec.Raw


def event_struct(event: StoredEvent) -> EventStruct:
    """An event as the API gives it."""
    return EventStruct(
        event.seq, event.at, event.kind, event.type, event.source, event.version, msgspec.Raw(event.data.encode())
    )


def run_json(entry: RunEntry, now: float) -> dict[str, Any]:
    """A run as the API gives it."""
    projection = entry.projection
    shown = {name: getattr(projection, name) for name in RunOut.model_fields if hasattr(projection, name)}
    own = {name: getattr(entry, name) for name in RunOut.model_fields if hasattr(entry, name)}
    return _rounded({**shown, **own, **asdict(seen(entry, now))})


def iteration_json(row: IterationRow, *, alive: bool) -> dict[str, Any]:
    """An iteration as the API gives it; `alive`: somebody drives its run."""
    return _rounded(asdict(row) | ({} if alive or row.outcome != "running" else {"outcome": "abandoned"}))


def _rounded(told: dict[str, Any]) -> dict[str, Any]:
    return told | {name: round(told[name], _CENTS) for name in ("cost_usd", "estimated_usd")}


def parcel_json(parcel: StoredParcel) -> dict[str, Any]:
    """A parcel as lists show it."""
    return {name: getattr(parcel, name) for name in ParcelOut.model_fields}


def events_body() -> dict[str, Any]:
    """The body of a request with events, for the OpenAPI description: it is never parsed by it."""
    (batch, published), components = msgspec.json.schema_components(
        (Batch, Published), ref_template="#/components/schemas/{name}"
    )
    schemas = {f"#/components/schemas/{name}": schema for name, schema in components.items()}
    options = [_inlined(schemas[one["$ref"]], schemas) for one in (batch, published)]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": {"anyOf": options}}}}}


def _inlined(schema: Any, schemas: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(one, schemas) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(schemas[schema["$ref"]], schemas)
    found = {name: _inlined(value, schemas) for name, value in schema.items()}
    if "properties" in found and "event_data" in found["properties"]:
        found["properties"]["event_data"] = {"type": "object", "description": "The payload"}
    if isinstance(found.get("pattern"), str):
        found["pattern"] = found["pattern"].replace(r"\Z", "$")
    return found


EVENTS_BODY = events_body()
