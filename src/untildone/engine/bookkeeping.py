"""Replies that were served but never told: found in Claude's own transcripts, booked once."""

import math
from dataclasses import replace

from untildone.core.closing import is_clean
from untildone.core.outcome import Outcome
from untildone.core.state import OpenIteration
from untildone.core.trace import AgentReply
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts

TRANSCRIPT_LAG = 0.25
"""Seconds until a reply that was just served stands in the transcript."""


async def book_unrecorded(journal: Journal, parts: Parts, left: OpenIteration) -> frozenset[str]:
    """Record the replies of the open iteration that only the transcript knows; the ids of all that are booked."""
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
    return frozenset(booked | {reply.message_id for reply in missing})


async def settle_cut_replies(journal: Journal, parts: Parts, outcome: Outcome) -> Outcome:
    """After an unclean end: what the transcript knows is booked, and only the rest stays an estimate."""
    left = journal.state.open
    if is_clean(outcome) or left is None or not outcome.cut_replies:
        return outcome
    await parts.clock.sleep(TRANSCRIPT_LAG)
    found = await book_unrecorded(journal, parts, left)
    covered = math.fsum(usd for message_id, usd in outcome.cut_replies if message_id in found)
    return replace(outcome, estimated_usd=max(0.0, outcome.estimated_usd - covered))
