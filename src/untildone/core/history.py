"""The iterations of a run as a table: one row each, however many tries it took."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from untildone.core import events as ev
from untildone.core.claims import says_done
from untildone.core.fold import apply
from untildone.core.state import LoopState, Spend

Verdict = Literal["passed", "failed", "blocked", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationRow:
    """One iteration, all its tries together."""

    number: int
    started_at: float = 0.0
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


def iteration_rows(records: Iterable[ev.Record]) -> list[IterationRow]:
    """The table of iterations, from a run's control records in order."""
    rows: dict[int, IterationRow] = {}
    state = LoopState()
    for record in records:
        after = apply(state, record)
        _book(rows, state, after, record.event)
        if _is_review(state, record.event):
            _note_review(rows, record.event)
        else:
            _note(rows, after, record)
        state = after
    if state.open is not None:
        _add(rows, state.open.number, state.open.spend)
    return [rows[number] for number in sorted(rows)]


def _book(rows: dict[int, IterationRow], before: LoopState, after: LoopState, event: ev.Event) -> None:
    """Money goes to the iteration that was open when the ledger grew."""
    if after.spend == before.spend:
        return
    number = before.open.number if before.open else getattr(event, "iteration_num", 0)
    booked = Spend(
        cost_usd=after.spend.cost_usd - before.spend.cost_usd,
        estimated_usd=after.spend.estimated_usd - before.spend.estimated_usd,
        unknown_costs=after.spend.unknown_costs - before.spend.unknown_costs,
    )
    _add(rows, number, booked)


def _add(rows: dict[int, IterationRow], number: int, spend: Spend) -> None:
    row = rows.get(number, IterationRow(number=number))
    rows[number] = replace(
        row,
        cost_usd=row.cost_usd + spend.cost_usd,
        estimated_usd=row.estimated_usd + spend.estimated_usd,
        unknown_costs=row.unknown_costs + spend.unknown_costs,
    )


def _is_review(before: LoopState, event: ev.Event) -> bool:
    if isinstance(event, ev.IterationStarted):
        return event.review
    ends = isinstance(event, ev.IterationCompleted | ev.IterationFailed)
    return ends and before.open is not None and before.open.review


def _note_review(rows: dict[int, IterationRow], event: ev.Event) -> None:
    """A review is no try of the iteration it looks at: only its verdict is noted there."""
    if isinstance(event, ev.IterationCompleted) and event.verdict is not None:
        row = _row(rows, event.iteration_num)
        rows[row.number] = replace(row, review="approved" if event.verdict.approved else "changes")


def _note(rows: dict[int, IterationRow], after: LoopState, record: ev.Record) -> None:
    event = record.event
    match event:
        case ev.IterationStarted():
            _abandon(rows, event.iteration_num)
            row = rows.get(event.iteration_num, IterationRow(number=event.iteration_num, started_at=record.at))
            rows[row.number] = replace(row, tries=row.tries + 1, outcome="running")
        case ev.IterationCompleted():
            rows[event.iteration_num] = _completed(_row(rows, event.iteration_num), event, after)
        case ev.IterationFailed():
            rows[event.iteration_num] = _failed(_row(rows, event.iteration_num), event)
        case ev.IterationValidation():
            rows[event.iteration_num] = replace(_row(rows, event.iteration_num), verdict=_verdict(event))
        case ev.LandingCommitted():
            row = _row(rows, event.iteration_num)
            rows[row.number] = replace(row, commits=(*row.commits, event.commit))
        case _:
            pass


def _verdict(event: ev.IterationValidation) -> Verdict:
    if event.passed:
        return "passed"
    is_green = bool(event.findings or event.checks) and all(check.passed for check in event.checks)
    return "blocked" if is_green else "failed"


def _row(rows: dict[int, IterationRow], number: int) -> IterationRow:
    return rows.get(number, IterationRow(number=number))


def _abandon(rows: dict[int, IterationRow], starting: int) -> None:
    """An iteration still running when another starts was left behind by a driver that died."""
    last = next(reversed(rows.values()), None)
    if last is not None and last.outcome == "running" and last.number != starting:
        rows[last.number] = replace(last, outcome="abandoned")


def _completed(row: IterationRow, event: ev.IterationCompleted, after: LoopState) -> IterationRow:
    report = event.claim.report
    return replace(
        row,
        outcome="ok",
        error="",
        seconds=row.seconds + event.duration_seconds,
        files_changed=row.files_changed + event.evidence.files_changed,
        claim=_claimed(event, after),
        summary=(report.summary if report else "") or event.output_preview,
    )


def _failed(row: IterationRow, event: ev.IterationFailed) -> IterationRow:
    return replace(
        row,
        outcome=event.error_type,
        error=event.error,
        faults=(*row.faults, event.error_type),
        seconds=row.seconds + event.duration_seconds,
        files_changed=row.files_changed + event.evidence.files_changed,
    )


def _claimed(event: ev.IterationCompleted, after: LoopState) -> str:
    """What the agent said of itself, whether or not it counts: with boxes to tick, words do not."""
    if after.streak:
        return f"done ({after.streak_form})"
    policy = after.policy
    if says_done(event.claim, strict=policy.strict_completion, indicator_threshold=policy.indicator_threshold):
        return f"done ({event.claim.form})"
    return "blocked" if after.blocked is not None else ""
