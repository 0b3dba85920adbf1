"""Search: runs by their names and goals, and the events of one run by their text."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from untildone.server.access import Principal, viewer
from untildone.server.archive.port import EventFilter, EventPage, RunFilter
from untildone.server.context import Context, context_of
from untildone.server.pages.activity import lines_of
from untildone.server.pages.rendering import answer
from untildone.server.pages.shaping import fleet_row
from untildone.server.pages.visiting import visitor_of
from untildone.server.paths import NEWEST, Text

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])

PAGE = 200
_RUNS = 50
_KINDS = {
    "": "Everything",
    "agent.assistant_message": "What the agent said",
    "agent.tool_use": "Tool calls",
    "agent.tool_result": "Answers of tools",
    "agent.message_injected": "Messages to the agent",
    "iteration.*": "Iterations and checks",
    "landing.*": "Commits and landing",
    "continuous.*": "The run itself",
}


@router.get("/search")
async def search(  # noqa: PLR0917 -- FastAPI names them all
    request: Request,
    who: Annotated[Principal, Depends(viewer)],
    text: Text = "",
    run: Annotated[str, Query(max_length=120)] = "",
    type: str = "",  # noqa: A002 -- the name in the address
    before: Annotated[int, Query(ge=1, le=NEWEST)] = NEWEST,
) -> Response:
    """What was found; without a run, runs."""
    context = context_of(request)
    values = {"visitor": visitor_of(who), "searched": text, "kinds": _KINDS.items(), "kind": type}
    found = await _events(context, run, text, type if type in _KINDS else "", before) if run else None
    if found is None:
        rows = await context.archive.runs.entries(RunFilter(text=text, limit=_RUNS)) if text else []
        now = context.clock.now()
        found = {"run": None, "rows": [fleet_row(entry, now) for entry in rows]}
    return answer("search.html", values | found)


async def _events(context: Context, run: str, text: str, kind: str, before: int) -> dict[str, object] | None:
    entry = await context.archive.runs.entry(run)
    if entry is None:
        return None
    wanted = EventFilter(before=before, text=text, types=(kind,) if kind else (), limit=PAGE)
    events = await context.archive.events.read(run, wanted) if text or kind else EventPage()
    older = {"run": run, "text": text, "type": kind, "before": events[0].seq} if events.more else None
    return {
        "run": {"run_id": run, "name": entry.projection.name or run, "only_iteration": None},
        "lines": lines_of(events),
        "older": urlencode(older) if older else "",
    }
