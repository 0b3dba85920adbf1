"""What was proven, folded: the baseline, verdicts of checks and guard, waivers, and reviews."""

from dataclasses import replace

from untildone.core import breaker
from untildone.core import events as ev
from untildone.core.delivery import CLEAN_ROOM
from untildone.core.state import LoopState

_VERDICTS_KEPT = 200


def baseline(state: LoopState, event: ev.BaselineTaken, _: float) -> LoopState:
    """Before any work: who is to blame for what is red later."""
    state = _remember(state, event.commit, event.checks)
    taken = tuple((check.name, check.passed) for check in event.checks)
    if event.refused:
        return replace(state, fatal=CLEAN_ROOM, fatal_detail=event.refused)
    return replace(state, baseline=taken)


def validation(state: LoopState, event: ev.IterationValidation, at: float) -> LoopState:
    """The witness has looked. Only a claim that was wrong is held against the agent."""
    state = replace(_remember(state, event.commit, event.checks), findings=event.findings)
    claimed = state.claim_due or not state.land_due
    if event.passed:
        proven = bool(state.spec.contract.checks or state.spec.contract.fail_to_pass)
        return replace(
            state,
            claim_due=False,
            verified=claimed and proven,
            guarded=True,
            examined=event.commit,
            verified_commit=event.commit if proven else state.verified_commit,
            feedback="",
        )
    # What is known not to hold needs no reviewer, and two kinds of feedback would drown each other.
    state = replace(
        state, claim_due=False, verified=False, guarded=False, land_due=False, review_due=False,
        feedback=event.feedback, feedback_from="checks",
    )  # fmt: skip
    if not claimed:
        return state
    if state.spec.in_session:
        return replace(state, streak=0, streak_form="none")
    return replace(state, streak=0, streak_form="none", breaker=breaker.claim_refused(state.breaker, state.policy, at))


def waiver(state: LoopState, event: ev.WaiverGiven, _: float) -> LoopState:
    """A human lets these files change."""
    return replace(state, waived=(*state.waived, *(p for p in event.patterns if p not in state.waived)))


def reviewed(state: LoopState, event: ev.IterationCompleted) -> LoopState:
    """A reviewer has looked: approved, or the findings go to the next iteration."""
    verdict = event.verdict
    if verdict is not None and verdict.approved:
        return replace(state, review_due=False, approved=True, review_rounds=0, review_findings="")
    findings = verdict.findings if verdict else ""
    return replace(
        state,
        review_due=False,
        approved=False,
        verified=False,
        land_due=False,
        streak=0,
        streak_form="none",
        review_rounds=state.review_rounds + 1,
        review_findings=findings,
        feedback=findings,
        feedback_from="review",
    )


def _remember(state: LoopState, commit: str | None, checks: tuple[ev.CheckResult, ...]) -> LoopState:
    if commit is None:
        return state
    # Conditions, what could not be run, and a tree that nobody committed may change while the commit does not.
    told = [check for check in checks if check.ran and check.command and check.room == "clean"]
    seen = (*state.verdicts, *((commit, check.name, check.passed) for check in told))
    both = [check.name for check in told if (commit, check.name, not check.passed) in seen]
    flaky = dict.fromkeys((*state.flaky, *both, *(check.name for check in checks if check.flaky)))
    return replace(state, verdicts=seen[-_VERDICTS_KEPT:], flaky=tuple(flaky))
