"""What the running agent lets us see, folded: its session, and the replies it was served."""

from dataclasses import replace

from untildone.core import trace as tr
from untildone.core.spending import book, spend, total
from untildone.core.state import LoopState

_MOST_HOSTS = 50


def session(state: LoopState, event: tr.AgentSession, at: float) -> LoopState:
    """The conversation has a name. Nobody goes on working in the session of a reviewer."""
    if state.open is None:
        return state
    is_review = state.open.review
    state = replace(state, open=replace(state.open, session_id=event.session_id), lane=event.lane or state.lane)
    if is_review:
        return state
    return replace(state, last_session=event.session_id, last_session_at=at)


def reply_started(state: LoopState, event: tr.AgentReplyStarted, _: float) -> LoopState:
    """A reply that may never be seen to end."""
    if state.open is None:
        return state
    usd = event.estimated_usd if event.cost_usd is None else event.cost_usd
    under_way = replace(state.open, reply_under_way=event.message_id, reply_under_way_usd=usd)
    return replace(state, open=under_way)


def reply(state: LoopState, event: tr.AgentReply, _: float) -> LoopState:
    """A reply served in full: booked, and proof that an outage is over."""
    if state.open is None:
        return book(
            state, spend(event.cost_usd, event.estimated_usd, event.usage)
        )  # by a task that outlived its iteration
    left = state.open
    served = replace(
        left, spend=total(left.spend, spend(event.cost_usd, event.estimated_usd, event.usage)), replies=left.replies + 1
    )
    if left.reply_under_way == event.message_id:
        served = replace(served, reply_under_way=None, reply_under_way_usd=0.0)
    return replace(state, open=served, outage_since=None, limited_since=None, backoffs=0)


def woken(state: LoopState, event: tr.AgentWoken, _: float) -> LoopState:
    """The result of a background task started a turn; one that starts the next task may go on for ever."""
    if state.open is None or not event.tasks_started:
        return state
    return replace(state, open=replace(state.open, wakeups=state.open.wakeups + 1))


def books_differ(state: LoopState, event: tr.AgentBooksDiffer, _: float) -> LoopState:
    """What the agent spent without Claude Code knowing of it."""
    if not event.replies:
        return replace(state, prices_differ=True)
    return replace(state, untold_usd=state.untold_usd + max(0.0, event.passed_usd - event.told_usd))


def host_refused(state: LoopState, event: tr.AgentHostRefused, _: float) -> LoopState:
    """The first few are enough for somebody to see what is missing."""
    known = state.refused_hosts
    if event.host in known or len(known) >= _MOST_HOSTS:
        return state
    return replace(state, refused_hosts=(*known, event.host))


def bound_exceeded(state: LoopState, event: tr.AgentBoundExceeded, _: float) -> LoopState:
    """Each bound is remembered as it was exceeded last."""
    others = tuple(one for one in state.exceeded if one[0] != event.what)
    return replace(state, exceeded=(*others, (event.what, event.said)))


def price_unknown(state: LoopState, event: tr.AgentPriceUnknown, _: float) -> LoopState:
    """A model without a known price: told once in a run."""
    return replace(state, unpriced=(*state.unpriced, event.model))
