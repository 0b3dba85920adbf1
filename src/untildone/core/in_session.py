"""Loops inside an interactive Claude Code, folded: how far their notes are read, and what their breaker counted."""

from dataclasses import replace

from untildone.core.breaker import Breaker
from untildone.core.contract import commands
from untildone.core.questions import with_asked
from untildone.core.session_events import FailureCounted, GoalChanged, NotesFolded, QuestionAsked
from untildone.core.state import LoopState


def notes_folded(state: LoopState, event: NotesFolded, _: float) -> LoopState:
    """From here on the notes are new."""
    return replace(
        state,
        notes_folded=event.until,
        notes_skipped=state.notes_skipped + event.skipped,
        notes_last=max(state.notes_last, event.last),
        notes_foreign=state.notes_foreign + event.foreign,
        notes_gaps=state.notes_gaps + event.gaps,
    )


def goal_changed(state: LoopState, event: GoalChanged, _: float) -> LoopState:
    """From here on it works for something else; its name stays what it is."""
    policy = replace(
        state.policy,
        completion_signal=event.completion_signal,
        max_iterations=event.max_iterations,
        deadline=event.deadline,
    )
    contract = replace(state.spec.contract, checks=commands(*dict.fromkeys(event.checks)))
    return replace(state, spec=replace(state.spec, goal=event.goal, contract=contract), policy=policy)


def question_asked(state: LoopState, event: QuestionAsked, _: float) -> LoopState:
    """For eyes: nothing waits for the answer."""
    return with_asked(state, [event.question])


def failure_counted(state: LoopState, event: FailureCounted, at: float) -> LoopState:
    """Opened by failures at one point; any turn without one closes it."""
    is_open = event.failures >= event.limit
    return replace(
        state,
        breaker=Breaker(
            state="open" if is_open else "closed",
            reason=f"{event.failures} failures in a row at {event.point}" if event.failures else "",
            opened_at=at if is_open else None,
            no_progress=event.failures,
            same_error=event.failures,
            last_error=event.point,
        ),
    )
