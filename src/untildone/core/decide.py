"""What happens next. Every stop rule lives in this file, and nothing else does."""

from collections.abc import Callable
from functools import partial

from untildone.core import breaker, window
from untildone.core.dataclass import dataclass
from untildone.core.delivery import CLEAN_ROOM, done_for, landing_for, owes_check, owes_question, owes_review
from untildone.core.durations import format_duration
from untildone.core.faults import (
    DISK_LOW,
    LIMIT_REACHED,
    QUOTA_KEPT,
    STEERED,
    STOPPED,
    TAKEN,
    TIMEOUT,
    TURNS_EXHAUSTED,
    USAGE_LIMIT,
    Fault,
)
from untildone.core.figures import GIT_LOCKED, START_AT
from untildone.core.limits import (
    LIMITS,
    LONGEST_WINDOW,
    cutting_limit,
    has_reserve,
    is_nearly_full,
    is_reached,
    is_wait_too_long,
    time_left,
    time_until_cut,
)
from untildone.core.permissions import denials_text
from untildone.core.progress import has_judges, patience, wants_look
from untildone.core.state import LoopState
from untildone.core.state import Wait as Rest
from untildone.core.stopping import SIGNALS, TAKEN_BY, Reason


@dataclass(frozen=True, slots=True)
class Iterate:
    """Run an iteration: a new one, or another try of the last."""

    number: int
    retry: int = 0
    session: str | None = None
    handoff: bool = False
    """One last word out of the reserve: notes for the next driver."""
    instead: str | None = None
    """The fallback that takes over: a model, or `agent:NAME`."""
    review: bool = False
    """Look at what was done instead of doing more."""
    question: bool = False
    """Ask what is left of the goal instead of doing more."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Run the checks before any work is done."""


@dataclass(frozen=True, slots=True)
class Verify:
    """The agent claims to be done, or its work is about to land: run the checks."""

    number: int
    claimed: bool = True
    """False: only to see whether the work gets any further."""


@dataclass(frozen=True, slots=True)
class Land:
    """Bring the work to where the user wants it."""

    commit: str
    because: str
    """The stop reason that waits for it; empty: the run goes on."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Rest until a moment (None: until a human says so), for a cause."""

    until: float | None
    cause: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The run stops."""

    reason: Reason
    detail: str = ""


Decision = Iterate | Baseline | Verify | Land | Wait | Stop
Rule = Callable[[LoopState, float], bool]


@dataclass(frozen=True, slots=True)
class StopRule:
    """One reason to stop and when it holds."""

    reason: Reason
    holds: Rule
    before_checks: bool = False
    """Stops even while a claim waits for its checks."""
    after_handoff: bool = False
    """Lets the session that was cut off say its last word first."""


_COUNTED = frozenset({Reason.MAX_RUNS, Reason.MAX_ITERATIONS})
"""Limits on how often work is done. Looking at what the last time brought is none."""
_BY_CLOCK = frozenset({Reason.MAX_DURATION, Reason.DEADLINE})
LOCK_PATIENCE = 300.0
"""Seconds to wait for a lock of git's before a human is needed."""
_NAMED = 3


def _will_not_wait(state: LoopState, now: float) -> bool:
    wait = state.wait
    if wait is None or wait.cause != USAGE_LIMIT.name or wait.until <= now:
        return False
    return not state.policy.wait or is_wait_too_long(state)


def _breaker_stops(state: LoopState, now: float) -> bool:
    rested = breaker.rest(state.circuit, state.policy, now)
    return rested.state == "open" and not state.policy.breaker_auto_reset


def _outage_lasts(state: LoopState, _: float) -> bool:
    """Up to the last try: a machine that slept through the budget tries again before it gives up."""
    if state.outage_since is None or state.wait is None:
        return False
    return state.wait.since - state.outage_since >= state.policy.outage_budget


def _stays_disputed(state: LoopState, now: float) -> bool:
    """The agent had its chance, and there is no reviewer who could settle it: refused, off, or not to be paid."""
    if state.dispute_rounds <= 1:
        return False
    is_spent = any(is_reached(limit, state, now) for limit in LIMITS if limit.reason not in _COUNTED)
    return state.dispute_refused or not state.dispute_under_review or is_spent


def _is_blocked(state: LoopState, now: float) -> bool:
    """A block that was reported without any attempt gets one more try, where a limit leaves room for it."""
    no_room = any(is_reached(limit, state, now) for limit in LIMITS)
    return state.blocked is not None and (not state.block_doubted or no_room)


# First match wins: a human before success, success before trouble, trouble before limits.
STOP_RULES: tuple[StopRule, ...] = (
    StopRule(Reason.SHUTDOWN_SIGNAL, lambda s, _: s.stop is not None and s.stop.signal is not None, before_checks=True),
    StopRule(Reason.TAKEN_OVER, lambda s, _: s.stop is not None and s.stop.by == TAKEN_BY, before_checks=True),
    StopRule(Reason.STOP_REQUESTED, lambda s, _: s.stop is not None, before_checks=True),
    StopRule(Reason.VALIDATION_PASSED, lambda s, _: done_for(s) is Reason.VALIDATION_PASSED),
    StopRule(Reason.ACCEPTED, lambda s, _: done_for(s) is Reason.ACCEPTED),
    StopRule(Reason.COMPLETION_SIGNAL, lambda s, _: done_for(s) is Reason.COMPLETION_SIGNAL),
    StopRule(Reason.DISPUTED, _stays_disputed),
    StopRule(Reason.CLEAN_ROOM, lambda s, _: s.fatal == CLEAN_ROOM),
    StopRule(Reason.LANDING_FAILED, lambda s, _: bool(s.arrival.trouble)),
    StopRule(Reason.REVIEW_STALEMATE, lambda s, _: s.review_rounds >= s.spec.review.rounds),
    StopRule(Reason.AUTHENTICATION, lambda s, _: s.fatal == "authentication"),
    StopRule(Reason.BILLING, lambda s, _: s.fatal == "billing"),
    StopRule(Reason.MODEL_NOT_FOUND, lambda s, _: s.fatal == "model_not_found"),
    StopRule(Reason.HOOK_FAILED, lambda s, _: s.fatal == "hook_failed"),
    StopRule(Reason.BLOCKED, _is_blocked),
    StopRule(Reason.PERMISSION_DENIED, lambda s, _: s.denials_in_a_row >= s.policy.permission_threshold),
    StopRule(Reason.USAGE_LIMIT, _will_not_wait),
    StopRule(Reason.OUTAGE, _outage_lasts),
    StopRule(Reason.CONSECUTIVE_ERRORS, lambda s, _: s.failures_in_a_row >= s.policy.error_threshold),
    StopRule(Reason.CIRCUIT_OPEN, _breaker_stops),
    *(StopRule(limit.reason, partial(is_reached, limit), after_handoff=True) for limit in LIMITS),
)


def decide(state: LoopState, now: float) -> Decision:
    """What happens next in this state, at this moment. Total: every state has an answer."""
    return _stop_or_look(state, now) or _look_at_progress(state) or _rest(state, now) or _iterate(state, now)


def _stop_or_look(state: LoopState, now: float) -> Decision | None:
    """The first stop rule that holds; a claim is checked, and a session that was cut off heard, in their turn."""
    for rule in STOP_RULES:
        if not rule.before_checks and (later := _begins_later(state, now)) is not None:
            return later
        if not rule.before_checks and (held := _while_held(state, now)) is not None:
            return held
        if not rule.before_checks and (owed := _owed(state)) is not None:
            return owed
        if state.handoff_due and state.retry is not None and rule.after_handoff:
            return Iterate(state.retry.number, state.retry.retry, state.retry.session_id, handoff=True)
        if rule.holds(state, now) and not _looks_first(rule, state, now):
            return Stop(rule.reason, _detail(rule.reason, state))
    return None


def _begins_later(state: LoopState, now: float) -> Decision | None:
    """A run that is to begin later does nothing at all until then."""
    begins, deadline = state.policy.start_at, state.policy.deadline
    if begins is None or begins <= now:
        return None
    if deadline is not None and deadline <= begins:
        return Stop(Reason.DEADLINE, "the start would have come after the deadline")
    return Wait(None, "paused") if state.paused else Wait(begins, START_AT)


def _while_held(state: LoopState, now: float) -> Decision | None:
    """What cannot be committed is neither added to nor checked until it can be. A lock is waited for only so long."""
    if (held := state.held) is None:
        return None
    gives_up = held.since + LOCK_PATIENCE if held.cause == GIT_LOCKED else None
    if gives_up is not None and now >= gives_up:
        return Stop(Reason.SURROUNDINGS, held.said)
    over = next((limit for limit in LIMITS if limit.reason in _BY_CLOCK and is_reached(limit, state, now)), None)
    return Stop(over.reason, held.said) if over else Wait(gives_up, held.cause)


def _looks_first(rule: StopRule, state: LoopState, now: float) -> bool:
    """Whether the work of the last iteration is looked at before this limit stops the run."""
    reviews = rule.reason in _COUNTED and owes_review(state)
    return reviews or (rule.after_handoff and owes_question(state) and has_reserve(state, now))


def _owed(state: LoopState) -> Decision | None:
    """What the loop does by itself before it may stop for anything but a human."""
    if state.fatal == CLEAN_ROOM or state.arrival.trouble:
        return None
    contract = state.spec.contract
    if contract.checks and contract.baseline and state.baseline is None and state.attempts == 0:
        return Baseline()
    if state.claim_due or owes_check(state):
        return Verify(state.attempts)
    because = landing_for(state)
    return Land(state.last_commit, because) if because is not None and state.last_commit else None


def _look_at_progress(state: LoopState) -> Verify | None:
    """See whether the work gets any further. Comes after all stop rules, so that it delays no stop."""
    is_busy = state.open is not None or state.retry is not None
    if is_busy or state.paused or state.disk_low or state.spec.in_session:
        return None
    due = has_judges(state.spec) and wants_look(state.progress, patience(state.policy))
    return Verify(state.attempts, claimed=False) if due else None


def _rest(state: LoopState, now: float) -> Decision | None:
    if state.paused:
        return Wait(None, "paused")
    wait = _wait(state, now)
    return None if wait is None else _wait_or_stop(wait, state, now)


def _iterate(state: LoopState, now: float) -> Iterate:
    # What a human says urgently is for the one who works: a review would only be about what is about to change.
    is_urgent = any(message.urgent for message in state.messages)
    if (again := state.retry) is not None and not (again.review and is_urgent):
        return Iterate(again.number, again.retry, again.session_id, instead=_instead(state), review=again.review)
    if owes_question(state):
        return Iterate(state.attempts, 0, state.last_session, instead=_instead(state), question=True)
    if owes_review(state) and not is_urgent:
        return Iterate(state.attempts, review=True)
    return Iterate(state.attempts + 1, 0, _session(state, now), instead=_instead(state))


def _instead(state: LoopState) -> str | None:
    return state.spec.options.fallback[state.fallback - 1] if state.fallback else None


def _wait(state: LoopState, now: float) -> Wait | None:
    if state.disk_low:
        return Wait(None, DISK_LOW.name)
    if (kept := quota_kept_until(state, now)) is not None:
        return Wait(kept, QUOTA_KEPT.name)
    if state.wait is not None and now < state.wait.until and not _clock_was_set_back(state.wait, now):
        return Wait(state.wait.until, state.wait.cause)
    rested = breaker.rest(state.circuit, state.policy, now)
    if rested.state == "open" and rested.opened_at is not None:
        return Wait(rested.opened_at + state.policy.breaker_cooldown, "circuit_open")
    free = window.next_free(state.calls, state.policy.max_calls_per_hour, now)
    return Wait(free, "calls_per_hour") if free > now else None


def _clock_was_set_back(wait: Rest, now: float) -> bool:
    """A pause of seconds must not become one of hours; a usage limit ends at a moment of the true clock."""
    return now < wait.since and wait.cause != USAGE_LIMIT.name


def _wait_or_stop(wait: Wait, state: LoopState, now: float) -> Decision:
    """A wait that would pass duration or deadline stops the run now instead of sleeping into the limit."""
    left = time_left(state, now)
    if wait.until is None or left is None or wait.until - now < left:
        return wait
    policy = state.policy
    by_clock = policy.deadline is not None and policy.deadline - now <= left
    reason = Reason.DEADLINE if by_clock else Reason.MAX_DURATION
    return Stop(reason, f"waiting for {wait.cause} would have passed the limit")


def quota_kept_until(state: LoopState, now: float) -> float | None:
    """Until when the share of the subscription that the human keeps is all that is left; None: more is left."""
    kept = state.policy.keep_quota
    if kept is None:
        return None
    return max((w.resets_at for w in state.quota if w.utilization >= 1 - kept and w.resets_at > now), default=None)


def _session(state: LoopState, now: float) -> str | None:
    if not state.attempts and state.spec.earlier.session is not None:
        return state.spec.earlier.session
    if state.policy.session != "resume" or state.last_session is None:
        return None
    return state.last_session if now - state.last_session_at < state.policy.session_expiry else None


def _why_no_wait(state: LoopState) -> str:
    if not state.policy.wait or not is_wait_too_long(state):
        return state.last_error
    if state.policy.max_wait is not None:
        return f"the wait would last longer than {format_duration(state.policy.max_wait)} (--max-wait)"
    return f"no reset was named, and {format_duration(LONGEST_WINDOW)} of trying again found no end"


_DETAILS: dict[Reason, Callable[[LoopState], str]] = {
    Reason.BLOCKED: lambda s: s.blocked or "",
    Reason.PERMISSION_DENIED: lambda s: f"denied: {denials_text(s.last_denials)}",
    Reason.CIRCUIT_OPEN: lambda s: s.circuit.reason,
    Reason.CONSECUTIVE_ERRORS: lambda s: s.last_error,
    Reason.USAGE_LIMIT: _why_no_wait,
    Reason.OUTAGE: lambda s: s.last_error,
    Reason.AUTHENTICATION: lambda s: s.fatal_detail,
    Reason.BILLING: lambda s: s.fatal_detail,
    Reason.MODEL_NOT_FOUND: lambda s: s.fatal_detail,
    Reason.HOOK_FAILED: lambda s: s.fatal_detail,
    Reason.CLEAN_ROOM: lambda s: s.fatal_detail,
    Reason.LANDING_FAILED: lambda s: s.arrival.trouble,
    Reason.REVIEW_STALEMATE: lambda s: s.feedback.strip().partition("\n")[0],
    Reason.DISPUTED: lambda s: "; ".join(s.disputed[:_NAMED]) + (" ..." if len(s.disputed) > _NAMED else ""),
    Reason.STOP_REQUESTED: lambda s: f"by {s.stop.by}" if s.stop else "",
    Reason.SHUTDOWN_SIGNAL: lambda s: SIGNALS.get(s.stop.signal or "", f"by {s.stop.by}") if s.stop else "",
}


def _detail(reason: Reason, state: LoopState) -> str:
    """What a person should know beyond the reason itself."""
    tell = _DETAILS.get(reason)
    if tell is None and owes_question(state):
        return "the agent says it is done; there was no time left to ask what is missing"
    return tell(state) if tell else ""


def _timed_out(state: LoopState, now: float) -> bool:
    timeout = state.policy.iteration_timeout
    return timeout is not None and state.open is not None and now - state.open.started_at >= timeout


def endless(state: LoopState) -> str:
    """Why the running iteration seems to have no end of its own; empty: it may go on."""
    if (left := state.open) is None:
        return ""
    turns, wakeups = state.spec.options.max_turns, state.policy.max_wakeups
    if wakeups is not None and left.wakeups >= wakeups:
        what = "the result of a background task made the agent start another one"
        return f"{what}, {wakeups} times (--max-wakeups {wakeups})"
    # Claude Code counts the turns after each prompt; what background tasks add comes on top of that.
    if turns is not None and left.replies > turns:
        return f"it took more than {turns} turns (--max-turns {turns})"
    most = state.policy.max_iteration_cost_usd
    if most is not None and left.spend.total_usd >= most:
        return f"it cost ${left.spend.total_usd:.2f} (--max-iteration-cost {most:g})"
    return ""


# First match wins; each names why an iteration under way must end now.
_INTERRUPTIONS: tuple[tuple[Fault, Rule], ...] = (
    (TAKEN, lambda s, _: s.stop is not None and s.stop.by == TAKEN_BY),
    (STOPPED, lambda s, _: s.stop is not None and not s.stop.after_iteration),
    (STEERED, lambda s, _: any(message.urgent for message in s.messages)),
    (LIMIT_REACHED, lambda s, now: cutting_limit(s, now) is not None),
    (DISK_LOW, lambda s, _: s.disk_low and is_nearly_full(s.disk_free, s.policy)),
    (QUOTA_KEPT, lambda s, now: quota_kept_until(s, now) is not None),
    (TIMEOUT, _timed_out),
    (TURNS_EXHAUSTED, lambda s, _: bool(endless(s))),
)


def interruption(state: LoopState, now: float) -> Fault | None:
    """Why the running iteration must be interrupted now, if it must."""
    if state.open is None:
        return None
    return next((fault for fault, holds in _INTERRUPTIONS if holds(state, now)), None)


def next_look(state: LoopState, now: float) -> float | None:
    """Seconds after which `interruption` can change by the clock alone; None: never."""
    times = [] if (left := time_until_cut(state, now)) is None else [left]
    if state.open is not None and state.policy.iteration_timeout is not None:
        times.append(state.open.started_at + state.policy.iteration_timeout - now)
    return max(0.0, min(times)) if times else None
