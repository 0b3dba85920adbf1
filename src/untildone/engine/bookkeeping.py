"""Replies that were served but never told: found in Claude's last words, its transcripts and the door's notes."""

import math
from dataclasses import replace

from untildone.core.closing import is_clean
from untildone.core.events import Event, IterationFailed
from untildone.core.outcome import Outcome, Usage
from untildone.core.state import OpenIteration
from untildone.core.trace import AgentBooksDiffer, AgentReply, AgentReplyStarted, AgentSession
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.ports import LastWords, Passed

TRANSCRIPT_LAG = 0.25
"""Seconds until a reply that was just served stands in the transcript."""
_ROUNDING = 1e-9


async def book_last_words(journal: Journal, parts: Parts) -> LastWords:
    """Record what the agent of a dead driver still said about sessions and replies, as far as it is news."""
    words = parts.ledger.last_words(journal.run_id, journal.state.attempts)
    left = journal.state.open
    said = [*([words.session] if words.session and left and left.session_id is None else []), *words.replies]
    if not said:
        return words
    # They may reach back over many iterations: only the whole log knows what is new.
    known = {_news(record.event) for record in await journal.records_since(0)}
    fresh = {_news(event): event for event in said if _news(event) not in known and _ending(event) not in known}
    if fresh:
        await journal.record(*fresh.values())
    return words


def _news(event: Event) -> tuple[type[Event], str]:
    """What is told once: a session, the beginning of a reply, its end."""
    match event:
        case AgentSession():
            return AgentSession, event.session_id
        case AgentReply() | AgentReplyStarted():
            return type(event), event.message_id
    return type(event), ""


def _ending(event: Event) -> tuple[type[Event], str]:
    """After which the news is none any more: the end of a reply may have been found where its beginning is not told."""
    return (AgentReply, event.message_id) if isinstance(event, AgentReplyStarted) else _news(event)


def settled(closed: IterationFailed, left: OpenIteration, words: LastWords) -> IterationFailed:
    """Take the agent's own word for what the conversation cost, if it knows of more than the replies we saw."""
    total, seen = words.result_usd, closed.cost_usd
    is_whole = left.resume_session is None and words.result_session == left.session_id
    # Where a price is not known, the agent's own sum is a guess too: the dearest price is the safer one.
    if total is None or seen is None or not is_whole or left.spend.estimated_usd or total <= seen + _ROUNDING:
        return closed
    if left.reply_under_way is not None:
        return replace(closed, estimated_usd=max(closed.estimated_usd, total - seen))
    return replace(closed, cost_usd=total)


async def book_unrecorded(journal: Journal, parts: Parts, left: OpenIteration) -> frozenset[str]:
    """Record the replies of the open iteration that only the transcript knows; their ids."""
    if left.session_id is None:
        return frozenset()
    # A session that was resumed holds replies of earlier iterations too: those are in the log already.
    since = 0 if left.resume_session else left.started_seq
    told = await journal.records_since(since)
    booked = {record.event.message_id for record in told if isinstance(record.event, AgentReply)}
    served = parts.ledger.replies(left.session_id, journal.state.spec.cwd)
    missing = [reply for reply in served if isinstance(reply, AgentReply) and reply.message_id not in booked]
    if missing:
        await journal.record(*(replace(reply, iteration_num=left.number) for reply in missing))
    return frozenset(reply.message_id for reply in missing)


async def settle_books(journal: Journal, parts: Parts, outcome: Outcome) -> Outcome:
    """What the agent really spent: checked against the door's notes, where it works behind one."""
    left, passed = journal.state.open, parts.ledger.passed()
    if left is None:
        return outcome
    if passed is None:
        return await _settle_cut_replies(journal, parts, outcome, left)
    untold = await book_passed(journal, passed, left.number, since=left.started_seq)
    told, served = outcome.cost_usd or 0.0, math.fsum(reply.cost_usd or 0.0 for reply in passed.replies)
    differ = AgentBooksDiffer(
        iteration_num=left.number, told_usd=told, passed_usd=served, replies=untold if served > told else 0
    )
    is_news = differ.replies > 0 or (is_clean(outcome) and not journal.state.prices_differ)
    if is_news and abs(served - told) > _ROUNDING:
        await journal.tell(differ)
    return _with_passed(outcome, passed, await _cut_usd(journal, passed, left, ended_well=is_clean(outcome)))


async def _cut_usd(journal: Journal, passed: Passed, left: OpenIteration, *, ended_well: bool) -> float:
    """What replies without an end cost at least, as far as that is in no estimate.

    A door may hear only now that a reply was cut off in an earlier iteration; and of what Claude Code told, it makes
    the estimate itself where it ended well.
    """
    cut = passed.begun if ended_well else (*passed.begun, *passed.under_way)
    if not cut:
        return 0.0
    told = [record for record in await journal.records_since(0) if isinstance(record.event, AgentReplyStarted)]
    counted = {_news(record.event) for record in told if ended_well or record.seq <= left.started_seq}
    return math.fsum(_worth(reply) for reply in cut if _news(reply) not in counted)


def _with_passed(outcome: Outcome, passed: Passed, cut: float) -> Outcome:
    """The larger sum counts. What is cut, and what is unknown, the door knows better."""
    cost = math.fsum(reply.cost_usd or 0.0 for reply in passed.replies)
    guessed = math.fsum(reply.estimated_usd for reply in passed.replies)
    if is_clean(outcome):
        guessed = max(guessed, outcome.estimated_usd)
    failure = outcome.failure
    if failure is not None and passed.retry_after is not None and passed.refused == failure.api_error_status:
        failure = replace(failure, retry_after=max(passed.retry_after, failure.retry_after or 0.0))
    larger = cost > (outcome.cost_usd or 0.0) + _ROUNDING
    return replace(
        outcome,
        cost_usd=cost if larger or outcome.cost_usd is None else outcome.cost_usd,
        usage=sum((reply.usage for reply in passed.replies), Usage()) if larger else outcome.usage,
        estimated_usd=guessed + cut,
        unseen_requests=passed.unseen + (0 if is_clean(outcome) else passed.unanswered),
        failure=failure,
    )


def cut_usd(passed: Passed) -> float:
    """What replies cost at least whose end has not passed, and never will: the door is gone."""
    return math.fsum(map(_worth, (*passed.begun, *passed.under_way)))


def _worth(reply: AgentReplyStarted) -> float:
    return reply.estimated_usd if reply.cost_usd is None else reply.cost_usd


async def book_passed(journal: Journal, passed: Passed, number: int, *, since: int) -> int:
    """Record the replies that only the door saw; returns how many."""
    told = await journal.records_since(since)
    booked = {record.event.message_id for record in told if isinstance(record.event, AgentReply)}
    missing = [replace(reply, iteration_num=number) for reply in passed.replies if reply.message_id not in booked]
    if missing:
        await journal.record(*missing)
    return len(missing)


async def _settle_cut_replies(journal: Journal, parts: Parts, outcome: Outcome, left: OpenIteration) -> Outcome:
    """After an unclean end: what the transcript knows is booked, and only the rest stays estimated or unknown."""
    if is_clean(outcome) or not (outcome.cut_replies or outcome.unseen_requests):
        return outcome
    await parts.clock.sleep(TRANSCRIPT_LAG)
    found = await book_unrecorded(journal, parts, left)
    cut = dict(outcome.cut_replies)
    covered = math.fsum(usd for message_id, usd in cut.items() if message_id in found)
    return replace(
        outcome,
        estimated_usd=max(0.0, outcome.estimated_usd - covered),
        unseen_requests=max(0, outcome.unseen_requests - len(found - cut.keys())),
    )
