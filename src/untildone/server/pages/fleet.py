"""All runs: the list, its filters and pages, and the rows that changed."""

from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from untildone.server.access import Principal, viewer
from untildone.server.archive.port import RunEntry, RunFilter
from untildone.server.context import Context, context_of
from untildone.server.folding import AT_WORK
from untildone.server.pages.rendering import answer
from untildone.server.pages.shaping import Totals, fleet_row, totals
from untildone.server.pages.visiting import visitor_of
from untildone.server.paths import Text

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])

PAGE = 50
_MOST_ROWS = 60
_MOST_LIVELY = 200
_CHOICES = (
    ("", "All"),
    ("running", "Running"),
    ("waiting", "Waiting"),
    ("paused", "Paused"),
    ("suspended", "Suspended"),
    ("completed", "Completed"),
)


@router.get("/")
async def fleet(
    request: Request, who: Annotated[Principal, Depends(viewer)], text: Text = "", status: str = "", before: str = ""
) -> Response:
    """The list of runs, the one heard of last first."""
    context = context_of(request)
    status = status if status in dict(_CHOICES) else ""
    wanted = RunFilter(text=text, statuses=(status,) if status else (), before=_cursor(before), limit=PAGE + 1)
    entries = await context.archive.runs.entries(wanted)
    now = context.clock.now()

    def filter_query(**changes: str) -> str:
        return urlencode({k: v for k, v in ({"text": text, "status": status} | changes).items() if v})

    return answer(
        "fleet.html",
        {
            "visitor": visitor_of(request, who),
            "totals": await _totals(context),
            "rows": [fleet_row(entry, now) for entry in entries[:PAGE]],
            "choices": _CHOICES,
            "status": status,
            "text": text,
            "filter_query": filter_query,
            "is_first": wanted.before is None,
            "older": _cursor_of(entries[PAGE - 1]) if len(entries) > PAGE else "",
            "base_url": str(request.base_url).rstrip("/"),
        },
    )


@router.get("/parts/rows")
async def rows(request: Request, run: Annotated[list[str] | None, Query()] = None) -> Response:
    """Rows of runs that changed, and the totals."""
    context = context_of(request)
    now = context.clock.now()
    wanted = RunFilter(run_ids=tuple(name for name in (run or [])[:_MOST_ROWS] if name), limit=_MOST_ROWS)
    entries = await context.archive.runs.entries(wanted) if wanted.run_ids else []
    values = {"totals": await _totals(context), "rows": [fleet_row(entry, now) for entry in entries]}
    return answer("parts/fleet_rows.html", values)


async def _totals(context: Context) -> Totals:
    runs = context.archive.runs
    now = context.clock.now()
    midnight = datetime.fromtimestamp(now).astimezone().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    lively = await runs.entries(RunFilter(statuses=tuple(sorted(AT_WORK)), limit=_MOST_LIVELY))
    return totals(lively, await runs.counts(), await runs.spent_since(midnight), now)


def _cursor_of(entry: RunEntry) -> str:
    return f"{entry.heard_at!r}~{entry.run_id}"


def _cursor(text: str) -> tuple[float, str] | None:
    """Where the page before ended; nothing for what no page of ours has written."""
    at, _, run_id = text.partition("~")
    try:
        return (float(at), run_id[:120]) if run_id else None
    except ValueError:
        return None
