"""The clock of the machine is set while a driver is at work: durations go on as if it had not been."""

from dataclasses import replace

from untildone.core import events as ev
from untildone.core.faults import USAGE_LIMIT
from untildone.core.state import LoopState


def clock_jumped(state: LoopState, event: ev.ClockJumped, _: float) -> LoopState:
    """Move the moments that durations are counted from along with the clock.

    A deadline and the end of a usage limit are moments of the true clock: they stay.
    """
    by = event.seconds
    wait, left = state.wait, state.open
    if wait is not None and wait.cause != USAGE_LIMIT.name:
        wait = replace(wait, until=wait.until + by, since=wait.since + by)
    return replace(
        state,
        last_at=state.last_at + by,
        open=replace(left, started_at=left.started_at + by) if left is not None else None,
        wait=wait,
        outage_since=_moved(state.outage_since, by),
        limited_since=_moved(state.limited_since, by),
        last_session_at=state.last_session_at + by,
        calls=tuple(moment + by for moment in state.calls),
        breaker=replace(state.breaker, opened_at=_moved(state.breaker.opened_at, by)),
        arrival=replace(state.arrival, since=state.arrival.since + by),
    )


def _moved(moment: float | None, by: float) -> float | None:
    return None if moment is None else moment + by
