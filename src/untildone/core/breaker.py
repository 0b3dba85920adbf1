"""The circuit breaker: tells work from going round in circles, by evidence first and by words last.

closed: go on. half_open: a warning, or the one trial after a cooldown. open: the agent is stuck.
Stdlib only: the Stop hook runs this file under `python3 -I -S`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from .dataclass import dataclass
from .policy import Policy
from .repeats import failures_in_a_row

RECENT = 256
"""Fingerprints of tool calls that are remembered; a call among them is nothing new."""
FREE_QUESTIONS = 2
"""Iterations in a row that may only ask before asking counts as doing nothing."""
DECLINES = 2
"""One short answer after a long one says nothing; a second one, shorter again, does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """What the last iterations looked like, as far as it matters for being stuck."""

    state: Literal["closed", "half_open", "open"] = "closed"
    reason: str = ""
    """Why it is not closed."""
    opened_at: float | None = None
    """When it opened; kept through the trial after the cooldown."""
    no_progress: int = 0
    same_error: int = 0
    last_error: str = ""
    declines: int = 0
    last_output: int | None = None
    test_only: int = 0
    sounds_finished: int = 0
    questions: int = 0
    idle_claim: bool = False
    """The last iteration claimed to be done and showed no work: if the claim is refused, it counts."""
    recent_activity: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One iteration as the breaker sees it."""

    changed: bool = False
    activity: tuple[str, ...] = ()
    tasks_completed: int = 0
    has_status: bool = False
    work_type: str | None = None
    error_signature: str = ""
    output_chars: int = 0
    indicators: int = 0
    question: bool = False
    claims_done: bool = False
    files_modified: int = 0
    """As the agent reported it: no evidence, but worth saying when the tree shows otherwise."""


def observe(breaker: Breaker, seen: Observation, policy: Policy, now: float) -> Breaker:
    """The breaker after one more iteration."""
    if breaker.state == "open":
        return breaker
    evidence = _shows_work(breaker, seen)
    remembered = replace(
        breaker, last_output=seen.output_chars, recent_activity=_remember(breaker.recent_activity, seen.activity)
    )
    if seen.changed:
        return replace(reset(remembered), last_output=seen.output_chars)
    if seen.claims_done:
        return _claimed(remembered, evidence=evidence)
    counted = _count(breaker, remembered, seen, evidence=evidence, policy=policy)
    for wording in _TRIPS:
        reason = wording(counted, seen, policy)
        if reason:
            return replace(counted, state="open", reason=reason, opened_at=now)
    return _warned(counted, policy)


def rest(breaker: Breaker, policy: Policy, now: float) -> Breaker:
    """An open breaker allows one trial once its cooldown has passed. A clock set back keeps it open."""
    if breaker.state != "open" or breaker.opened_at is None or now < breaker.opened_at + policy.breaker_cooldown:
        return breaker
    return replace(reset(breaker), state="half_open", reason=breaker.reason, opened_at=breaker.opened_at)


def reset(breaker: Breaker) -> Breaker:
    """Closed, all counters at zero. What was already looked at stays known: looking again is still no work."""
    return Breaker(recent_activity=breaker.recent_activity)


def claim_refused(breaker: Breaker, policy: Policy, now: float) -> Breaker:
    """The last claim was checked and is not true: if nothing was done for it, that was no progress either."""
    if not breaker.idle_claim or breaker.state == "open":
        return breaker
    counted = replace(breaker, idle_claim=False, no_progress=breaker.no_progress + 1)
    reason = _stagnation(counted, Observation(has_status=True), policy)
    if reason:
        return replace(counted, state="open", reason=reason, opened_at=now)
    return _warned(counted, policy)


# --- evidence ------------------------------------------------------------------------------------------------


def _shows_work(breaker: Breaker, seen: Observation) -> bool:
    if seen.changed or seen.tasks_completed > 0:
        return True
    known = frozenset(breaker.recent_activity)
    return any(call not in known for call in seen.activity)


def _remember(recent: tuple[str, ...], activity: tuple[str, ...]) -> tuple[str, ...]:
    again = frozenset(activity)
    older = (call for call in recent if call not in again)
    return (*older, *dict.fromkeys(activity))[-RECENT:]


# --- counting ------------------------------------------------------------------------------------------------


def _claimed(breaker: Breaker, *, evidence: bool) -> Breaker:
    """Nothing opens the breaker on a claim: whether it is true is for the checks to say."""
    claimed = replace(breaker, sounds_finished=0, declines=0, questions=0, idle_claim=not evidence)
    return replace(claimed, state="closed", reason="", opened_at=None, no_progress=0) if evidence else claimed


def _count(before: Breaker, now: Breaker, seen: Observation, *, evidence: bool, policy: Policy) -> Breaker:
    """All counters after an iteration that changed nothing and claimed nothing."""
    questions = before.questions + 1 if seen.question and not evidence else 0
    idle = not evidence and not 0 < questions <= FREE_QUESTIONS
    return replace(
        now,
        idle_claim=False,
        no_progress=0 if evidence else before.no_progress + idle,
        same_error=failures_in_a_row(before.same_error, before.last_error, seen.error_signature),
        last_error=seen.error_signature,
        declines=before.declines + 1 if _declines(before.last_output, seen.output_chars, policy) else 0,
        test_only=before.test_only + 1 if (seen.work_type or "").upper() == "TESTING" else 0,
        sounds_finished=before.sounds_finished + 1 if seen.indicators > 0 else 0,
        questions=questions,
        # The trial after a cooldown is over with the first sign of work.
        opened_at=None if evidence else before.opened_at,
    )


def _declines(previous: int | None, chars: int, policy: Policy) -> bool:
    if not previous or chars >= previous:
        return False
    return (previous - chars) * 100 >= policy.output_decline_threshold * previous


# --- tripping: first match wins; a threshold of 0 switches its rule off ----------------------------------------


def _sounds_finished(breaker: Breaker, _: Observation, policy: Policy) -> str:
    if not 0 < policy.safety_completion_threshold <= breaker.sounds_finished:
        return ""
    return (
        f"safety completion: {_in_a_row(breaker.sounds_finished)} that sound finished, without a claim "
        "and without any change"
    )


def _same_error(breaker: Breaker, _: Observation, policy: Policy) -> str:
    if not 0 < policy.same_error_threshold <= breaker.same_error:
        return ""
    return f"same error: {_in_a_row(breaker.same_error)} with the same error and an unchanged tree"


def _output_decline(breaker: Breaker, _: Observation, policy: Policy) -> str:
    if policy.output_decline_threshold <= 0 or breaker.declines < DECLINES:
        return ""
    return (
        f"output decline: {_in_a_row(breaker.declines)} with at least {policy.output_decline_threshold}% "
        "less output and an unchanged tree"
    )


def _test_only(breaker: Breaker, _: Observation, policy: Policy) -> str:
    if not 0 < policy.max_test_loops <= breaker.test_only:
        return ""
    return f"test loop: {_in_a_row(breaker.test_only)} that only tested and changed nothing"


def _stagnation(breaker: Breaker, seen: Observation, policy: Policy) -> str:
    if breaker.opened_at is not None:
        return f"stagnation: no evidence of work in the trial iteration after the cooldown{_remark(seen)}"
    if not 0 < policy.stagnation_threshold <= breaker.no_progress:
        return ""
    return f"stagnation: {_in_a_row(breaker.no_progress)} without any evidence of work{_remark(seen)}"


Wording = Callable[[Breaker, Observation, Policy], str]

# Words and errors before the general rule, so that the reason is the most telling one.
_TRIPS: tuple[Wording, ...] = (_sounds_finished, _same_error, _output_decline, _test_only, _stagnation)


def _warned(breaker: Breaker, policy: Policy) -> Breaker:
    """One step before stagnation is a warning that evidence of work takes back."""
    if 0 < breaker.no_progress == policy.stagnation_threshold - 1:
        warning = f"warning: {_in_a_row(breaker.no_progress)} without any evidence of work"
        return replace(breaker, state="half_open", reason=warning)
    return replace(breaker, state="closed", reason="")


def _in_a_row(count: int) -> str:
    return "1 iteration" if count == 1 else f"{count} iterations in a row"


def _remark(seen: Observation) -> str:
    if seen.files_modified > 0:
        return f" (the last one reported {seen.files_modified} modified files, but the tree is unchanged)"
    return "" if seen.has_status else " (the last one gave no status)"
