"""One run: where it stands, what proves it, what happens, and the parts that change while one looks."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from untildone.server.access import Principal, viewer
from untildone.server.archive.port import EventFilter, RunEntry
from untildone.server.context import Context, context_of
from untildone.server.folding import state_of
from untildone.server.pages.activity import lines_of, whole_text
from untildone.server.pages.gathering import LINES, STEPS, gather, newest
from untildone.server.pages.rendering import answer
from untildone.server.pages.run_shape import run_shape, steps_shape
from untildone.server.pages.series import check_points, spend_points
from untildone.server.pages.texts import diff_lines, piece_of
from untildone.server.pages.visiting import Visitor, visitor_of
from untildone.server.paths import NEWEST, RunId, Seq

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])

_PARTS = frozenset({"all", "head", "activity", "timeline", "evidence", "gauges", "talk", "trouble", "notes"})
_POINTS = 500
_DIFF = 60_000
Looker = Annotated[Principal, Depends(viewer)]


@router.get("/runs/{run_id}")
async def run_page(request: Request, run_id: RunId, who: Looker) -> Response:
    """The page of a run."""
    context, visitor = context_of(request), visitor_of(who)
    entry = await context.archive.runs.entry(run_id)
    if entry is None:
        return missing(visitor, run_id)
    shape = run_shape(await gather(context, entry), context.clock.now())
    return answer("run.html", {"visitor": visitor, "run": shape})


def missing(visitor: Visitor, run_id: str) -> Response:
    """The page of a run nobody has heard of."""
    said = f"No run {run_id} was ever heard of here."
    return answer("problem.html", {"visitor": visitor, "title": "No such run", "said": said}, status=404)


@router.get("/runs/{run_id}/parts/earlier")
async def earlier(
    request: Request, run_id: RunId, before: Annotated[int, Query(ge=1, le=NEWEST)],
    iteration: Annotated[int | None, Query(ge=0, le=2**31)] = None,
) -> Response:  # fmt: skip
    """Lines before those that are shown."""
    wanted = EventFilter(before=before, iteration=iteration, limit=LINES)
    events = await context_of(request).archive.events.read(run_id, wanted)
    lines = await asyncio.to_thread(lines_of, events)
    values = {
        "run": {"run_id": run_id, "only_iteration": iteration},
        "lines": lines,
        "earliest": events[0].seq if events.more else None,
    }
    return answer("parts/earlier_lines.html", values)


@router.get("/runs/{run_id}/parts/older")
async def older(
    request: Request, run_id: RunId, before: Annotated[int, Query(ge=0, le=2**31)]
) -> Response:  # fmt: skip
    """Iterations before those that are shown."""
    rows = await context_of(request).archive.runs.iterations(run_id, before=before, limit=STEPS)
    # Only the newest one can be under way.
    return answer("parts/older_steps.html", {"run": {"run_id": run_id, **steps_shape(rows, alive=False)}})


@router.get("/runs/{run_id}/parts/series")
async def series(request: Request, run_id: RunId) -> Response:
    """Numbers for the plots."""
    context = context_of(request)
    entry = await context.archive.runs.entry(run_id)
    values = await _series(context, entry) if entry is not None else {}
    return JSONResponse(values, headers={"Cache-Control": "no-store"})


async def _series(context: Context, entry: RunEntry) -> dict[str, Any]:
    rows = await context.archive.runs.iterations(entry.run_id, limit=_POINTS)
    looks = await newest(context, entry.run_id, "iteration.validation", "continuous.baseline", limit=_POINTS)
    checks, most = await asyncio.to_thread(check_points, looks)
    state = state_of(entry)
    return {
        "spend": spend_points(rows, state.spent_usd, state.started_at, entry.heard_at),
        "budget": state.policy.max_cost_usd,
        "checks": checks,
        "most": most,
    }


@router.get("/runs/{run_id}/parts/{name}")
async def part(request: Request, run_id: RunId, name: str, who: Looker) -> Response:
    """A part of a run's page, or all that change."""
    context, visitor = context_of(request), visitor_of(who)
    entry = await context.archive.runs.entry(run_id) if name in _PARTS else None
    if entry is None:
        return Response(status_code=404)
    shape = run_shape(await gather(context, entry, with_lines=name == "activity"), context.clock.now())
    return answer(f"parts/run_{name}.html", {"visitor": visitor, "run": shape})


@router.get("/runs/{run_id}/events/{seq}")
async def event(
    request: Request, run_id: RunId, seq: Seq, start: Annotated[int, Query(ge=0, le=NEWEST)] = 0
) -> Response:
    """All that an event says, a bounded piece at a time."""
    stored = await context_of(request).archive.events.event(run_id, seq)
    if stored is None:
        return Response(status_code=404)
    text, is_diff = await asyncio.to_thread(whole_text, stored)
    piece = await asyncio.to_thread(piece_of, text, start)
    diff = await asyncio.to_thread(diff_lines, text[:_DIFF]) if is_diff else None
    values = {"run": {"run_id": run_id}, "seq": seq, "piece": piece, "diff": diff}
    if diff is not None:
        values["piece"] = piece_of("")
    return answer("parts/piece.html", values)
