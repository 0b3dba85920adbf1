"""All runs: the list, its filters and pages, and the rows that changed."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from untildone.core.durations import DAY
from untildone.server.access import Principal, viewer
from untildone.server.archive.port import RunEntry, RunFilter
from untildone.server.context import Context, context_of
from untildone.server.pages.rendering import answer
from untildone.server.pages.shaping import Totals, fleet_row, totals
from untildone.server.pages.visiting import visitor_of
from untildone.server.paths import Text

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])

PAGE = 50
_MOST_ROWS = 60
_CHOICES = (
    ("", "All"),
    ("running", "Running"),
    ("waiting", "Waiting"),
    ("paused", "Paused"),
    ("interrupted", "Interrupted"),
    ("suspended", "Suspended"),
    ("completed", "Completed"),
)
Status = Annotated[str, Query(max_length=30, pattern=r"^[^\x00]*$")]


@router.get("/")
async def fleet(
    request: Request, who: Annotated[Principal, Depends(viewer)], text: Text = "", status: Status = "", before: str = ""
) -> Response:
    """The list of runs, the one heard of last first."""
    context = context_of(request)
    now = context.clock.now()
    statuses = (status,) if status else ()
    wanted = RunFilter(text=text, statuses=statuses, now=now, before=_cursor(before), limit=PAGE + 1)
    entries = await context.archive.runs.entries(wanted)

    def filter_query(**changes: str) -> str:
        return urlencode({k: v for k, v in ({"text": text, "status": status} | changes).items() if v})

    return answer(
        "fleet.html",
        {
            "visitor": visitor_of(who),
            "totals": await _totals(context),
            "rows": [fleet_row(entry, now) for entry in entries[:PAGE]],
            "choices": _CHOICES,
            "status": status,
            "text": text,
            "filter_query": filter_query,
            "is_first": wanted.before is None,
            "older": _cursor_of(entries[PAGE - 1]) if len(entries) > PAGE else "",
            "base_url": str(request.base_url).rstrip("/"),
            "here": context.settings.local,
            "needs_token": context.settings.is_closed,
        },
    )


@router.get("/parts/rows")
async def rows(
    request: Request,
    run: Annotated[list[Annotated[str, Query(max_length=120)]] | None, Query()] = None,
    text: Text = "",
    status: Status = "",
) -> Response:
    """Rows of runs that changed, as far as the list that is looked at has them, and the totals."""
    context = context_of(request)
    now = context.clock.now()
    asked = tuple(name for name in (run or [])[:_MOST_ROWS] if name)
    statuses = (status,) if status else ()
    wanted = RunFilter(run_ids=asked, text=text, statuses=statuses, now=now, limit=_MOST_ROWS)
    entries = await context.archive.runs.entries(wanted) if asked else []
    gone = sorted({*asked} - {entry.run_id for entry in entries})
    shown = [fleet_row(entry, now) for entry in entries]
    return answer("parts/fleet_rows.html", {"totals": await _totals(context), "rows": shown, "gone": gone})


async def _totals(context: Context) -> Totals:
    runs = context.archive.runs
    now = context.clock.now()
    # Not of today: when a day begins, the server and whoever looks may see differently.
    return totals(await runs.counts(now=now), await runs.spent_since(now - DAY))


def _cursor_of(entry: RunEntry) -> str:
    return f"{entry.heard_at!r}~{entry.run_id}"


def _cursor(text: str) -> tuple[float, str] | None:
    """Where the page before ended; nothing for what no page of ours has written."""
    at, _, run_id = text.partition("~")
    try:
        return (float(at), run_id[:120]) if run_id else None
    except ValueError:
        return None
