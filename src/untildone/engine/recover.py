"""After a driver died: end what it left running, book what it really spent, save what it had half done."""

from dataclasses import replace

from untildone.core import events as ev
from untildone.core.decide import Stop
from untildone.core.faults import DRIVER_DIED, FAULTS, Fault
from untildone.core.state import LoopState, Unsettled
from untildone.engine.bookkeeping import book_unrecorded
from untildone.engine.effects import stop_events
from untildone.engine.iteration import settle_done, snapshot_half_done
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.errors import WorkspaceError
from untildone.ports import TreeState


async def recover(journal: Journal, parts: Parts) -> None:
    """Close what a dead driver left open. Does nothing after an orderly stop."""
    orphans = parts.spawner.sweep(journal.run_id)
    left = journal.state.open
    if left is not None:
        await book_unrecorded(journal, parts, left)
        closed = close_unfinished(journal.state, DRIVER_DIED, DRIVER_DIED.meaning)
        await journal.record(replace(closed, unseen_requests=_unseen_requests(journal.state, parts)))
    owed = journal.state.unsettled
    ref = await _settle(journal, parts, owed) if owed else None
    died_in = owed.iteration_num if owed and owed.fault == DRIVER_DIED.name else None
    if died_in is not None or orphans:
        await journal.record(ev.ContinuousRecovered(iteration_num=died_in, orphans_ended=orphans, snapshot=ref))


def _unseen_requests(state: LoopState, parts: Parts) -> int:
    """A request went out and neither the dead driver nor Claude's transcript saw an answer: it may have been served."""
    left = state.open
    if left is None or left.session_id is None or left.reply_under_way is not None:
        return 0
    return int(parts.ledger.unanswered(left.session_id, state.spec.cwd))


async def _settle(journal: Journal, parts: Parts, owed: Unsettled) -> str | None:
    """Do what the dead driver owed to git; all of it may be done already. Returns the ref of a snapshot."""
    if owed.fault is not None:
        return await _try_to_snapshot(journal, parts, owed.iteration_num, FAULTS[owed.fault].meaning)
    for record in await journal.records_since(owed.closed_after):
        if isinstance(record.event, ev.IterationCompleted):
            before = TreeState(fingerprint=owed.tree, head=owed.head, branch=owed.branch)
            await settle_done(journal, parts, before, record.event, again=True)
            break
    return None


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


async def _try_to_snapshot(journal: Journal, parts: Parts, iteration_num: int, reason: str) -> str | None:
    """A folder or repository that is gone must not keep the stop from being written down."""
    try:
        return await snapshot_half_done(journal, parts, iteration_num, reason)
    except WorkspaceError as trouble:
        await journal.tell(ev.ContinuousWarning(message=f"half-done work could not be saved: {trouble}"))
        return None


async def abandon(journal: Journal, parts: Parts, fault: Fault, stop: Stop) -> None:
    """Leave in a hurry, or because of a bug: end the agent, book, keep the work, write down the stop."""
    await parts.agent.close()
    left = journal.state.open
    if left is not None:
        await journal.record(close_unfinished(journal.state, fault, stop.detail or fault.meaning))
        await _try_to_snapshot(journal, parts, left.number, fault.meaning)
    await journal.record(*stop_events(journal.state, stop, parts.clock.now()))
    await journal.save()
