"""What happens in a run, as it happens: lines as HTML, and word when the rest of the page has changed."""

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from untildone.server.access import viewer
from untildone.server.archive.port import StoredEvent
from untildone.server.context import Context, context_of
from untildone.server.event_stream import EventStream
from untildone.server.pages.activity import lines_of
from untildone.server.pages.rendering import rendered
from untildone.server.paths import NEWEST, RunId
from untildone.server.streams import Form, run_pieces

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])

MOST_BEHIND = 1000
"""Whoever lacks more events than this gets the page's lines anew instead of all that was missed."""


@router.get("/runs/{run_id}/live")
async def live(
    request: Request,
    run_id: RunId,
    after: Annotated[int, Query(ge=0, le=NEWEST)] = 0,
) -> Response:
    """Server-sent events: `lines` (with the number of the last event as their id), `changed` and `reset`."""
    context = context_of(request)
    entry = await context.archive.runs.entry(run_id)
    if entry is None:
        return Response(status_code=404)
    given = request.headers.get("last-event-id", "")
    if given.isascii() and given.isdecimal():
        after = min(int(given[:20]), NEWEST)
    return EventStream(_pieces(context, run_id, after, entry.last_seq), dropped=context.metrics.dropped.inc)


async def _pieces(context: Context, run_id: str, after: int, newest: int) -> AsyncGenerator[bytes]:
    # Numbers this server never had can only come from a database that was put back to an older copy.
    if newest - after > MOST_BEHIND or after > newest:
        after = newest
        yield b"id: %d\nevent: reset\ndata: \n\n" % newest
    async for piece in run_pieces(context, run_id, after, Form("html", partial(html_frames, run_id))):
        yield piece


def html_frames(run_id: str, events: Sequence[StoredEvent]) -> bytes:
    """Events as one server-sent event of HTML; those that have no line only move the number on."""
    lines = lines_of(events)
    html = rendered("parts/lines.html", {"run": {"run_id": run_id}, "lines": lines}) if lines else ""
    data = "".join(f"data: {line}\n" for line in html.splitlines() if line.strip()) or "data: \n"
    return f"id: {events[-1].seq}\nevent: lines\n{data}\n".encode()
