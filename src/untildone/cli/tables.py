"""Tables and paragraphs of plain text for the looking commands."""

from collections.abc import Container, Iterable, Sequence

from untildone.cli.streams import hanging
from untildone.core.durations import format_duration
from untildone.core.events import Record
from untildone.core.figures import dollars, short_commit
from untildone.core.history import IterationRow, iteration_rows
from untildone.core.printable import ELLIPSIS, columns, cut, one_line
from untildone.core.views import NO_SESSION, RunView
from untildone.ports import RunRow

_NAME_WIDTH = 40
_SUMMARY_WIDTH = 60
_NARROWEST = 12
"""Columns below which cutting leaves nothing to read."""


def runs_table(rows: Sequence[RunRow], now: float, width: int | None = None, *, in_session: Container[str] = ()) -> str:
    """All runs, one a line; on a screen of `width` columns only the end of a long path.

    `in_session`: ids of the loops inside Claude Code, which wait for nothing but a session.
    """
    if not rows:
        return 'no runs yet: start one with `untildone run "GOAL" -m 5`, or try `untildone rehearse`'
    lines = [("RUN", "ID", "STATUS", "LAST EVENT", "FOLDER")]
    for row in rows:
        interrupted = row.status == "running" and not row.alive
        no_session = row.status == "waiting" and row.run_id in in_session
        status = "interrupted" if interrupted else NO_SESSION if no_session else row.status
        age = f"{format_duration(max(0.0, now - row.updated_at))} ago"
        lines.append((one_line(row.name, _NAME_WIDTH), row.run_id, status, age, one_line(row.folder)))
    room = _room(lines, width)
    return aligned([(*line[:-1], _end_of(line[-1], room)) for line in lines])


def _end_of(path: str, room: int | None) -> str:
    return path if room is None or len(path) <= room else ELLIPSIS + path[1 - room :]


def iterations_table(records: Iterable[Record], width: int | None = None) -> str:
    """The iterations of a run, one a line, cut to `width` columns."""
    rows = iteration_rows(records)
    if not rows:
        return "no iterations yet"
    return aligned(
        [("#", "OUTCOME", "COST", "TIME", "FILES", "COMMIT", "CLAIM", "CHECKS", "SUMMARY"), *map(_cells, rows)], width
    )


def _cells(row: IterationRow) -> tuple[str, ...]:
    tries = f" ({row.tries} tries)" if row.tries > 1 else ""
    cost = "unknown" if row.unknown_costs and not row.cost_usd else dollars(row.cost_usd + row.estimated_usd)
    commit = short_commit(row.commits[-1]) if row.commits else "-"
    claim, verdict = row.claim or "-", row.verdict or "-"
    time, files = format_duration(row.seconds), str(row.files_changed)
    words = one_line(row.summary or row.error, _SUMMARY_WIDTH)
    return (str(row.number), row.outcome + tries, cost, time, files, commit, claim, verdict, words)


def status_text(view: RunView, width: int | None = None) -> str:
    """Where a run stands, for a person; wrapped at `width` columns."""
    facts = [
        ("run", f"{view.name} ({view.run_id})"),
        ("goal", view.goal),
        ("status", view.phase + (f": {view.detail}" if view.detail else "")),
        ("iteration", f"{view.iteration}" + (f", {view.failed} failed" if view.failed else "")),
        ("spent", f"{view.cost} in {format_duration(view.elapsed_seconds)}"),
        *_ledger(view),
        *((gauge.label, gauge.text) for gauge in view.gauges),
        ("checks", view.verdict),
        *view.standing,
        ("done claims", f"{view.streak} of {view.streak_needed}" + (" in a row" if view.streak_needed > 1 else "")),
        ("breaker", view.breaker),
        ("commits", f"{view.commits}" + (f", last {short_commit(view.last_commit)}" if view.last_commit else "")),
    ]
    facts += [("warning", told) for told in view.meddling]
    if view.tasks_open is not None:
        facts.append(("open tasks", str(view.tasks_open)))
    if view.report is not None and view.report.summary:
        facts.append(("agent says", one_line(view.report.summary, 100)))
    if view.advice:
        facts.append(("next", view.advice))
    widest = max(len(label) for label, _ in facts)
    return "\n".join(hanging(f"{label:>{widest}}  ", text, width) for label, text in facts)


def _ledger(view: RunView) -> list[tuple[str, str]]:
    return [(label, text) for label, text in (("paid by", view.paid_by), ("lost", view.lost)) if text]


def aligned(rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Rows as columns; with `width`, the last column is cut to fit if enough of it is left."""
    room = _room(rows, width)
    rows = [(*row[:-1], cut(row[-1], room)) for row in rows]
    widths = _widths(rows)
    return "\n".join(
        "  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(columns(row[at]) for row in rows) for at in range(len(rows[0]))]


def _room(rows: Sequence[Sequence[str]], width: int | None) -> int | None:
    """Columns left for the last column; None: as many as it takes."""
    left = 0 if width is None else width - sum(taken + 2 for taken in _widths(rows)[:-1])
    return left if left >= _NARROWEST else None
