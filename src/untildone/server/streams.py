"""Runs as they happen: server-sent events, from where a viewer left off.

What was missed comes from the archive, page by page; what is new comes from the fanout, encoded once for all.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Annotated, NamedTuple

import msgspec
from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request, Response

from untildone.server.access import viewer
from untildone.server.answers import DENIED, Responses
from untildone.server.archive.port import EventFilter, StoredEvent
from untildone.server.context import Context, context_of
from untildone.server.event_stream import HEARTBEAT, HEARTBEAT_SECONDS, EventStream
from untildone.server.fanout import Follower, Note
from untildone.server.paths import NEWEST, RunId

router = APIRouter(prefix="/api/v1", tags=["streams"], dependencies=[Depends(viewer)])

PAGE = 200
_STREAM: Responses = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events, for ever"}
}
_CHANGED = b"event: changed\ndata: {}\n\n"
_encode = msgspec.json.Encoder()


class Form(NamedTuple):
    """What events look like on the wire."""

    name: str
    frames: Callable[[Sequence[StoredEvent]], bytes]


@router.get("/runs/{run_id}/stream", response_class=Response, responses={**_STREAM, **DENIED})
async def stream_run(
    request: Request,
    run_id: RunId,
    after: Annotated[int | None, Query(ge=0, le=NEWEST, description="Begin after this one; none: at the end")] = None,
    last_event_id: Annotated[str | None, Header(description="As `after`: browsers send it when they return")] = None,
) -> Response:
    """Events of a run, each with its number as id; `changed` whenever the run itself looks different."""
    context = context_of(request)
    entry = await context.archive.runs.entry(run_id)
    if entry is None:
        raise HTTPException(404, "there is no such run here")
    start = _number(last_event_id)
    if start is None:
        start = entry.last_seq if after is None else after
    return EventStream(run_pieces(context, run_id, start), dropped=context.metrics.dropped.inc)


@router.get("/stream", response_class=Response, responses={**_STREAM, **DENIED})
async def stream_runs(request: Request) -> Response:
    """Which runs look different, as it happens."""
    context = context_of(request)
    return EventStream(changed_pieces(context), dropped=context.metrics.dropped.inc)


async def run_pieces(context: Context, run_id: str, after: int, form: Form | None = None) -> AsyncGenerator[bytes]:
    """A run as pieces of a stream: first what was missed, then what happens. `form` None: JSON."""
    # Following begins before reading: what comes in between is in both, and sent once.
    with context.fanout.follow(run_id) as follower:
        view = _View(context, run_id, after, form or Form("json", frames))
        async for piece in view.missed():
            yield piece
        while (news := await _news(follower, view)) is not None:
            yield news
            async for piece in view.missed():
                yield piece


async def changed_pieces(context: Context) -> AsyncGenerator[bytes]:
    """Which runs changed, as pieces of a stream."""
    with context.fanout.follow(None) as follower:
        while not follower.ended:
            note = await follower.next(HEARTBEAT_SECONDS)
            if note is None:
                yield HEARTBEAT
                continue
            notes = [note, *follower.waiting()]
            yield b"".join(_changed_frame(one) for one in notes)


class _View:
    """How far one viewer has come."""

    def __init__(self, context: Context, run_id: str, after: int, form: Form) -> None:
        self._context = context
        self._run_id = run_id
        self._form = form
        self._last = after
        self._behind = True

    async def missed(self) -> AsyncGenerator[bytes]:
        """What is in the archive and was not sent."""
        while self._behind:
            # In a task of its own: while a piece waits to be read, the events that it was made of are not kept; and
            # a viewer who leaves must not break off a read, which would take its connection along.
            reading = asyncio.ensure_future(self._page())
            reading.add_done_callback(_nobody_waits)
            yield await asyncio.shield(reading)

    async def _page(self) -> bytes:
        async with self._context.catching_up:
            page = await self._context.archive.events.read(self._run_id, EventFilter(after=self._last, limit=PAGE))
            self._behind = page.more
            if not page:
                return b""
            self._last = page[-1].seq
            return self._form.frames(page)

    def take(self, note: Note) -> bytes:
        """What to send for a note; a hole before it is filled from the archive."""
        if note.lagged:
            self._behind = True
            return b""
        events = note.events
        if events is None:
            return _CHANGED
        if self._behind or events[-1].seq <= self._last:
            return b""
        if events[0].seq == self._last + 1 and len(events) == events[-1].seq - self._last:
            self._last = events[-1].seq
            return note.encoded(self._form.name, self._form.frames)
        return self._in_part(events)

    def _in_part(self, events: Sequence[StoredEvent]) -> bytes:
        wanted = sorted((event for event in events if event.seq > self._last), key=lambda event: event.seq)
        fits = wanted[0].seq == self._last + 1 and len(wanted) == wanted[-1].seq - self._last
        if not fits:
            self._behind = True
            return b""
        self._last = wanted[-1].seq
        return self._form.frames(wanted)


def _nobody_waits(reading: "asyncio.Future[bytes]") -> None:
    """Whoever asked may have left: that it failed is then no news, and not for the log."""
    if not reading.cancelled():
        reading.exception()


async def _news(follower: Follower, view: _View) -> bytes | None:
    """All that waits, as one piece; None: it is over."""
    if follower.ended:
        return None
    note = await follower.next(HEARTBEAT_SECONDS)
    if note is None:
        return None if follower.ended else HEARTBEAT
    return b"".join([view.take(note), *(view.take(one) for one in follower.waiting())])


def frames(events: Sequence[StoredEvent]) -> bytes:
    """Events as a stream carries them."""
    return "".join(map(_frame, events)).encode()


def _frame(event: StoredEvent) -> str:
    # In JSON a line end can only be white space between two parts: a blank in its place changes nothing.
    data = event.data
    if "\n" in data or "\r" in data:
        data = data.replace("\n", " ").replace("\r", " ")
    kind = msgspec.json.encode(event.type).decode()
    return (
        f'id: {event.seq}\ndata: {{"seq":{event.seq},"at":{event.at!r},"kind":"{event.kind}","type":{kind},'
        f'"source":"{event.source}","version":{event.version},"data":{data}}}\n\n'
    )


def _changed_frame(note: Note) -> bytes:
    if note.lagged:
        return b"event: lagged\ndata: {}\n\n"
    return b"event: changed\ndata: " + _encode.encode({"run_id": note.run_id}) + b"\n\n"


def _number(text: str | None) -> int | None:
    """The id a browser sends back, if it is one of ours."""
    if text is None or not text.isascii() or not text.isdecimal():
        return None
    return min(int(text[:20]), NEWEST)
