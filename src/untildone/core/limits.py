"""The limits a user can set on a run, as one table: what each counts, and whether it cuts a running iteration."""

from collections.abc import Callable

from untildone.core.dataclass import dataclass
from untildone.core.policy import Policy
from untildone.core.state import LoopState
from untildone.core.stopping import Reason

# Sums of floats: a budget of 1.00 is reached by 0.9999999999.
_EPSILON = 1e-9

RESERVED_SHARE = 0.05
"""Part of money and time that is kept back for the hand-off: notes for the next driver."""
RESERVED_USD = 0.50
RESERVED_SECONDS = 60.0
"""However large the limit, more than this is not kept back."""
WARNING_SHARE = 0.8
"""Used share of a limit at which the human is warned."""
ROOM_AGAIN = 1.1
"""Free share of the disk reserve from which there is room again: no stop and go around one number."""
NEARLY_FULL = 0.25
"""Free share of the disk reserve below which not even the running iteration may go on."""

LONGEST_PROBE = 3600.0
"""Seconds between two tries, at most, while the end of a usage limit is not known."""
LONGEST_WINDOW = 8 * 86_400.0
"""A usage limit that has not ended by then ends with no window of a subscription: the longest is a week."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit."""

    field: str
    reason: Reason
    value: Callable[[Policy], float | None]
    used: Callable[[LoopState, float], float]
    cuts: bool
    """Reached in mid-iteration, the agent is interrupted."""


LIMITS: tuple[Limit, ...] = (
    Limit("max_runs", Reason.MAX_RUNS, lambda p: p.max_runs, lambda s, _: s.successes, cuts=False),
    Limit("max_iterations", Reason.MAX_ITERATIONS, lambda p: p.max_iterations, lambda s, _: s.attempts, cuts=False),
    Limit("max_cost_usd", Reason.MAX_COST, lambda p: p.max_cost_usd, lambda s, _: s.spent_usd, cuts=True),
    Limit("max_tokens", Reason.MAX_TOKENS, lambda p: p.max_tokens, lambda s, _: s.spent_tokens, cuts=True),
    Limit("max_duration", Reason.MAX_DURATION, lambda p: p.max_duration, lambda s, now: s.elapsed(now), cuts=True),
    Limit("deadline", Reason.DEADLINE, lambda p: p.deadline, lambda _, now: now, cuts=True),
)

LIMIT_NAMES = {
    "max_runs": "runs",
    "max_iterations": "attempts",
    "max_cost_usd": "budget",
    "max_tokens": "tokens",
    "max_duration": "time",
    "deadline": "deadline",
}
"""What each limit is called where people look at a run."""
LIMIT_FIELDS: tuple[str, ...] = (*(limit.field for limit in LIMITS), "max_calls_per_hour")
"""Policy fields that can be changed while a run goes on."""


def is_reached(limit: Limit, state: LoopState, now: float) -> bool:
    """Is this limit set and used up, but for what is kept back for the hand-off?"""
    value = limit.value(state.policy)
    return value is not None and limit.used(state, now) >= value - _reserve(limit, value, state) - _EPSILON


def is_exhausted(limit: Limit, state: LoopState, now: float) -> bool:
    """Is this limit used up, the reserve too?"""
    value = limit.value(state.policy)
    return value is not None and limit.used(state, now) >= value - _EPSILON


def _reserve(limit: Limit, value: float, state: LoopState) -> float:
    match limit.field:
        case "max_cost_usd":
            return min(RESERVED_USD, RESERVED_SHARE * value)
        case "max_duration":
            return min(RESERVED_SECONDS, RESERVED_SHARE * value)
        case "deadline":
            return min(RESERVED_SECONDS, max(0.0, RESERVED_SHARE * (value - state.started_at)))
        case _:
            return 0.0


def cutting_limit(state: LoopState, now: float) -> Limit | None:
    """The first reached limit that cuts a running iteration; a hand-off or a last question may use the reserve."""
    over = is_exhausted if _uses_reserve(state) else is_reached
    return next((limit for limit in LIMITS if limit.cuts and over(limit, state, now)), None)


def _uses_reserve(state: LoopState) -> bool:
    return state.open is not None and (state.open.handoff or state.open.question)


def has_reserve(state: LoopState, now: float) -> bool:
    """Is there anything left to pay a hand-off or a last question with?"""
    return not any(limit.cuts and is_exhausted(limit, state, now) for limit in LIMITS)


def warning_due(state: LoopState, now: float) -> Limit | None:
    """A limit that is mostly used up and whose warning was not given yet; one that is reached speaks for itself."""
    for limit in LIMITS:
        value = limit.value(state.policy)
        if limit.field == "deadline" or value is None or limit.field in state.warned:
            continue
        if limit.used(state, now) >= WARNING_SHARE * value and not is_reached(limit, state, now):
            return limit
    return None


def is_disk_low(free: int, policy: Policy, *, was_low: bool) -> bool:
    """Is less than the reserve free, or not yet enough above it to go on?"""
    return free < policy.disk_reserve * (ROOM_AGAIN if was_low else 1.0)


def is_nearly_full(free: int, policy: Policy) -> bool:
    """Is so little free that the next write may fail?"""
    return free < policy.disk_reserve * NEARLY_FULL


def limit_of(reason: str) -> Limit | None:
    """The limit behind a stop reason, if it is one."""
    return next((limit for limit in LIMITS if limit.reason == reason), None)


def time_left(state: LoopState, now: float) -> float | None:
    """Seconds until duration or deadline is reached; None when neither is set."""
    ends = []
    if state.policy.max_duration is not None:
        ends.append(state.policy.max_duration - state.elapsed(now))
    if state.policy.deadline is not None:
        ends.append(state.policy.deadline - now)
    return min(ends) if ends else None


def time_until_cut(state: LoopState, now: float) -> float | None:
    """Seconds until duration or deadline cuts the running iteration, early enough for a hand-off; None: never."""
    ends = []
    for limit in LIMITS:
        value = limit.value(state.policy)
        if limit.field in {"max_duration", "deadline"} and value is not None:
            kept_back = 0.0 if _uses_reserve(state) else _reserve(limit, value, state)
            ends.append(value - kept_back - limit.used(state, now))
    return min(ends) if ends else None


def is_wait_too_long(state: LoopState) -> bool:
    """Does the wait for a usage limit, all its tries together, take longer than was agreed on or can make sense?"""
    wait = state.wait
    if wait is None:
        return False
    lasts = wait.until - (wait.since if state.limited_since is None else state.limited_since)
    if state.policy.max_wait is not None:
        return lasts > state.policy.max_wait
    # A moment that was named is waited for, however far: only trying again and again must end.
    return lasts > LONGEST_WINDOW and wait.until - wait.since <= LONGEST_PROBE


def has_finite_limit(policy: Policy) -> bool:
    """Will this run end by itself, whatever the agent does?"""
    return any(limit.value(policy) is not None for limit in LIMITS)
