"""What was proven, folded: the baseline, verdicts of checks and guard, waivers, and reviews."""

from dataclasses import replace
from typing import Literal

from untildone.core import breaker
from untildone.core import events as ev
from untildone.core.delivery import CLEAN_ROOM
from untildone.core.findings import waived as is_waived
from untildone.core.state import LoopState

_VERDICTS_KEPT = 200


def baseline(state: LoopState, event: ev.BaselineTaken, _: float) -> LoopState:
    """Before any work: who is to blame for what is red later."""
    state = _remember(state, event.commit, event.checks)
    taken = tuple((check.name, check.passed) for check in event.checks)
    if event.refused:
        return replace(state, fatal=CLEAN_ROOM, fatal_detail=event.refused, red=_red(event.checks))
    counted = tuple(
        (state.spec.contract.identity(check.name, check.command), check.tests_run, check.tests_skipped)
        for check in event.checks
        if check.tests_run is not None
    )
    return replace(state, baseline=taken, tests_before=counted)


def validation(state: LoopState, event: ev.IterationValidation, at: float) -> LoopState:
    """The witness has looked. Only a claim that was wrong is held against the agent."""
    red = _red(event.checks)
    said: Literal["passed", "failed", ""] = "failed" if red else "passed" if event.checks else ""
    state = replace(_remember(state, event.commit, event.checks), findings=event.findings, red=red, checks_said=said)
    claimed = state.claim_due or not state.land_due
    if event.passed:
        newest = _newest(state, event)
        proven = bool(state.spec.contract.checks or state.spec.contract.fail_to_pass)
        return replace(
            state,
            claim_due=False,
            verified=claimed and proven,
            guarded=True,
            examined=event.commit,
            verified_commit=event.commit if proven else state.verified_commit,
            last_commit=newest,
            # What was looked at is not what would land: the next commit, or the next claim, is looked at in its turn.
            land_due=state.land_due and newest == event.commit,
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
    return replace(
        state, streak=0, streak_form="none", refused_streak=(state.streak, state.streak_form),
        breaker=breaker.claim_refused(state.breaker, state.policy, at),
    )  # fmt: skip


def _newest(state: LoopState, event: ev.IterationValidation) -> str | None:
    """The newest commit of the run's work, after the witness has let one pass.

    It is that one, wherever the branch was before: an agent or a human may have taken commits back, or added some.
    Unless another branch is checked out, or all of it has landed and the branch only learned of that.
    """
    last, seen = state.last_commit, event.commit
    on_its_branch = event.git_status.get("branch_name") == state.arrival.branch
    if last is None or seen is None or not state.spec.commit or not on_its_branch or last == state.arrival.landed:
        return last
    return None if seen == state.arrival.start else seen


def waiver(state: LoopState, event: ev.WaiverGiven, _: float) -> LoopState:
    """A human lets these files change. If nothing else was in the way, the claim is looked at again as it was made."""
    findings = tuple(
        replace(f, blocking=False) if f.blocking and is_waived(f.path, event.patterns) else f for f in state.findings
    )
    was_blocked = any(finding.blocking for finding in state.findings)
    waived = (*state.waived, *(p for p in event.patterns if p not in state.waived))
    state = replace(state, waived=waived, findings=findings)
    if not was_blocked or any(finding.blocking for finding in findings) or not _only_guarded(state):
        return state
    streak, form = state.refused_streak
    return replace(state, claim_due=streak > 0, feedback="", streak=streak, streak_form=form)


def _only_guarded(state: LoopState) -> bool:
    """Whether the guard alone refused the last work, and nobody has worked since."""
    rests = state.open is None and state.retry is None and state.half_done is None
    refused = bool(state.feedback) and state.feedback_from == "checks"
    return rests and refused and not state.red and not state.commit_trouble


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


def _red(checks: tuple[ev.CheckResult, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((check.name, "" if check.hidden else check.log) for check in checks if not check.passed)


def _remember(state: LoopState, commit: str | None, checks: tuple[ev.CheckResult, ...]) -> LoopState:
    state = replace(state, weaker=next((check.weaker for check in checks if check.weaker), ""))
    if commit is None:
        return state
    # Conditions, what could not be run, and a tree that nobody committed may change while the commit does not.
    told = [check for check in checks if check.ran and check.command and check.room == "clean"]
    # A setup or a command that was mended in between is no wavering.
    identity = state.spec.contract.identity
    seen = (*state.verdicts, *((commit, identity(check.name, check.command), check.passed) for check in told))
    both = [c.name for c in told if (commit, identity(c.name, c.command), not c.passed) in seen]
    flaky = dict.fromkeys((*state.flaky, *both, *(check.name for check in checks if check.flaky)))
    return replace(state, verdicts=seen[-_VERDICTS_KEPT:], flaky=tuple(flaky))
