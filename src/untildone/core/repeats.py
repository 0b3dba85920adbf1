"""Failing at the same point again and again: the one rule of every breaker here.

Stdlib only, and nothing of it: the Stop hook runs this file under `python3 -I -S`.
"""

MOST_FAILURES = 5
"""So many failures in a row at the same point are being stuck."""


def failures_in_a_row(before: int, last_point: str, point: str) -> int:
    """How often in a row it failed at the same point, now that it failed at `point`; an empty one is no failure."""
    if not point:
        return 0
    return before + 1 if point == last_point else 1
