"""Tables and paragraphs of plain text for the looking commands."""

from collections.abc import Iterable, Sequence

from untildone.core.durations import format_duration
from untildone.core.events import Record
from untildone.core.figures import dollars, short_commit
from untildone.core.history import IterationRow, iteration_rows
from untildone.core.printable import columns, one_line
from untildone.core.views import RunView
from untildone.ports import RunRow

_NAME_WIDTH = 40
_SUMMARY_WIDTH = 60


def runs_table(rows: Sequence[RunRow], now: float) -> str:
    """All runs, one a line."""
    if not rows:
        return 'no runs yet: start one with `untildone run "GOAL" -m 5`, or try `untildone rehearse`'
    lines = [("RUN", "ID", "STATUS", "LAST EVENT", "FOLDER")]
    for row in rows:
        interrupted = row.status == "running" and not row.alive
        status = "interrupted" if interrupted else row.status
        age = f"{format_duration(max(0.0, now - row.updated_at))} ago"
        lines.append((one_line(row.name, _NAME_WIDTH), row.run_id, status, age, one_line(row.folder)))
    return aligned(lines)


def iterations_table(records: Iterable[Record]) -> str:
    """The iterations of a run, one a line."""
    rows = iteration_rows(records)
    if not rows:
        return "no iterations yet"
    return aligned(
        [("#", "OUTCOME", "COST", "TIME", "FILES", "COMMIT", "CLAIM", "CHECKS", "SUMMARY"), *map(_cells, rows)]
    )


def _cells(row: IterationRow) -> tuple[str, ...]:
    tries = f" ({row.tries} tries)" if row.tries > 1 else ""
    cost = "unknown" if row.unknown_costs and not row.cost_usd else dollars(row.cost_usd + row.estimated_usd)
    commit = short_commit(row.commits[-1]) if row.commits else "-"
    claim, verdict = row.claim or "-", row.verdict or "-"
    time, files = format_duration(row.seconds), str(row.files_changed)
    words = one_line(row.summary or row.error, _SUMMARY_WIDTH)
    return (str(row.number), row.outcome + tries, cost, time, files, commit, claim, verdict, words)


def status_text(view: RunView) -> str:
    """Where a run stands, for a person."""
    facts = [
        ("run", f"{view.name} ({view.run_id})"),
        ("goal", view.goal),
        ("status", view.phase + (f": {view.detail}" if view.detail else "")),
        ("iteration", f"{view.iteration}, {view.successes} succeeded"),
        ("spent", f"{view.cost} in {format_duration(view.elapsed_seconds)}"),
        *((gauge.label, gauge.text) for gauge in view.gauges),
        ("checks", view.verdict),
        ("claims", f"{view.streak} of {view.streak_needed} in a row"),
        ("breaker", view.breaker),
        ("commits", f"{view.commits}" + (f", last {short_commit(view.last_commit)}" if view.last_commit else "")),
    ]
    if view.tasks_open is not None:
        facts.append(("open tasks", str(view.tasks_open)))
    if view.report is not None and view.report.summary:
        facts.append(("agent says", one_line(view.report.summary, 100)))
    if view.advice:
        facts.append(("next", view.advice))
    return "\n".join(f"{label:>10}  {text}" for label, text in facts)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as columns."""
    widths = [max(columns(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
