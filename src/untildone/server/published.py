"""What a run looks like whose program speaks the published endpoints only: guessed from what it sends, and no more.

Such a program has no log, its events have no types that anybody checked: any value may be of any kind.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import msgspec

from untildone.core.dataclass import dataclass
from untildone.core.history import IterationRow
from untildone.core.printable import one_line
from untildone.core.stopping import DONE, meaning
from untildone.server.archive.port import Projection, StoredEvent

DECIDING: tuple[str, ...] = (
    "continuous.*",
    "iteration.*",
    "agent.started",
    "agent.waiting",
    "agent.completed",
    "agent.error",
    "agent.shutdown",
)
"""The events that say something about where a run stands."""

_NAME_WIDTH = 200
_LONG_WIDTH = 500
_WORDS = 4000
_LARGEST = 2**31 - 1
_MOST_USD = 1e12
_FAULTS_KEPT = 100
_LIMITS = {"max_runs": "successes", "max_cost_usd": "cost_usd"}
"""The published limits that can be measured from outside, and what counts against them."""
_STANDS = {
    "agent.completed": ("completed", "completed", "The agent says that it has finished."),
    "agent.error": ("suspended", "failed", "The agent met an error: WHAT"),
    "agent.shutdown": ("suspended", "shut down", "The worker was shut down."),
    "agent.waiting": ("waiting", "waiting for a message", "It waits for a message."),
}
"""What an event says about its run: status, the same in words, and why."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What has to be remembered beside the projection itself."""

    limits: dict[str, float] = field(default_factory=dict)


def named_iterations(events: Sequence[StoredEvent]) -> set[int]:
    """The iterations these events speak of."""
    numbers = (_count(_payload(event), "iteration_num") for event in events)
    return {number for number in numbers if number is not None}


def published_projection(
    events: Sequence[StoredEvent], before: Projection, rows: Mapping[int, IterationRow]
) -> tuple[Projection, list[IterationRow]]:
    """The projection after these events, and the rows that changed. `rows`: those of `named_iterations`, if any."""
    table, changed = dict(rows), set[int]()
    seen = before
    for event in events:
        data = _payload(event)
        seen = _step(seen, event, data)
        number = _count(data, "iteration_num")
        if number is not None and event.type.startswith("iteration."):
            table[number] = _noted(table.get(number, IterationRow(number=number)), event, data)
            changed.add(number)
    return replace(seen, progress=_progress(seen)), [table[number] for number in sorted(changed)]


def _step(seen: Projection, event: StoredEvent, data: Mapping[str, Any]) -> Projection:
    match event.type:
        case "continuous.started":
            return _begun(seen, event, data)
        case "continuous.completed":
            return _ended(_counted(seen, data), _text(data, "stop_reason", _NAME_WIDTH) or "unknown")
        case "agent.shutdown" if seen.status in {"completed", "suspended"}:
            return seen
        case known if known in _STANDS:
            status, phase, why = _STANDS[known]
            said = _text(data, "error", _LONG_WIDTH) or _text(data, "message", _LONG_WIDTH) or "it did not say what"
            return replace(seen, status=status, phase=phase, why=why.replace("WHAT", said))
        case _:
            return _at_work(_counted(seen, data), event)


def _begun(seen: Projection, event: StoredEvent, data: Mapping[str, Any]) -> Projection:
    """A sandbox may be used for one goal after the other: the numbers begin anew."""
    limits = data.get("limits")
    measured = {name: _number(limits, name) for name in _LIMITS} if isinstance(limits, Mapping) else {}
    kept = _Kept(limits={name: value for name, value in measured.items() if value is not None and value > 0})
    return Projection(
        folded_seq=seen.folded_seq,
        name=seen.name,
        goal=_text(data, "goal", _LONG_WIDTH),
        status="running",
        phase="running",
        started_at=event.at,
        state=msgspec.json.encode(kept),
    )


def _at_work(seen: Projection, event: StoredEvent) -> Projection:
    started_at = seen.started_at or event.at
    if event.type.startswith("iteration.") or event.type == "agent.started":
        return replace(seen, status="running", phase="running", why="", started_at=started_at)
    return replace(seen, started_at=started_at)


def _counted(seen: Projection, data: Mapping[str, Any]) -> Projection:
    """Totals that the program counted itself; they stay where it says nothing."""
    cost, successes, number = _number(data, "total_cost_usd"), _count(data, "successful_iterations"), None
    number = _count(data, "iteration_num")
    return replace(
        seen,
        cost_usd=seen.cost_usd if cost is None else min(_MOST_USD, max(0.0, cost)),
        successes=seen.successes if successes is None else successes,
        attempts=max(seen.attempts, number or 0),
    )


def _ended(seen: Projection, reason: str) -> Projection:
    success = reason in DONE
    what = "Done" if success else "Stopped"
    said = "it gave no reason" if reason == "unknown" else meaning(reason).removeprefix(f"{what.lower()} ")
    return replace(
        seen,
        status="completed" if success else "suspended",
        phase=f"{what.lower()}: {said}",
        why=f"{what}: {said}; this worker only reports, so nothing was verified here.",
        success=success,
        progress=1.0 if success else seen.progress,
    )


def _noted(row: IterationRow, event: StoredEvent, data: Mapping[str, Any]) -> IterationRow:
    match event.type:
        case "iteration.started":
            started_at = row.started_at or event.at
            return replace(row, started_at=started_at, tries=min(_LARGEST, row.tries + 1), outcome="running")
        case "iteration.completed":
            cost = _number(data, "cost_usd")
            return replace(
                row,
                outcome="ok",
                error="",
                cost_usd=min(_MOST_USD, row.cost_usd + max(0.0, cost or 0.0)),
                unknown_costs=row.unknown_costs + (cost is None),
                seconds=max(0.0, event.at - row.started_at) if row.started_at else 0.0,
                summary=_text(data, "output_preview", _WORDS),
            )
        case "iteration.failed":
            fault = _text(data, "error_type", _NAME_WIDTH) or "error"
            return replace(
                row,
                outcome=fault,
                error=_text(data, "error", _WORDS),
                faults=(*row.faults, fault)[-_FAULTS_KEPT:],
            )
        case "iteration.completion_signal":
            return replace(row, claim="done")
        case "iteration.validation":
            return replace(row, verdict="passed" if data.get("passed") is True else "failed")
        case _:
            return row


def _progress(seen: Projection) -> float | None:
    if seen.success:
        return 1.0
    try:
        limits = msgspec.json.decode(seen.state, type=_Kept).limits if seen.state else {}
    except ValueError:
        return None
    used = (getattr(seen, counted) / limits[name] for name, counted in _LIMITS.items() if name in limits)
    return max((min(1.0, share) for share in used), default=None)


def _payload(event: StoredEvent) -> Mapping[str, Any]:
    try:
        data = msgspec.json.decode(event.data.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _number(data: Mapping[str, Any], name: str) -> float | None:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _count(data: Mapping[str, Any], name: str) -> int | None:
    value = _number(data, name)
    return int(value) if value is not None and 0 <= value <= _LARGEST else None


def _text(data: Mapping[str, Any], name: str, width: int) -> str:
    value = data.get(name)
    return one_line(value, width) if isinstance(value, str) else ""
