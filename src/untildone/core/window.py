"""How many iterations were started in the last hour: a true sliding window over their moments."""

KEEP = 3600.0
CAP = 10_000
"""More starts than this within one window are not remembered: no limit worth setting is that high."""


def record(calls: tuple[float, ...], now: float, *, keep: float = KEEP) -> tuple[float, ...]:
    """The window after one more call at `now`."""
    return (*_inside(calls, now, keep), now)[-CAP:]


def remaining(calls: tuple[float, ...], limit: int | None, now: float, *, keep: float = KEEP) -> int | None:
    """How many calls may still be made at `now`; None when there is no limit."""
    if limit is None or limit <= 0:
        return None
    return max(0, limit - len(_inside(calls, now, keep)))


def next_free(calls: tuple[float, ...], limit: int | None, now: float, *, keep: float = KEEP) -> float:
    """The first moment, from `now` on, at which one more call fits under the limit."""
    inside = _inside(calls, now, keep)
    if limit is None or limit <= 0 or len(inside) < limit:
        return now
    return inside[-limit] + keep


def _inside(calls: tuple[float, ...], now: float, keep: float) -> tuple[float, ...]:
    """The calls that still count, oldest first.

    After the clock was set back, a call may lie ahead of `now`: it counts as made now, unless it is further ahead
    than a whole window, which no call of ours can be.
    """
    # `call + keep > now` is the very sum that `next_free` returns, so that moment is free despite rounding.
    return tuple(sorted(min(call, now) for call in calls if call + keep > now and call - keep < now))
