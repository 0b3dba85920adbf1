"""Numbers over time, for plots: what was spent, and how many checks passed."""

from collections.abc import Sequence

from untildone.core import events as ev
from untildone.core.history import IterationRow
from untildone.server.archive.port import StoredEvent
from untildone.server.pages.activity import record_of

Points = list[tuple[float, float]]


def spend_points(rows: Sequence[IterationRow], spent_usd: float, began_at: float, heard_at: float) -> Points:
    """(moment, dollars so far) at the end of each iteration; older ones than those given are in the first sum.

    `heard_at`: up to when the spend of one that is under way is known.
    """
    known = sum(row.cost_usd + row.estimated_usd for row in rows)
    so_far = max(0.0, spent_usd - known)
    points: Points = [(began_at, so_far)] if began_at and (not rows or began_at < rows[0].started_at) else []
    for row in rows:
        so_far += row.cost_usd + row.estimated_usd
        ended_at = heard_at if row.outcome == "running" else row.started_at + row.seconds
        points.append((max(row.started_at, ended_at), round(so_far, 6)))
    return _in_order(points)


def check_points(looks: Sequence[StoredEvent]) -> tuple[Points, int]:
    """(moment, checks that passed) each time the loop looked, and the most checks there were."""
    points: Points = []
    most = 0
    for stored in looks:
        event = record_of(stored).event
        if isinstance(event, ev.IterationValidation | ev.BaselineTaken) and event.checks:
            points.append((stored.at, float(sum(check.passed for check in event.checks))))
            most = max(most, len(event.checks))
    return _in_order(points), most


def _in_order(points: Points) -> Points:
    """Plots need moments that grow, whatever a clock did."""
    latest = 0.0
    kept: Points = []
    for at, value in points:
        latest = max(latest, at)
        kept.append((latest, value))
    return kept
