"""After a driver died: end what it left running, book what it really spent, save what it had half done."""

from dataclasses import replace

from untildone.core import events as ev
from untildone.core.decide import Stop
from untildone.core.faults import DRIVER_DIED, FAULTS, Fault
from untildone.core.state import LoopState, Unsettled
from untildone.core.trace import AgentSession
from untildone.engine.bookkeeping import book_last_words, book_passed, book_unrecorded, cut_usd, settled
from untildone.engine.effects import stop_events
from untildone.engine.folder import leave_folder, what_is_left
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.engine.settle import settle_owed, snapshot_half_done
from untildone.errors import WorkspaceError
from untildone.ports import LastWords, Passed


async def recover(journal: Journal, parts: Parts) -> None:
    """Close what a dead driver left open. Does nothing after an orderly stop."""
    orphans = parts.spawner.sweep(journal.run_id)
    words = await book_last_words(journal, parts)
    await parts.witness.sweep()
    if journal.state.open is not None:
        await _close_left_open(journal, parts, words)
    parts.ledger.forget_last_words(journal.run_id)
    owed = journal.state.unsettled
    ref = await _settle(journal, parts, owed) if owed else None
    died_in = owed.iteration_num if owed and owed.fault == DRIVER_DIED.name else None
    if died_in is not None or orphans:
        await journal.record(ev.ContinuousRecovered(iteration_num=died_in, orphans_ended=orphans, snapshot=ref))


async def _close_left_open(journal: Journal, parts: Parts, words: LastWords) -> None:
    await _find_session(journal, parts)
    left, passed = journal.state.open, parts.ledger.passed()
    assert left is not None
    if passed is not None:
        # A transcript may hold part of a reply that broke off with the door.
        await book_passed(journal, passed, left.number, since=0)
        await journal.record(close_unfinished(journal.state, DRIVER_DIED, DRIVER_DIED.meaning, passed))
        return
    await book_unrecorded(journal, parts, left)
    closed = close_unfinished(journal.state, DRIVER_DIED, DRIVER_DIED.meaning)
    left = journal.state.open
    assert left is not None
    unseen = _unseen_requests(journal.state, parts, words)
    await journal.record(replace(settled(closed, left, words), unseen_requests=unseen))


async def _find_session(journal: Journal, parts: Parts) -> None:
    """A driver may die before it knows the id of a conversation; its transcript begins with the prompt."""
    left = journal.state.open
    if left is None or left.session_id is not None:
        return
    cwd = journal.state.spec.cwd
    for record in await journal.records_since(left.started_seq - 1):
        if isinstance(record.event, ev.IterationStarted) and record.event.iteration_num == left.number:
            since, prompt = left.started_at, record.event.prompt_preview
            session = left.resume_session or parts.ledger.find_session(cwd, since=since, prompt=prompt)
            if session is not None:
                await journal.record(AgentSession(iteration_num=left.number, session_id=session))
            return


def _unseen_requests(state: LoopState, parts: Parts, words: LastWords) -> int:
    """A request went out and nobody saw an answer: it may have been served. The last words know best."""
    left = state.open
    if left is None or left.reply_under_way is not None:
        return 0
    if left.out_of_sight:
        return 1  # its last words, and the end of its transcript, are on the other machine
    if words.awaits_reply or left.session_id is None:
        return int(bool(words.awaits_reply))
    spoken = words.awaits_reply is not None
    return int(parts.ledger.unanswered(left.session_id, state.spec.cwd, only_subagents=spoken))


async def _settle(journal: Journal, parts: Parts, owed: Unsettled) -> str | None:
    """Do what the dead driver owed to git; all of it may be done already. Returns the ref of a snapshot."""
    if owed.fault is not None:
        if owed.after_stop:
            return None  # whoever stopped it has saved what there was
        return await _try_to_snapshot(journal, parts, owed.iteration_num, FAULTS[owed.fault].meaning)
    await settle_owed(journal, parts)
    return None


def close_unfinished(state: LoopState, fault: Fault, error: str, passed: Passed | None = None) -> ev.IterationFailed:
    """Close the open iteration with what was seen of it; a reply cut in mid-air is booked as an estimate."""
    left = state.open
    assert left is not None
    cut = left.reply_under_way_usd if passed is None else cut_usd(passed)
    return ev.IterationFailed(
        iteration_num=left.number,
        error=error,
        error_type=fault.name,
        retry_allowed=True,
        cost_usd=None if left.spend.unknown_costs else left.spend.cost_usd,
        estimated_usd=left.spend.estimated_usd + cut,
        unseen_requests=0 if passed is None else passed.unseen + passed.unanswered,
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
    await parts.close_agents()
    left, passed = journal.state.open, parts.ledger.passed()
    if left is not None:
        if passed is not None:
            await book_passed(journal, passed, left.number, since=left.started_seq)
        await journal.record(close_unfinished(journal.state, fault, stop.detail or fault.meaning, passed))
        if not left.review:
            await _try_to_snapshot(journal, parts, left.number, fault.meaning)
    if journal.state.phase == "running":
        tree = await what_is_left(parts)
        await journal.record(*tree, *stop_events(journal.state, stop, parts.clock.now()))
    await leave_folder(journal, parts)
    await journal.save()
