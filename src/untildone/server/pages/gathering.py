"""Everything a run's page shows, read newest first and never more than fits a page."""

import asyncio
import zlib
from collections.abc import Sequence

from untildone.core import events as ev
from untildone.core.dataclass import dataclass
from untildone.core.history import IterationRow
from untildone.core.printable import one_line
from untildone.core.questions import open_questions
from untildone.core.secrets import redact
from untildone.core.state import LoopState
from untildone.core.wire import Order
from untildone.server.archive.port import EventFilter, EventPage, QueuedMessage, RunEntry, StoredEvent
from untildone.server.context import Context
from untildone.server.folding import state_of
from untildone.server.pages.activity import ASKED_FOR, Line, lines_of, record_of
from untildone.server.pages.texts import visible
from untildone.server.steering import contents_of

LINES = 100
"""Of the newest events, when a page opens: a long run opens as fast as a short one, and the rest is asked for."""
STEPS = 100
_EVENTS = 200
"""Events read for a page of lines: some have none."""
_MESSAGES = 20
_TROUBLES = 8
_NOTES = 64 * 1024
_LOOKS = ("iteration.validation",)
_TROUBLE = (
    "iteration.failed", "continuous.hook_failed", "continuous.tampered", "continuous.steering_refused",
    "continuous.order_refused", "landing.failed", "landing.gave_up", "landing.reverted",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message to the agent, and how far it has come."""

    text: str
    by: str
    at: float
    urgent: bool
    seen: bool
    said: str
    """How far it has come, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A run with all that is shown beside it."""

    entry: RunEntry
    state: LoopState
    rows: tuple[IterationRow, ...]
    lines: tuple[Line, ...]
    after: int
    """The newest event that is in the lines, told or not."""
    has_earlier: bool
    last_look: ev.IterationValidation | None
    trouble: tuple[Line, ...]
    messages: tuple[Said, ...]
    questions: tuple[str, ...]
    notes: str


async def gather(context: Context, entry: RunEntry, *, with_lines: bool = True) -> Gathered:
    """Read what a run's page shows."""
    run_id, runs, state = entry.run_id, context.archive.runs, state_of(entry)
    rows = await runs.iterations(run_id, limit=STEPS)
    recent = await newest(context, run_id, limit=_EVENTS) if with_lines else EventPage()
    looks = await newest(context, run_id, *_LOOKS, limit=1)
    trouble = await newest(context, run_id, *_TROUBLE, limit=_TROUBLES)
    messages = await newest(context, run_id, ev.MessageReceived.TYPE, limit=_MESSAGES)
    waiting = await context.archive.orders.after(run_id, state.ordered, now=context.clock.now())
    queued = await context.archive.orders.queued(entry.sandbox_id) if entry.origin == "published" else []
    lines = await asyncio.to_thread(lines_of, recent)
    return Gathered(
        entry=entry,
        state=state,
        rows=tuple(rows),
        lines=tuple(lines[-LINES:]),
        after=recent[-1].seq if recent else 0,
        has_earlier=recent.more or len(lines) > LINES,
        last_look=_look(looks),
        trouble=tuple(reversed(lines_of(filter(_is_trouble, trouble)))),
        messages=(*map(_queued, reversed(queued)), *said_of(messages, waiting, state)),
        questions=_open_questions(messages, waiting, state),
        notes=await _notes(context, run_id),
    )


async def newest(context: Context, run_id: str, *types: str, limit: int) -> EventPage:
    """The newest events of these control types, or of all."""
    wanted = EventFilter(before=2**53, types=types, kind="control" if types else None, limit=limit)
    return await context.archive.events.read(run_id, wanted)


def _is_trouble(stored: StoredEvent) -> bool:
    """What ended because somebody asked for it is none."""
    event = record_of(stored).event
    return not (isinstance(event, ev.IterationFailed) and event.error_type in ASKED_FOR)


def _look(looks: Sequence[StoredEvent]) -> ev.IterationValidation | None:
    event = record_of(looks[-1]).event if looks else None
    return event if isinstance(event, ev.IterationValidation) else None


def _received(messages: Sequence[StoredEvent]) -> list[tuple[StoredEvent, ev.MessageReceived]]:
    """The newest first."""
    read = [(stored, record_of(stored).event) for stored in reversed(messages)]
    return [(stored, event) for stored, event in read if isinstance(event, ev.MessageReceived)]


def said_of(messages: Sequence[StoredEvent], waiting: Sequence[Order], state: LoopState) -> list[Said]:
    """The newest first. What the server has and the worker has not fetched is told apart from what it has."""
    pending = {message.number for message in state.messages}
    received = _received(messages)
    # Events are read after the state: what has come in between is not counted in it, and nobody has seen it yet.
    new = sum(stored.seq > state.last_seq for stored, _ in received)
    said = []
    for back, (stored, event) in enumerate(received):
        seen = back >= new and state.messages_received - (back - new) not in pending
        how = "the agent has seen it" if seen else "waits for the next iteration"
        said.append(
            Said(
                text=one_line(event.content, 1000), by=one_line(event.by, 60), at=stored.at, urgent=event.urgent,
                seen=seen, said=how,
            )
        )  # fmt: skip
    arrived = {event.order for _, event in received}
    orders = [order for order in waiting if order.kind == "message" and order.number not in arrived]
    return [_on_its_way(order) for order in reversed(orders)] + said


def _open_questions(messages: Sequence[StoredEvent], waiting: Sequence[Order], state: LoopState) -> tuple[str, ...]:
    """Without those whose answer is on its way, or came while this was read."""
    new = [event.content for stored, event in _received(messages) if stored.seq > state.last_seq]
    return open_questions(state, [*contents_of(waiting), *new])


def _on_its_way(order: Order) -> Said:
    return Said(
        text=one_line(str(order.data.get("content", "")), 1000),
        by=one_line(order.by, 60),
        at=order.at,
        urgent=bool(order.data.get("urgent")),
        seen=False,
        said="on its way to the run",
    )


def _queued(message: QueuedMessage) -> Said:
    return Said(
        text=one_line(message.content, 1000), by=one_line(message.message_type.replace("_", " "), 60), at=message.at,
        urgent=False, seen=False, said="waits until the program asks for it",
    )  # fmt: skip


async def _notes(context: Context, run_id: str) -> str:
    parcel = await context.archive.parcels.get(run_id, "notes")
    return await asyncio.to_thread(notes_text, parcel.content) if parcel is not None else ""


def notes_text(packed: bytes) -> str:
    """The notes of a parcel, as far as they can be read; a bomb is opened no further than a page."""
    try:
        content = zlib.decompressobj(wbits=31).decompress(packed, _NOTES)
    except zlib.error:
        return ""
    return visible(redact(content.decode("utf-8", "replace")))
