"""The work's way into git, folded: what was committed, what could not be, what was saved half done."""

from dataclasses import replace

from untildone.core import events as ev
from untildone.core.not_landed import for_people
from untildone.core.progress import Progress, has_judges, placed
from untildone.core.state import HalfDone, Held, LoopState, OpenIteration, Unsettled


def prepared(state: LoopState, event: ev.LandingPrepared, _: float) -> LoopState:
    """Where the work begins and where it is meant to go.

    Said again by each driver, out of what it finds in git, where an agent may have written: what was said first holds,
    unless a human names another base.
    """
    known = state.arrival
    arrival = replace(
        known,
        branch=event.branch,
        base=state.spec.landing.base or known.base or event.base,
        start=known.start or event.start,
        judged_from=event.judged_from or known.judged_from,
        left=None,
        remote=known.remote or event.remote,
        history=event.history,
        in_line="",
        held_up="",
    )
    return replace(state, arrival=arrival)


def committed(state: LoopState, event: ev.LandingCommitted, at: float) -> LoopState:
    """The work of an iteration is in a commit."""
    landing = state.spec.landing
    # A commit made while a landing is under way mends what kept it from arriving: it goes the same way.
    goes_on = landing.every == "iteration" or bool(state.arrival.because)
    seemed = state.files_uncommitted
    return replace(
        state,
        commits=state.commits + 1,
        last_commit=event.commit,
        last_subject=event.message.partition("\n")[0],
        files_modified=state.files_modified + (event.files_changed or seemed) - seemed,
        files_uncommitted=0,
        commit_trouble="",
        unsettled=None,
        progress=_placed(state, event, at),
        land_due=goes_on and landing.land in {"merge", "pr"},
        arrival=replace(state.arrival, branch=_branch_after(state, event)),
    )


def _placed(state: LoopState, event: ev.LandingCommitted | ev.LandingSnapshot, at: float) -> Progress:
    judged = has_judges(state.spec)
    return placed(state.progress, event.content, event.iteration_num, at, judged=judged, change=event.change)


def _branch_after(state: LoopState, event: ev.LandingCommitted) -> str | None:
    """Where the workspace commits is the run's branch: it does so only where it knows that. Never the base."""
    is_base = event.branch == state.arrival.base
    return state.arrival.branch if is_base or event.branch is None else event.branch


def commit_failed(state: LoopState, event: ev.LandingFailed, _: float) -> LoopState:
    """The work of an iteration could not be committed: it is tried again as soon as that is possible."""
    return replace(
        state, commit_trouble=event.reason, unsettled=_still_owed(replace(state, commit_trouble=event.reason))
    )


def _still_owed(state: LoopState) -> Unsettled | None:
    """The work that is not committed yet."""
    return state.unsettled if state.held or state.commit_trouble else None


def held(state: LoopState, event: ev.LandingHeld, at: float) -> LoopState:
    """Nothing can be committed, or it can again."""
    if not event.cause:
        return replace(state, held=None)
    same = state.held is not None and state.held.cause == event.cause
    since = state.held.since if state.held is not None and same else at
    return replace(state, held=Held(cause=event.cause, said=event.said, since=since))


def left(state: LoopState, event: ev.LandingLeft, _: float) -> LoopState:
    """A driver goes."""
    return replace(state, arrival=replace(state.arrival, left=event.commit))


def begun(state: LoopState, event: ev.LandingBegun, at: float) -> LoopState:
    """A commit is on its way; said again, when nobody is before it any more."""
    made = event.makes or state.arrival.made
    arrival = replace(state.arrival, commit=event.commit, because=event.because, since=at, in_line="", made=made)
    return replace(state, arrival=arrival)


def pushed(state: LoopState, event: ev.LandingPushed, at: float) -> LoopState:
    """The remote has it; from here on CI is waited for."""
    head = event.head or event.commit
    arrival = replace(state.arrival, pushed=event.commit, head=head, since=at, held_up="")
    return replace(state, arrival=arrival)


def pull_opened(state: LoopState, event: ev.LandingPullOpened, _: float) -> LoopState:
    """There is a pull request."""
    return replace(state, arrival=replace(state.arrival, number=event.number, url=event.url, held_up=""))


def rejected(state: LoopState, event: ev.LandingRejected, _: float) -> LoopState:
    """The next iteration mends what keeps the work from landing."""
    arrival = replace(state.arrival, commit=None, fixes=state.arrival.fixes + 1, seen=event.seen or state.arrival.seen)
    arrival = replace(arrival, rejected=event.said or for_people(event.cause, event.detail), held_up="")
    return replace(
        state, verified=False, settled=(), land_due=False, streak=0, streak_form="none", feedback=event.detail,
        feedback_from="landing", arrival=arrival,
    )  # fmt: skip


def merged(state: LoopState, event: ev.LandingMerged, _: float) -> LoopState:
    """It has arrived. What comes next goes its own way."""
    arrival = replace(
        state.arrival, commit=None, landed=event.commit, merged=event.merged, number=None, pushed=None, head=None,
        made=None, fixes=0, trouble="", rejected="", held_up="",
    )  # fmt: skip
    return replace(state, land_due=False, arrival=arrival)


def reverted(state: LoopState, event: ev.LandingReverted, _: float) -> LoopState:
    """It was taken back: it has not arrived, and the agent is told."""
    arrival = replace(state.arrival, landed=None, merged=None, commit=None, fixes=state.arrival.fixes + 1)
    arrival = replace(arrival, rejected=for_people("checks", event.reason))
    return replace(
        state, verified=False, settled=(), land_due=False, streak=0, streak_form="none", feedback=event.reason,
        feedback_from="landing", arrival=arrival,
    )  # fmt: skip


def gave_up(state: LoopState, event: ev.LandingGaveUp, _: float) -> LoopState:
    """The run stops with its work done and not landed."""
    return replace(state, arrival=replace(state.arrival, trouble=event.reason, commit=None, held_up=""))


def rewound(state: LoopState, event: ev.Rewound, _: float) -> LoopState:
    """The tree is another one: nothing that was said about the old one holds, and what came after is not to land."""
    head = event.head or event.commit
    is_start = event.iteration_num == 0 or head == state.arrival.start
    return replace(
        state, last_commit=None if is_start else head, examined=None, verified_commit=None, claim_due=False,
        verified=False, settled=(), guarded=False, approved=False, review_due=False, land_due=False, streak=0,
        streak_form="none",
        feedback="", checks_said="", refused_streak=(0, "none"), findings=(), red=(), half_done=None, unsettled=None,
        disputed=(), dispute_rounds=0, dispute_refused=False, dispute_under_review=False,
        retry=None, last_session=None, blocked=None, commit_trouble="",
        arrival=replace(state.arrival, commit=None, because="", left=event.commit if state.arrival.left else None),
    )  # fmt: skip


def snapshot(state: LoopState, event: ev.LandingSnapshot, at: float) -> LoopState:
    """The tree is safe under a private ref. Without a reason nothing is half done."""
    if not event.reason:
        return replace(state, unsettled=_still_owed(state), progress=_placed(state, event, at))
    half = HalfDone(iteration_num=event.iteration_num, reason=event.reason, ref=event.ref, files=event.files)
    return replace(state, half_done=half, unsettled=None)


def unsettled(left: OpenIteration | None, seq: int, fault: str | None = None) -> Unsettled | None:
    """What a closed iteration owes to git: a commit, or after a fault a snapshot. A death may come in between."""
    if left is None:
        return None
    return Unsettled(
        iteration_num=left.number, closed_after=seq, tree=left.tree, head=left.head, branch=left.branch, fault=fault
    )
