"""What stands between work and done: checks, guard, review, landing. Pure questions about where a run stands."""

from untildone.core.claims import judges, streak_needed
from untildone.core.state import LoopState
from untildone.core.stopping import DONE, Reason

CLEAN_ROOM = "clean_room"
"""The fatal condition of a check that can never pass in a fresh checkout."""
_REACHED = {str(reason): reason for reason in DONE}
_CARRIED = frozenset({"merge", "pr"})


def needs_witness(state: LoopState) -> bool:
    """Whether a claim sends the witness in: always with checks, else when it would be believed."""
    contract = state.spec.contract
    if contract.checks or contract.fail_to_pass:
        return True
    needed = streak_needed(state.streak_form, state.policy.completion_threshold)
    return _is_looked_at(state) and state.streak >= needed


def is_proven(state: LoopState) -> Reason | None:
    """The reason to call the goal reached, if there is one: checks that passed, or claims where there are none.

    With a message that no prompt has carried yet, nothing is: a human has more to say.
    """
    if state.messages:
        return None
    if state.verified or state.settled:
        return Reason.VALIDATION_PASSED if state.verified else Reason.ACCEPTED
    return Reason.COMPLETION_SIGNAL if _is_believed(state) and (state.answered or not _is_asked(state)) else None


def owes_question(state: LoopState) -> bool:
    """Whether the agent is to be asked what is left: its word alone would end the run, or it came without a report."""
    if state.answered or state.streak < 1 or state.messages or not (_has_word_only(state) and _is_asked(state)):
        return False
    return state.streak_form == "signal" or _is_believed(state)


def _is_believed(state: LoopState) -> bool:
    """Whether there was the claim often enough, where no check can tell."""
    needed = streak_needed(state.streak_form, state.policy.completion_threshold)
    is_clean = state.guarded or not _is_looked_at(state)
    return _has_word_only(state) and not state.commit_trouble and is_clean and 0 < needed <= state.streak


def _has_word_only(state: LoopState) -> bool:
    contract = state.spec.contract
    return not (contract.checks or contract.fail_to_pass)


def _is_asked(state: LoopState) -> bool:
    """Whether there is somebody to ask, and the agent is not taken at its word as in older systems."""
    return state.attempts > 0 and judges(state.policy.completion_match) and not state.spec.in_session


def _is_looked_at(state: LoopState) -> bool:
    """Whether the witness looks even where there are no checks: nothing with a key in it leaves the branch unseen."""
    return state.spec.contract.guard != "off" or state.spec.landing.land in _CARRIED


def owes_review(state: LoopState) -> bool:
    """Whether a reviewer must look before anything else is done with the work.

    However often the work is reviewed, none is done or lands against the last word of a reviewer.
    """
    if state.dispute_under_review:
        return state.review_due
    if state.spec.review.when == "never" or not state.attempts:
        return False
    is_final = is_proven(state) is not None or (state.land_due and _is_checked(state) and not has_arrived(state))
    return state.review_due or (is_final and not state.approved)


def has_arrived(state: LoopState) -> bool:
    """Whether all that the run committed is where the user wants it."""
    return state.spec.landing.land not in _CARRIED or state.last_commit in {None, state.arrival.landed}


def done_for(state: LoopState) -> Reason | None:
    """Why the run is done: proven, reviewed, and arrived."""
    if state.messages:
        return None
    reached = is_proven(state) or _REACHED.get(state.arrival.because)
    return reached if reached and not owes_review(state) and has_arrived(state) else None


def landing_for(state: LoopState) -> str | None:
    """The stop reason for which the work is to be landed now ("" for one iteration's work); None: not now."""
    if has_arrived(state) or owes_review(state) or state.claim_due or state.commit_trouble or not _is_checked(state):
        return None
    if proven := is_proven(state):
        return proven
    return state.arrival.because if state.land_due else None


def _is_checked(state: LoopState) -> bool:
    """Whether the witness has seen the newest commit and let it pass."""
    return state.examined == state.last_commit


def owes_check(state: LoopState) -> bool:
    """Whether the witness must look at a commit although nobody claimed anything: it is about to land."""
    return state.land_due and not _is_checked(state)
