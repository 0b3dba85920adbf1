"""The work's way into git, folded: what was committed, what could not be, what was saved half done."""

from dataclasses import replace

from untildone.core import events as ev
from untildone.core.state import HalfDone, LoopState, OpenIteration, Unsettled


def committed(state: LoopState, event: ev.LandingCommitted, _: float) -> LoopState:
    """The work of an iteration is in a commit."""
    return replace(state, commits=state.commits + 1, last_commit=event.commit, commit_trouble="", unsettled=None)


def commit_failed(state: LoopState, event: ev.LandingFailed, _: float) -> LoopState:
    """The work of an iteration could not be committed."""
    return replace(state, commit_trouble=event.reason, unsettled=None)


def snapshot(state: LoopState, event: ev.LandingSnapshot, _: float) -> LoopState:
    """Half-done work is safe under a private ref."""
    half = HalfDone(iteration_num=event.iteration_num, reason=event.reason, ref=event.ref, files=event.files)
    return replace(state, half_done=half, unsettled=None)


def unsettled(left: OpenIteration | None, seq: int, fault: str | None = None) -> Unsettled | None:
    """What a closed iteration owes to git: a commit, or after a fault a snapshot. A death may come in between."""
    if left is None:
        return None
    return Unsettled(
        iteration_num=left.number, closed_after=seq, tree=left.tree, head=left.head, branch=left.branch, fault=fault
    )
