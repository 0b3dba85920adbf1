"""What humans ask for, folded: stop, pause, message, new limits and settings, reset."""

from dataclasses import replace
from typing import Any

from untildone.core import breaker
from untildone.core import events as ev
from untildone.core.limits import LIMIT_FIELDS
from untildone.core.progress import eased
from untildone.core.questions import with_answer
from untildone.core.state import LoopState, Message, StopAsked

_MESSAGES_KEPT = 100


def skip_wait(state: LoopState, _: ev.SkipWaitRequested, at: float) -> LoopState:
    """Try now instead of waiting."""
    begins = state.policy.start_at
    policy = state.policy if begins is None or begins <= at else replace(state.policy, start_at=at)
    return replace(state, wait=None, quota=(), policy=policy)


def stop(state: LoopState, event: ev.StopRequested, _: float) -> LoopState:
    """Stop, now or after the running iteration."""
    asked = StopAsked(by=event.by, after_iteration=event.after_iteration, signal=event.signal)
    return replace(state, stop=asked)


def pause(state: LoopState, _: ev.PauseRequested, __: float) -> LoopState:
    """Begin no iteration until resumed; the running one goes on to its end."""
    return replace(state, paused=True)


def resume(state: LoopState, _: ev.ResumeRequested, __: float) -> LoopState:
    """End a pause."""
    return replace(state, paused=False)


def message(state: LoopState, event: ev.MessageReceived, _: float) -> LoopState:
    """Keep what the human said until a prompt carries it."""
    number = state.messages_received + 1
    message = Message(number=number, content=event.content, urgent=event.urgent)
    state = with_answer(state, event.content)
    return replace(state, messages=(*state.messages, message)[-_MESSAGES_KEPT:], messages_received=number)


def limits(state: LoopState, event: ev.LimitsChanged, _: float) -> LoopState:
    """Put new limits in place; what is raised may be warned about again."""
    known: dict[str, Any] = {name: value for name, value in event.changes.items() if name in LIMIT_FIELDS}
    warned = tuple(name for name in state.warned if name not in known)
    return replace(state, policy=replace(state.policy, **known), warned=warned)


def settings(state: LoopState, event: ev.SettingsChanged, _: float) -> LoopState:
    """Go on with other settings; goal and name stay what they are."""
    # The folder may change: people move their repositories.
    spec = replace(event.spec, goal=state.spec.goal, name=state.spec.name)
    return replace(state, policy=event.policy, spec=spec)


def refused(state: LoopState, _: ev.OrderRefused, __: float) -> LoopState:
    """Nothing changes but that the order was answered."""
    return state


def moved(state: LoopState, event: ev.RunMoved, _: float) -> LoopState:
    """Another machine drives now. What its predecessor left open may have cost more than anybody here can see."""
    left = None if state.open is None else replace(state.open, out_of_sight=True)
    arrival = replace(state.arrival, start=event.start or state.arrival.start, judged_from=None, left=None)
    state = replace(state, tenure=max(state.tenure, event.tenure), open=left, arrival=arrival)
    if state.spec.landing.land != "merge":
        return state
    # It merges into a branch of the clone it works in, and that one is another now.
    land_due = state.land_due or arrival.landed is not None
    return replace(state, arrival=replace(arrival, landed=None, merged=None, commit=None), land_due=land_due)


def reset(state: LoopState, event: ev.ResetRequested, _: float) -> LoopState:
    """Clear what was named."""
    if event.circuit:
        state = replace(state, breaker=breaker.reset(state.breaker), progress=eased(state.progress))
    if event.session:
        state = replace(state, last_session=None, retry=None)
    if event.history:
        state = replace(
            state, streak=0, streak_form="none", failures_in_a_row=0, denials_in_a_row=0, outage_since=None,
            backoffs=0, wait=None, calls=(), feedback="", blocked=None, fatal=None,
        )  # fmt: skip
    return state
