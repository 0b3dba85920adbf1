"""How an iteration ends: from what came back to the events that close it. Pure, so replay can ask it again."""

from dataclasses import replace
from typing import TypedDict

from untildone.core import events as ev
from untildone.core.claims import Claim, read_claim, without_status
from untildone.core.dataclass import dataclass
from untildone.core.faults import MODEL_ERROR, SESSION_LOST, TIMEOUT, TURNS_EXHAUSTED, Fault, Remedy, classify
from untildone.core.limits import LONGEST_PROBE
from untildone.core.outcome import Evidence, FaultEvidence, Outcome
from untildone.core.prose import headline
from untildone.core.reviewing import read_verdict
from untildone.core.secrets import redact
from untildone.core.signature import error_signature
from untildone.core.state import LoopState
from untildone.core.wording import FARTHEST, reset_moment

BACKOFF_BASE = 1.0
BACKOFF_GROWTH = 1.25
"""Gentle: the last pause decides how long after an outage the work goes on, here a quarter of it at most."""
BACKOFF_CAP = 300.0
RESET_MARGIN = 1.0
"""Seconds after the reset of a limit: the clocks of two machines are never quite the same."""
COUNTED_BASE = 1.0
COUNTED_CAP = 60.0
_STEPS = 40
SUBJECT_WIDTH = 72
_PREVIEW = 1000
_ERROR_CAP = 2000
_QUESTION_CAP = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What the workspace looked like after the iteration."""

    changed: bool = False
    files_changed: int = 0
    tree: str = ""


def close_iteration(
    state: LoopState, outcome: Outcome, change: Change, cut: Fault | None, *, prompt: str, now: float, jitter: float
) -> ev.IterationCompleted | ev.IterationFailed:
    """The one event that closes the open iteration. `cut`: why the engine interrupted it; `jitter` in 0..1."""
    outcome = _at_least_what_was_seen(state, outcome)
    evidence = _evidence(outcome, change)
    fault = _fault(outcome, change, cut)
    if fault is None:
        return _completed(state, outcome, evidence, prompt=prompt, now=now)
    return _failed(state, outcome, evidence, fault, now=now, jitter=jitter)


class Counters(TypedDict):
    """The flat counters that go with the main events."""

    successful_iterations: int
    error_count: int
    extra_iterations: int
    total_cost_usd: float
    completion_signal_count: int
    elapsed_seconds: float
    last_session_id: str | None


def progress_of(state: LoopState, now: float) -> Counters:
    """Where the run stands, for the wire."""
    return Counters(
        successful_iterations=state.successes,
        error_count=state.failures_in_a_row,
        extra_iterations=max(0, state.attempts - state.successes),
        total_cost_usd=state.served_usd,
        completion_signal_count=state.streak,
        elapsed_seconds=state.elapsed(now),
        last_session_id=state.last_session,
    )


def is_clean(outcome: Outcome) -> bool:
    """Did the agent end by itself and leave nothing unmeasured, so that its books are complete?"""
    return outcome.failure is None and not outcome.interrupted and not outcome.cut_replies


def _at_least_what_was_seen(state: LoopState, outcome: Outcome) -> Outcome:
    """An agent that was cut off books less than it spent: replies of its subagents are in no result."""
    seen = state.open.spend if state.open else None
    if is_clean(outcome) or seen is None or seen.unknown_costs:
        return outcome
    cost, estimated = max(seen.cost_usd, outcome.cost_usd or 0.0), max(seen.estimated_usd, outcome.estimated_usd)
    if cost <= (outcome.cost_usd or 0.0) and estimated <= outcome.estimated_usd:
        return outcome
    return replace(outcome, cost_usd=cost, estimated_usd=estimated, usage=seen.usage)


def _evidence(outcome: Outcome, change: Change) -> Evidence:
    return Evidence(
        changed=change.changed,
        files_changed=change.files_changed,
        tree=change.tree,
        activity=outcome.activity,
        output_chars=outcome.output_chars,
        error_signature=error_signature(f"{outcome.final_text}\n{outcome.error_text}"),
        denials=outcome.denials,
    )


def _fault(outcome: Outcome, change: Change, cut: Fault | None) -> Fault | None:
    """Why it failed, if it did. Cut by the clock or the turn limit after real changes, it was productive."""
    if cut is not None and (outcome.interrupted or outcome.failure is not None):
        fault = cut
    elif outcome.failure is not None:
        fault = classify(outcome.failure)
    elif outcome.interrupted:
        fault = MODEL_ERROR  # Claude aborted by itself: nobody of ours asked for it
    else:
        return None
    return None if fault in {TIMEOUT, TURNS_EXHAUSTED} and change.changed else fault


def _completed(
    state: LoopState, outcome: Outcome, evidence: Evidence, *, prompt: str, now: float
) -> ev.IterationCompleted:
    is_review = state.open is not None and state.open.review
    progress = progress_of(state, now)
    if outcome.session_id is not None and not is_review:
        progress["last_session_id"] = outcome.session_id
    claim = Claim() if is_review else _claim(state, outcome, prompt)
    return ev.IterationCompleted(
        iteration_num=state.open.number if state.open else state.attempts,
        cost_usd=outcome.cost_usd,
        estimated_usd=outcome.estimated_usd,
        unseen_requests=outcome.unseen_requests,
        session_id=outcome.session_id,
        output_preview=without_status(outcome.final_text)[:_PREVIEW],
        usage=outcome.usage,
        duration_seconds=_duration(state, now),
        num_turns=outcome.num_turns,
        claim=claim,
        evidence=replace(evidence, question=_question(outcome.final_text, asks=claim.question)),
        verdict=read_verdict(outcome.final_text) if is_review else None,
        **progress,
    )


def commit_message(state: LoopState, closed: ev.IterationCompleted) -> str:
    """What the commit of an iteration says: the message that the agent was asked for, else what it says it did.

    The subject differs from the one before, and no secret is in it.
    """
    report = closed.claim.report
    if state.spec.commit_message == "agent" and report and report.commit_message:
        return redact(report.commit_message)
    summary = redact(report.summary).strip() if report else ""
    subject = headline(summary or redact(closed.output_preview), SUBJECT_WIDTH)
    number = f"iteration {closed.iteration_num}"
    if not subject:
        return f"{state.spec.name}: {number}"
    body = "" if subject == summary.rstrip(" .") else summary
    if subject == state.last_subject:
        subject = f"{headline(subject, SUBJECT_WIDTH - len(number) - len(' ()'))} ({number})"
    return f"{subject}\n\n{body}".strip()


def _question(text: str, *, asks: bool) -> str:
    """The question that a message ends with, whatever was reported beside it."""
    last = next((line.strip() for line in reversed(without_status(text).splitlines()) if line.strip()), "")
    return last[-_QUESTION_CAP:] if asks or last.rstrip("*_`\"') ").endswith("?") else ""


def _claim(state: LoopState, outcome: Outcome, prompt: str) -> Claim:
    policy = state.policy
    return read_claim(
        outcome.final_text,
        outcome.report,
        signal=policy.completion_signal,
        match=policy.completion_match,
        prompt=prompt,
    )


def _failed(
    state: LoopState, outcome: Outcome, evidence: Evidence, fault: Fault, *, now: float, jitter: float
) -> ev.IterationFailed:
    failure = outcome.failure
    text = failure.text.strip() if failure else ""
    return ev.IterationFailed(
        iteration_num=state.open.number if state.open else state.attempts,
        error=text[:_ERROR_CAP] or fault.meaning,
        error_type=fault.name,
        retry_allowed=_retry_allowed(state, fault),
        cost_usd=outcome.cost_usd,
        estimated_usd=outcome.estimated_usd,
        unseen_requests=outcome.unseen_requests,
        session_id=_session_to_go_on_in(state, outcome, fault),
        usage=outcome.usage,
        duration_seconds=_duration(state, now),
        evidence=evidence,
        retry_at=_retry_at(state, outcome, fault, now=now, jitter=jitter),
    )


def _session_to_go_on_in(state: LoopState, outcome: Outcome, fault: Fault) -> str | None:
    if fault is SESSION_LOST:
        return None
    if outcome.session_id is not None or state.open is None:
        return outcome.session_id
    return state.open.session_id or state.open.resume_session


def _retry_allowed(state: LoopState, fault: Fault) -> bool:
    match fault.remedy:
        case Remedy.STOP:
            return False
        case Remedy.COUNT:
            return state.failures_in_a_row + 1 < state.policy.error_threshold
        case _:
            return True


def _retry_at(state: LoopState, outcome: Outcome, fault: Fault, *, now: float, jitter: float) -> float | None:
    """When a new try makes sense: at the moment that was named, else after pauses that grow, spread by jitter."""
    spread = 0.5 + jitter / 2
    match fault.remedy:
        case Remedy.WAIT | Remedy.BACK_OFF:
            reset = _named_reset(outcome.failure, now)
            if reset is not None and reset + RESET_MARGIN > now:
                return reset + RESET_MARGIN
            # A reset that is over did not help: from here on the pauses must grow.
            cap = LONGEST_PROBE if fault.remedy is Remedy.WAIT else BACKOFF_CAP
            pause = min(cap, BACKOFF_BASE * BACKOFF_GROWTH ** min(state.backoffs, _STEPS)) * spread
            return now + max(pause, (outcome.failure.retry_after or 0.0) if outcome.failure else 0.0)
        case Remedy.COUNT:
            return now + min(COUNTED_CAP, COUNTED_BASE * 2.0 ** min(state.failures_in_a_row, _STEPS)) * spread
        case _:
            return None


def _named_reset(failure: FaultEvidence | None, now: float) -> float | None:
    """When a limit ends. Words are read only where no number was given."""
    if failure is None or failure.resets_at is not None or failure.retry_after is not None:
        named = failure.resets_at if failure else None
        return named if named is not None and named - now <= FARTHEST else None
    return reset_moment(failure.text, now)


def _duration(state: LoopState, now: float) -> float:
    return max(0.0, now - state.open.started_at) if state.open else 0.0
