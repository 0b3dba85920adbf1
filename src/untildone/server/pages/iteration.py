"""One iteration: what it was asked, what it claimed, what the checks said, what it changed, what it cost."""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.diffs import ChangedFile
from untildone.core.figures import short_commit
from untildone.core.history import IterationRow
from untildone.core.lines_delivery import validation_line
from untildone.core.printable import one_line
from untildone.server.access import Principal, viewer
from untildone.server.archive.port import EventFilter, EventPage, StoredEvent
from untildone.server.context import Context, context_of
from untildone.server.folding import seen
from untildone.server.pages.activity import lines_of, record_of
from untildone.server.pages.evidence import checks_of
from untildone.server.pages.rendering import answer
from untildone.server.pages.run import missing
from untildone.server.pages.shaping import step_of
from untildone.server.pages.texts import diff_lines, visible
from untildone.server.pages.visiting import visitor_of
from untildone.server.paths import RunId

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])

_LINES = 200
_MARKS = 100
_FILES = 200
_TOLD = ("iteration.*", "landing.committed")


@router.get("/runs/{run_id}/iterations/{number}")
async def iteration_page(
    request: Request,
    run_id: RunId,
    number: Annotated[int, Path(ge=0, le=2**31 - 1)],
    who: Annotated[Principal, Depends(viewer)],
) -> Response:
    """The page of an iteration."""
    context, visitor = context_of(request), visitor_of(who)
    entry = await context.archive.runs.entry(run_id)
    if entry is None:
        return missing(visitor, run_id)
    rows = await context.archive.runs.iterations(run_id, before=number + 1, limit=1)
    if not rows or rows[-1].number != number:
        said = f"Iteration {number} of {run_id} has not begun."
        return answer("problem.html", {"visitor": visitor, "title": "No such iteration", "said": said}, status=404)
    values = await _gather(context, run_id, rows[-1], alive=seen(entry, context.clock.now()).alive)
    values["run"] |= {"name": one_line(entry.projection.name, 100) or run_id}
    return answer("iteration.html", values | {"visitor": visitor, "has_next": entry.projection.attempts > number})


async def _gather(context: Context, run_id: str, row: IterationRow, *, alive: bool) -> dict[str, Any]:
    events = context.archive.events
    marks = await events.read(
        run_id, EventFilter(before=2**53, iteration=row.number, types=_TOLD, limit=_MARKS)
    )  # fmt: skip
    recent = await events.read(run_id, EventFilter(before=2**53, iteration=row.number, limit=_LINES))
    return await asyncio.to_thread(iteration_shape, run_id, row, marks, recent, alive=alive)


def iteration_shape(
    run_id: str, row: IterationRow, marks: list[StoredEvent], recent: EventPage, *, alive: bool
) -> dict[str, Any]:
    """All values of an iteration's page."""
    told = [record_of(stored).event for stored in marks]
    ends = [event for event in told if isinstance(event, ev.IterationCompleted)]
    run = {"run_id": run_id, "only_iteration": row.number, "lines": lines_of(recent)}
    return {
        "run": run | {"has_earlier": recent.more},
        "number": row.number,
        "step": step_of(row, alive=alive),
        "under_way": row.outcome == "running" and alive,
        "prompts": _prompts(told),
        "claims": _claims(ends),
        "output": visible(ends[-1].output_preview) if ends else "",
        "looks": _looks(told),
        "changes": [_change(event) for event in told if isinstance(event, tr.IterationFilesChanged)][-1:],
        "commits": _commits(told),
        "faults": lines_of(stored for stored in marks if stored.type == ev.IterationFailed.TYPE),
    }


def _prompts(told: Iterable[ev.Event]) -> list[dict[str, str]]:
    begun = [event for event in told if isinstance(event, ev.IterationStarted) and event.prompt_preview]
    return [{"title": _title(event), "text": visible(event.prompt_preview)} for event in begun]


def _title(event: ev.IterationStarted) -> str:
    what = (
        "Review"
        if event.review
        else "Last question"
        if event.question
        else "Hand-off"
        if event.handoff
        else "How it begins"
    )
    return f"{what}, try {event.retry + 1}" if event.retry else what


def _claims(ends: list[ev.IterationCompleted]) -> list[tuple[str, str]]:
    if not ends:
        return []
    claim = ends[-1].claim
    report = claim.report
    facts: list[tuple[str, str]] = [("Form", "" if claim.form == "none" else claim.form)]
    if report is not None:
        facts += [
            ("Status", report.status),
            ("All done", {True: "yes", False: "no", None: ""}[report.exit_signal]),
            ("Tests", report.tests_status),
            ("Work", report.work_type.lower()),
            ("Next", report.recommendation),
            ("Assumed", "; ".join(report.assumptions)),
            ("Asks", "; ".join(report.questions)),
        ]
    verdict = ends[-1].verdict
    facts += [("Review", "approved" if verdict.approved else verdict.findings)] if verdict else []
    return [(label, one_line(value, 600)) for label, value in facts if value]


def _looks(told: Iterable[ev.Event]) -> list[dict[str, Any]]:
    looks = [event for event in told if isinstance(event, ev.IterationValidation)]
    return [{"said": validation_line(look, 0.0), "checks": checks_of(look.checks)} for look in reversed(looks)]


def _change(event: tr.IterationFilesChanged) -> dict[str, Any]:
    diff = event.full_diff or event.diff_preview
    return {
        "files_changed": event.files_changed,
        "lines_added": event.lines_added,
        "lines_removed": event.lines_removed,
        "files": [_file(file) for file in event.files[:_FILES]],
        "diff": diff_lines(diff) if diff else [],
        "cut": not event.full_diff_available,
    }


def _file(file: ChangedFile) -> dict[str, Any]:
    return {
        "file_path": one_line(file.file_path, 300),
        "change_type": file.change_type,
        "lines_added": file.lines_added,
        "lines_removed": file.lines_removed,
    }


def _commits(told: Iterable[ev.Event]) -> list[dict[str, str]]:
    made = [event for event in told if isinstance(event, ev.LandingCommitted)]
    return [
        {
            "id": short_commit(one_line(event.commit, 40)),
            "message": one_line(event.message.split("\n", 1)[0], 200),
            "by": f"by the {event.by}",
        }
        for event in made
    ]
