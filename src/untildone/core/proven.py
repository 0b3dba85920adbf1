"""What was proven, folded: the baseline, verdicts of checks and guard, waivers, and reviews."""

from dataclasses import replace
from typing import Literal, TypedDict

from untildone.core import breaker, progress
from untildone.core import events as ev
from untildone.core.base_judges import is_smaller
from untildone.core.contract import Room
from untildone.core.delivery import CLEAN_ROOM
from untildone.core.failing_tests import what_failed
from untildone.core.findings import waived as is_waived
from untildone.core.state import LoopState

_GREEN_KEPT = 200
"""Passed verdicts that are remembered, to recognise a check that fails later on the same commit."""
REVIEWER = "a reviewer"
"""Who settled a dispute, when it was no human."""


def baseline(state: LoopState, event: ev.BaselineTaken, at: float) -> LoopState:
    """Before any work: who is to blame for what is red later."""
    state = _remember(state, event.checks, commit=event.commit)
    seconds = sum(check.seconds for check in event.checks)
    state = replace(state, progress=progress.looked(state.progress, event.checks, 0, seconds, at))
    taken = tuple((check.name, check.passed) for check in event.checks)
    if event.refused:
        return replace(state, fatal=CLEAN_ROOM, fatal_detail=event.refused, **_failed(event.checks))
    counted = tuple(
        (state.spec.contract.identity(check.name, check.command), check.tests_run, check.tests_skipped)
        for check in event.checks
        if check.tests_run is not None
    )
    return replace(state, baseline=taken, tests_before=counted)


def validation(state: LoopState, event: ev.IterationValidation, at: float) -> LoopState:
    """The witness has looked. Only a claim that was wrong is held against the agent."""
    failed = _failed(event.checks)
    said: Literal["passed", "failed", ""] = "failed" if failed["red"] else "passed" if event.checks else ""
    looked = progress.looked(state.progress, event.checks, event.iteration_num, event.seconds, at)
    state = _remember(state, event.checks, commit=event.commit, tree=event.tree)
    state = replace(state, checks_said=said, progress=looked, **failed)
    if not event.claimed:
        # The loop looked by itself: that proves nothing and refuses nothing.
        return replace(state, feedback=event.feedback, feedback_from="checks")
    state = _disputed(replace(state, findings=event.findings), event)
    claimed = state.claim_due or not state.land_due
    if event.passed:
        newest = _newest(state, event)
        proven = bool(state.spec.contract.checks or state.spec.contract.fail_to_pass)
        return replace(
            state,
            claim_due=False,
            verified=claimed and proven and not event.disputed,
            settled=event.disputed if claimed and proven else (),
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
        state, claim_due=False, verified=False, settled=(), guarded=False, land_due=False, review_due=False,
        feedback=event.feedback, feedback_from="checks",
    )  # fmt: skip
    if not claimed:
        return state
    if event.disputed and state.dispute_rounds > 1 and not any(finding.blocking for finding in event.findings):
        state = replace(state, dispute_under_review=state.spec.review.disputes, review_due=state.spec.review.disputes)
    if state.spec.in_session:
        return replace(state, streak=0, streak_form="none")
    return replace(
        state, streak=0, streak_form="none", refused_streak=(state.streak, state.streak_form),
        breaker=breaker.claim_refused(state.breaker, state.policy, at),
    )  # fmt: skip


def _disputed(state: LoopState, event: ev.IterationValidation) -> LoopState:
    """What the base's judges say now; a dispute that did not become smaller is the same one again."""
    open_ones = tuple(said for said in event.disputed if said not in state.accepted)
    again = bool(open_ones) and bool(state.disputed) and not is_smaller(open_ones, state.disputed)
    rounds = (state.dispute_rounds + 1 if again else 1) if open_ones else 0
    return replace(
        state, disputed=open_ones, dispute_rounds=rounds, dispute_refused=state.dispute_refused and again,
        dispute_under_review=False,
    )  # fmt: skip


def accepted(state: LoopState, event: ev.DisputeAccepted, _: float) -> LoopState:
    """A human settles the dispute; the claim is looked at again as it was made, without another iteration."""
    return _settled(state, tuple(event.disputed) or state.disputed, event.by)


def _settled(state: LoopState, disputed: tuple[str, ...], by: str) -> LoopState:
    streak, form = state.refused_streak
    known = (*state.accepted, *(said for said in disputed if said not in state.accepted))
    due = streak > 0 and bool(state.disputed) and set(state.disputed) <= set(known)
    state = replace(state, accepted=known, accepted_by=by, dispute_refused=False)
    if not due:
        return state
    return replace(
        state, disputed=(), dispute_rounds=0, claim_due=True, feedback="", streak=streak, streak_form=form,
        dispute_under_review=False, review_due=False,
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
    if not (was_blocked or state.disputed) or any(f.blocking for f in findings) or not _only_guarded(state):
        return state
    state = replace(state, disputed=(), dispute_rounds=0, dispute_refused=False, dispute_under_review=False)
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
    if state.dispute_under_review:
        state = replace(state, dispute_under_review=False, review_due=False)
        if verdict is not None and verdict.approved:
            return _settled(state, state.disputed, REVIEWER)
        return replace(state, dispute_refused=True, review_findings=verdict.findings if verdict else "")
    if verdict is not None and verdict.approved:
        return replace(state, review_due=False, approved=True, review_rounds=0, review_findings="")
    findings = verdict.findings if verdict else ""
    return replace(
        state,
        review_due=False,
        approved=False,
        verified=False,
        settled=(),
        land_due=False,
        streak=0,
        streak_form="none",
        review_rounds=state.review_rounds + 1,
        review_findings=findings,
        feedback=findings,
        feedback_from="review",
    )


class _Failed(TypedDict):
    red: tuple[tuple[str, str], ...]
    failing: tuple[tuple[str, str], ...]


def _failed(checks: tuple[ev.CheckResult, ...]) -> _Failed:
    """The checks that failed, where all they printed is, and what failed in them: of a hidden one only its name."""
    red = [check for check in checks if not check.passed]
    return _Failed(
        red=tuple((check.name, "" if check.hidden else check.log) for check in red),
        failing=tuple((check.name, "" if check.hidden else what_failed(check.output_tail)) for check in red),
    )


def doubted(state: LoopState, *, commit: str | None, tree: str = "") -> tuple[str, ...]:
    """Checks whose next pass on this commit is not believed at once: they waver, or they failed on it before."""
    contract = state.spec.contract
    subject = _subject(contract.room, commit, tree)
    failed = {check for about, check, passed in state.verdicts if about == subject and not passed}
    again = [check.name for check in contract.checks if contract.identity(check.name, check.command) in failed]
    return tuple(dict.fromkeys((*state.flaky, *again)))


def _subject(room: Room, commit: str | None, tree: str) -> str | None:
    """What a verdict is about: the commit in a fresh checkout, else the files of the tree."""
    return commit if room == "clean" else tree or None


def _remember(state: LoopState, checks: tuple[ev.CheckResult, ...], *, commit: str | None, tree: str = "") -> LoopState:
    state = replace(state, weaker=next((check.weaker for check in checks if check.weaker), ""))
    # A condition, or a check that could not be run, may change while the commit does not.
    told = [
        # The identity holds command and setup: a check that the user edited in between is another check.
        (subject, state.spec.contract.identity(check.name, check.command), check.passed)
        for check in checks
        if check.ran and check.command and (subject := _subject(check.room, commit, tree)) is not None
    ]
    seen = tuple(dict.fromkeys((*state.verdicts, *told)))
    both = {check for subject, check, passed in told if (subject, check, not passed) in seen}
    wavering = [c.name for c in checks if c.flaky or state.spec.contract.identity(c.name, c.command) in both]
    # A failure is never forgotten, however many verdicts come after it: a pass on the same commit is doubted.
    forgotten = max(0, sum(passed for *_, passed in seen) - _GREEN_KEPT)
    old = {*[verdict for verdict in seen if verdict[2]][:forgotten]}
    kept = tuple(verdict for verdict in seen if verdict not in old)
    return replace(state, verdicts=kept, flaky=tuple(dict.fromkeys((*state.flaky, *wavering))))
