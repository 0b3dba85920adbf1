"""What an iteration leaves in the tree is committed, or saved; where that is not possible, nothing more is bought."""

from dataclasses import asdict, replace

from untildone.core import events as ev
from untildone.core.closing import commit_message
from untildone.core.events import Event
from untildone.core.state import LoopState
from untildone.core.trace import IterationFilesChanged
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.errors import WorkspaceError
from untildone.ports import Settled, TreeState

Spans = tuple[tuple[float, float], ...]
"""Times from a moment to a moment."""
_SLACK = 1.0


async def settle_done(
    journal: Journal,
    parts: Parts,
    before: TreeState,
    closed: ev.IterationCompleted,
    *,
    again: bool = False,
    tools: Spans = (),
) -> None:
    """Commit what an iteration changed since `before`, and write it down. `again`: a dead driver may have committed.

    `tools`: when the agent's tools ran. If it switched to another branch itself, it is told so and can go back.
    """
    message = commit_message(journal.state, closed)
    settled = await parts.workspace.settle(
        before, iteration_num=closed.iteration_num, message=message, waived=journal.state.waived
    )
    if again and settled.message and message.startswith(settled.message.removesuffix("…")):
        settled = replace(settled, by="loop")  # not the agent's own commit: it has the words the loop would have used
    names = await _names(settled, journal.state, parts)
    if settled.held is not None and not _within(tools, settled.switched_at):
        await journal.record(ev.LandingHeld(cause=settled.held.cause, said=settled.held.said))
    if facts := _settled_facts(settled, closed.iteration_num, names, had_trouble=bool(journal.state.commit_trouble)):
        await journal.record(*facts)
    if settled.warning and not settled.left:
        await journal.tell(ev.ContinuousWarning(message=settled.warning))
    await _tell_changes(journal, parts, closed.iteration_num, settled)


def _within(spans: Spans, moment: float) -> bool:
    """Whether it was in one of them; the times of files are a little behind."""
    return any(began - _SLACK <= moment <= ended + _SLACK for began, ended in spans)


def _settled_facts(settled: Settled, number: int, names: tuple[str, str], *, had_trouble: bool) -> list[Event]:
    """Where the work is now: in a commit, in a snapshot of its own, or left over."""
    facts: list[Event] = []
    content, change = names
    if settled.commit is not None:
        facts.append(
            ev.LandingCommitted(
                iteration_num=number,
                commit=settled.commit,
                branch=settled.tree.branch,
                files_changed=settled.files_changed,
                message=settled.message,
                by=settled.by,
                content=content,
                change=change,
            )
        )
    if settled.left or settled.elsewhere or (had_trouble and settled.commit is None):
        reason = settled.elsewhere or (settled.warning if settled.left else "")
        facts.append(ev.LandingFailed(iteration_num=number, reason=reason, files=settled.left))
    if settled.snapshot and settled.snapshot_commit != settled.commit:
        facts.append(
            ev.LandingSnapshot(
                iteration_num=number,
                ref=settled.snapshot,
                commit=settled.snapshot_commit,
                head=settled.tree.head,
                content=content,
                change=change,
            )
        )
    return facts


async def _names(settled: Settled, state: LoopState, parts: Parts) -> tuple[str, str]:
    """Names for what the whole tree holds now and for what changed; empty if not known, which is no trouble."""
    start, before, kept = state.arrival.start, settled.previous, settled.snapshot_commit
    try:
        content = await parts.workspace.content(start, kept) if start and kept else ""
        return content, await parts.workspace.change(before, kept) if before and kept else ""
    except WorkspaceError:
        return "", ""


async def _tell_changes(journal: Journal, parts: Parts, number: int, settled: Settled) -> None:
    """What the iteration changed, for eyes: trouble with it is nobody's trouble."""
    if not (settled.previous and settled.snapshot_commit):
        return
    try:
        seen = await parts.workspace.difference(settled.previous, settled.snapshot_commit)
    except WorkspaceError as trouble:
        await journal.tell(ev.ContinuousWarning(message=f"the change cannot be shown: {trouble}"))
        return
    await journal.tell(
        IterationFilesChanged(
            iteration_num=number, files=seen.files, files_changed=seen.files_changed, **asdict(seen.facts)
        )
    )


async def can_begin(journal: Journal, parts: Parts, before: TreeState) -> bool:
    """Whether an iteration's work could be committed; if not, it is written down why, and no agent is asked."""
    held = await parts.workspace.held(before)
    told = journal.state.commit_trouble
    if held is None or (journal.state.held is None and told and held.said.startswith(told)):
        return True  # or the agent did it, has been told, and can put it right
    await journal.record(ev.LandingHeld(cause=held.cause, said=held.said))
    return False


async def look_again(journal: Journal, parts: Parts) -> None:
    """Once nothing holds up commits any more, commit what is owed: no iteration has to be paid for that."""
    known = journal.state.held
    if known is None:
        return
    held = await parts.workspace.held(await parts.workspace.observe())
    if held is None:
        await journal.record(ev.LandingHeld())
        await settle_owed(journal, parts)
    elif (held.cause, held.said) != (known.cause, known.said):
        await journal.record(ev.LandingHeld(cause=held.cause, said=held.said))


async def settle_owed(journal: Journal, parts: Parts) -> None:
    """Commit the work of the iteration that ended last, as far as nobody else was in the tree since."""
    owed = journal.state.unsettled
    if owed is None or owed.fault is not None:
        return
    for record in await journal.records_since(owed.closed_after):
        if isinstance(record.event, ev.IterationCompleted):
            if owed.after_stop and (await parts.workspace.observe()).fingerprint != record.event.evidence.tree:
                break  # not only the agent's work is in the tree any more
            before = TreeState(fingerprint=owed.tree, head=owed.head, branch=owed.branch)
            await settle_done(journal, parts, before, record.event, again=True)
            break


async def snapshot_half_done(journal: Journal, parts: Parts, iteration_num: int, reason: str) -> str | None:
    """Save uncommitted work under a private ref; the tree is left as it is."""
    saved = await parts.workspace.snapshot(iteration_num=iteration_num, reason=reason)
    if saved is None:
        return None
    ref, commit, files = saved
    await journal.record(
        ev.LandingSnapshot(iteration_num=iteration_num, ref=ref, commit=commit, reason=reason, files=files)
    )
    return ref
