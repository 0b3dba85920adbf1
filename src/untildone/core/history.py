"""The iterations of a run as a table: one row each, however many tries it took."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from untildone.core import events as ev
from untildone.core.claims import claims_done
from untildone.core.dataclass import dataclass
from untildone.core.fold import apply
from untildone.core.state import LoopState, Spend

Verdict = Literal["passed", "failed", "blocked", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationRow:
    """One iteration, all its tries together."""

    number: int
    started_at: float = 0.0
    first_seq: int = 0
    """The number of the event that began its first try."""
    tries: int = 0
    outcome: str = "running"
    """`ok`, `running`, `abandoned`, or the name of the fault that ended its last try."""
    faults: tuple[str, ...] = ()
    """Names of all faults met, in order."""
    error: str = ""
    cost_usd: float = 0.0
    """Replies served in full."""
    estimated_usd: float = 0.0
    unknown_costs: int = 0
    """Replies or tries whose price nobody knows; the true cost is higher."""
    seconds: float = 0.0
    files_changed: int = 0
    commits: tuple[str, ...] = ()
    claim: str = ""
    """`done (report)`, `blocked`, or nothing: what the agent claimed at its end."""
    summary: str = ""
    """The agent's own words on what was done."""
    verdict: Verdict = ""
    """What the loop's own checks said after a claim; `blocked`: they passed, and something else was in the way."""
    review: Literal["approved", "changes", ""] = ""
    """What a reviewer said about it; its cost is part of the row."""
    session_id: str = ""
    """The conversation it ended in, as far as known."""


class _Table:
    """Rows that are looked up in one table and changed in another: what a record changed is known afterwards."""

    def __init__(self, rows: Mapping[int, IterationRow]) -> None:
        self._rows = rows
        self.changed: dict[int, IterationRow] = {}

    def row(self, number: int) -> IterationRow:
        found = self.changed.get(number) or self._rows.get(number)
        return found or IterationRow(number=number)

    def put(self, row: IterationRow) -> None:
        self.changed[row.number] = row

    def last(self) -> IterationRow | None:
        number = max((*self._rows, *self.changed), default=None)
        return None if number is None else self.row(number)


def iteration_rows(records: Iterable[ev.Record]) -> list[IterationRow]:
    """The table of iterations, from a run's control records in order."""
    rows: dict[int, IterationRow] = {}
    last = 0
    state = LoopState()
    for record in records:
        after = apply(state, record)
        wanted = (last, *rows_needed(state, record))
        changed = changed_rows({number: rows[number] for number in wanted if number in rows}, state, after, record)
        rows |= changed
        last = max((last, *changed))
        state = after
    rows |= running_row(rows, state)
    return [rows[number] for number in sorted(rows)]


def rows_needed(before: LoopState, record: ev.Record) -> tuple[int, ...]:
    """The numbers of the rows that a record can change, beside the last one there is."""
    named = getattr(record.event, "iteration_num", None)
    under_way = before.open.number if before.open else None
    return tuple(number for number in (named, under_way) if number is not None)


def changed_rows(
    rows: Mapping[int, IterationRow], before: LoopState, after: LoopState, record: ev.Record
) -> dict[int, IterationRow]:
    """The rows that one record changes. Of `rows` those in `rows_needed` and the last one are enough."""
    table = _Table(rows)
    _book(table, before, after, record.event)
    if _is_aside(before, record.event):
        _note_review(table, record.event)
    else:
        _note(table, after, record)
    return table.changed


def running_row(rows: Mapping[int, IterationRow], state: LoopState) -> dict[int, IterationRow]:
    """The row of the open iteration as people see it: what it has spent so far is booked only when it ends."""
    table = _Table(rows)
    if state.open is not None:
        _add(table, state.open.number, state.open.spend)
    return table.changed


def _book(table: _Table, before: LoopState, after: LoopState, event: ev.Event) -> None:
    """Money goes to the iteration that was open when the ledger grew."""
    if after.spend == before.spend:
        return
    number = before.open.number if before.open else getattr(event, "iteration_num", 0)
    booked = Spend(
        cost_usd=after.spend.cost_usd - before.spend.cost_usd,
        estimated_usd=after.spend.estimated_usd - before.spend.estimated_usd,
        unknown_costs=after.spend.unknown_costs - before.spend.unknown_costs,
    )
    _add(table, number, booked)


def _add(table: _Table, number: int, spend: Spend) -> None:
    row = table.row(number)
    table.put(
        replace(
            row,
            cost_usd=row.cost_usd + spend.cost_usd,
            estimated_usd=row.estimated_usd + spend.estimated_usd,
            unknown_costs=row.unknown_costs + spend.unknown_costs,
        )
    )


def _is_aside(before: LoopState, event: ev.Event) -> bool:
    if isinstance(event, ev.IterationStarted):
        return event.review or event.question
    ends = isinstance(event, ev.IterationCompleted | ev.IterationFailed)
    return ends and before.open is not None and (before.open.review or before.open.question)


def _note_review(table: _Table, event: ev.Event) -> None:
    """Neither a review nor a question is a try of the iteration it is about: only a verdict is noted there."""
    if isinstance(event, ev.IterationCompleted) and event.verdict is not None:
        row = table.row(event.iteration_num)
        table.put(replace(row, review="approved" if event.verdict.approved else "changes"))


def _note(table: _Table, after: LoopState, record: ev.Record) -> None:
    event = record.event
    match event:
        case ev.IterationStarted():
            _abandon(table, event.iteration_num)
            row = table.row(event.iteration_num)
            begun = replace(row, started_at=row.started_at or record.at, first_seq=row.first_seq or record.seq)
            table.put(replace(begun, tries=row.tries + 1, outcome="running"))
        case ev.IterationCompleted():
            table.put(_completed(table.row(event.iteration_num), event, after))
        case ev.IterationFailed():
            table.put(_failed(table.row(event.iteration_num), event))
        case ev.IterationValidation():
            table.put(replace(table.row(event.iteration_num), verdict=_verdict(event)))
        case ev.LandingCommitted():
            row = table.row(event.iteration_num)
            # What is in the commit is the truth; what each try seemed to change was seen by looking at the tree.
            before = row.files_changed if row.commits or not event.files_changed else 0
            table.put(replace(row, commits=(*row.commits, event.commit), files_changed=before + event.files_changed))
        case _:
            pass


def _verdict(event: ev.IterationValidation) -> Verdict:
    if event.passed:
        return "passed"
    is_green = bool(event.findings or event.checks) and all(check.passed for check in event.checks)
    return "blocked" if is_green else "failed"


def _abandon(table: _Table, starting: int) -> None:
    """An iteration still running when another starts was left behind by a driver that died."""
    last = table.last()
    if last is not None and last.outcome == "running" and last.number != starting:
        table.put(replace(last, outcome="abandoned"))


def _completed(row: IterationRow, event: ev.IterationCompleted, after: LoopState) -> IterationRow:
    report = event.claim.report
    return replace(
        row,
        outcome="ok",
        error="",
        seconds=row.seconds + event.duration_seconds,
        files_changed=row.files_changed + event.evidence.files_changed,
        claim=_claimed(event, after),
        session_id=event.session_id or row.session_id,
        summary=(report.summary if report else "") or event.output_preview,
    )


def _failed(row: IterationRow, event: ev.IterationFailed) -> IterationRow:
    return replace(
        row,
        outcome=event.error_type,
        error=event.error,
        faults=(*row.faults, event.error_type),
        session_id=event.session_id or row.session_id,
        seconds=row.seconds + event.duration_seconds,
        files_changed=row.files_changed + event.evidence.files_changed,
    )


def _claimed(event: ev.IterationCompleted, after: LoopState) -> str:
    """What the agent said of itself, whether or not it counts: with boxes to tick, words do not."""
    if after.streak:
        return f"done ({after.streak_form})"
    if after.blocked is not None:
        return "blocked"
    policy = after.policy
    said = claims_done(event.claim, strict=policy.strict_completion, indicator_threshold=policy.indicator_threshold)
    return f"done ({event.claim.form})" if said else ""
