"""After a driver died: end what it left running, book what it really spent, save what it had half done."""

from untildone.core import events as ev
from untildone.core.decide import Stop
from untildone.core.faults import DRIVER_DIED, Fault
from untildone.core.state import LoopState, OpenIteration
from untildone.core.trace import AgentReply
from untildone.engine.effects import stop_events
from untildone.engine.iteration import snapshot_half_done
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts


async def recover(journal: Journal, parts: Parts) -> None:
    """Close what a dead driver left open. Does nothing after an orderly stop."""
    orphans = parts.spawner.sweep(journal.run_id)
    left = journal.state.open
    if left is None:
        if orphans:
            await journal.record(ev.ContinuousRecovered(orphans_ended=orphans))
        return
    await _book_unrecorded_replies(journal, parts, left)
    await journal.record(close_unfinished(journal.state, DRIVER_DIED, DRIVER_DIED.meaning))
    ref = await snapshot_half_done(journal, parts, left.number, DRIVER_DIED.meaning)
    await journal.record(ev.ContinuousRecovered(iteration_num=left.number, orphans_ended=orphans, snapshot=ref))


async def _book_unrecorded_replies(journal: Journal, parts: Parts, left: OpenIteration) -> None:
    """Replies in Claude's transcript that never reached the log were served, and are paid for."""
    if left.session_id is None:
        return
    # A session that was resumed holds replies of earlier iterations too: those are in the log already.
    since = 0 if left.resume_session else left.started_seq
    booked = {
        record.event.message_id for record in await journal.records_since(since) if isinstance(record.event, AgentReply)
    }
    served = parts.ledger.replies(left.session_id, journal.state.spec.cwd)
    for reply in served:
        if isinstance(reply, AgentReply) and reply.message_id not in booked:
            await journal.record(reply)


def close_unfinished(state: LoopState, fault: Fault, error: str) -> ev.IterationFailed:
    """Close the open iteration with what was seen of it; a reply cut in mid-air is booked as an estimate."""
    left = state.open
    assert left is not None
    return ev.IterationFailed(
        iteration_num=left.number,
        error=error,
        error_type=fault.name,
        retry_allowed=True,
        cost_usd=None if left.spend.unknown_costs else left.spend.cost_usd,
        estimated_usd=left.reply_under_way_usd,
        session_id=left.session_id,
        usage=left.spend.usage,
        duration_seconds=max(0.0, state.last_at - left.started_at),
    )


async def abandon(journal: Journal, parts: Parts, fault: Fault, stop: Stop) -> None:
    """Leave in a hurry, or because of a bug: end the agent, book, keep the work, write down the stop."""
    await parts.agent.close()
    left = journal.state.open
    if left is not None:
        await journal.record(close_unfinished(journal.state, fault, stop.detail or fault.meaning))
        await snapshot_half_done(journal, parts, left.number, fault.meaning)
    await journal.record(*stop_events(journal.state, stop, parts.clock.now()))
    await journal.save()
