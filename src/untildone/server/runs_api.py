"""Runs, their events, iterations and diffs: pages with cursors, whose cost does not grow with what came before."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from untildone.core.event import Kind
from untildone.server.access import viewer
from untildone.server.answers import DENIED, json_answer
from untildone.server.archive.events import MOST_SCANNED
from untildone.server.archive.port import Archive, EventFilter, RunEntry, RunFilter, StoredEvent
from untildone.server.context import context_of
from untildone.server.folding import seen
from untildone.server.paths import NEWEST, RunId, Seq, Text
from untildone.server.shapes import (
    EventOut,
    EventsOut,
    IterationsOut,
    RunDetailOut,
    RunsOut,
    RunStatus,
    event_struct,
    iteration_json,
    run_json,
)

router = APIRouter(prefix="/api/v1", tags=["runs"], dependencies=[Depends(viewer)])

MOST_BYTES = 8 * 1024 * 1024
"""An answer with events ends after so many characters of payload; the next page goes on from there."""
_AT_ONCE = 200
_CURSOR = r"^[0-9]{1,12}(\.[0-9]{1,20})?,[0-9A-Za-z][0-9A-Za-z._-]{0,119}$"
_TYPE = r"^[0-9A-Za-z_.-]{1,100}(\.\*)?$"
_DIFFS = ("agent.file_edited", "iteration.files_changed")

Number = Annotated[int | None, Query(ge=0, le=NEWEST)]


@router.get("/runs", response_class=Response, responses={200: {"model": RunsOut}, **DENIED})
async def list_runs(  # noqa: PLR0917 - each is a filter
    request: Request,
    text: Text = "",
    status: Annotated[list[RunStatus] | None, Query(max_length=10)] = None,
    sandbox: Annotated[str | None, Query(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$")] = None,
    before: Annotated[str | None, Query(pattern=_CURSOR, description="`next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Runs, the one heard of last first."""
    context = context_of(request)
    now = context.clock.now()
    wanted = RunFilter(
        text=text, statuses=tuple(status or ()), now=now, sandbox_id=sandbox, before=_cursor(before), limit=limit
    )
    entries = await context.archive.runs.entries(wanted)
    more = f"{entries[-1].heard_at!r},{entries[-1].run_id}" if len(entries) == limit else None
    return json_answer({"runs": [run_json(entry, now) for entry in entries], "next": more})


@router.get("/runs/{run_id}", response_class=Response, responses={200: {"model": RunDetailOut}, **DENIED})
async def get_run(request: Request, run_id: RunId) -> Response:
    """One run, and what its agent wants to know."""
    entry, context = await known_entry(request, run_id), context_of(request)
    asked = [*await context.steering.questions(run_id)]
    return json_answer(run_json(entry, context.clock.now()) | {"questions": asked})


@router.get("/runs/{run_id}/events", response_class=Response, responses={200: {"model": EventsOut}, **DENIED})
async def list_events(  # noqa: PLR0917 - each is a filter
    request: Request,
    run_id: RunId,
    after: Number = None,
    before: Number = None,
    kind: Kind | None = None,
    type_: Annotated[list[Annotated[str, Query(pattern=_TYPE)]] | None, Query(alias="type", max_length=20)] = None,
    iteration: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    text: Text = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Events in ascending order: forwards from `after`, or backwards from `before`."""
    entry = await known_entry(request, run_id)
    wanted = EventFilter(
        after=after, before=before, kind=kind, types=tuple(type_ or ()), iteration=iteration, text=text, limit=limit
    )
    return json_answer(await _page(context_of(request).archive, entry, wanted))


@router.get("/runs/{run_id}/events/{seq}", response_class=Response, responses={200: {"model": EventOut}, **DENIED})
async def get_event(request: Request, run_id: RunId, seq: Seq) -> Response:
    """One event."""
    event = await context_of(request).archive.events.event(run_id, seq)
    if event is None:
        raise HTTPException(404, "there is no such event here")
    return json_answer(event_struct(event))


@router.get(
    "/runs/{run_id}/iterations",
    response_class=Response,
    responses={200: {"model": IterationsOut}, **DENIED},
)
async def list_iterations(
    request: Request,
    run_id: RunId,
    before: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """The newest iterations, or those before one."""
    context = context_of(request)
    alive = seen(await known_entry(request, run_id), context.clock.now()).alive
    rows = await context.archive.runs.iterations(run_id, before=before, limit=limit)
    more = rows[0].number if len(rows) == limit else None
    return json_answer({"iterations": [iteration_json(row, alive=alive) for row in rows], "next": more})


@router.get("/runs/{run_id}/diffs", response_class=Response, responses={200: {"model": EventsOut}, **DENIED})
async def list_diffs(  # noqa: PLR0917 - each is a filter
    request: Request,
    run_id: RunId,
    after: Number = None,
    before: Number = None,
    iteration: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """What was changed: by each tool of the agent's, and by each iteration as a whole."""
    entry = await known_entry(request, run_id)
    wanted = EventFilter(after=after, before=before, types=_DIFFS, iteration=iteration, limit=limit)
    return json_answer(await _page(context_of(request).archive, entry, wanted))


async def known_entry(request: Request, run_id: str) -> RunEntry:
    """The entry of a run; 404 when there is none."""
    entry = await context_of(request).archive.runs.entry(run_id)
    if entry is None:
        raise HTTPException(404, "there is no such run here")
    return entry


async def _page(archive: Archive, entry: RunEntry, wanted: EventFilter) -> dict[str, Any]:
    """A page that ends at its limit, or where it would become too large."""
    if wanted.before is not None and wanted.after is None:
        events, more = await _backwards(archive, entry.run_id, wanted)
    else:
        events, more = await _forwards(archive, entry, wanted)
    return {"events": [event_struct(event) for event in events], "next": more}


async def _forwards(archive: Archive, entry: RunEntry, wanted: EventFilter) -> tuple[list[StoredEvent], int | None]:
    found: list[StoredEvent] = []
    size, last = 0, wanted.after or 0
    end = min(entry.last_seq, NEWEST if wanted.before is None else wanted.before - 1)
    while len(found) < wanted.limit and size < MOST_BYTES:
        limit = min(_AT_ONCE, wanted.limit - len(found))
        page = await archive.events.read(entry.run_id, replace(wanted, after=last, limit=limit))
        found += page
        if not page.more:
            # A search ends before it is through with a long run: it goes on where it certainly was.
            looked_at = last + MOST_SCANNED
            return found, looked_at if wanted.text and looked_at < end else None
        last = page[-1].seq
        size += sum(len(event.data) for event in page)
    return found, last


async def _backwards(archive: Archive, run_id: str, wanted: EventFilter) -> tuple[list[StoredEvent], int | None]:
    found: list[StoredEvent] = []
    size, first = 0, wanted.before or 0
    while len(found) < wanted.limit and size < MOST_BYTES:
        limit = min(_AT_ONCE, wanted.limit - len(found))
        page = await archive.events.read(run_id, replace(wanted, before=first, limit=limit))
        found = page + found
        if not page.more:
            looked_at = first - MOST_SCANNED
            return found, looked_at if wanted.text and looked_at > 1 else None
        first = page[0].seq
        size += sum(len(event.data) for event in page)
    return found, first


def _cursor(text: str | None) -> tuple[float, str] | None:
    if text is None:
        return None
    heard_at, _, run_id = text.partition(",")
    return float(heard_at), run_id
