"""A review: another agent looks at the work, says what it found, and touches nothing."""

from dataclasses import replace

from untildone.core import events as ev
from untildone.core.closing import Change
from untildone.core.decide import Iterate
from untildone.core.diffs import Difference
from untildone.core.review_prompt import Work, build_review, review_rules
from untildone.core.reviewing import REVIEWER_WROTE, ReviewVerdict
from untildone.core.state import LoopState
from untildone.engine.iteration import Closed, agent_order, closing, intent, look_around, may_begin, run_agent
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.engine.settle import snapshot_half_done
from untildone.errors import AgentError, WorkspaceError
from untildone.ports import TreeState

_NAMED = 5


async def review(journal: Journal, parts: Parts, order: Iterate) -> None:
    """Have the work reviewed and write down the verdict. The user's own commands are not run around it."""
    if parts.reviewer is None:
        raise AgentError("the work is to be reviewed and there is no reviewer: give one, or turn --review off")
    sight = await parts.workspace.look()
    before = sight.tree
    prompt = build_review(journal.state, order, await _work(journal.state, parts, sight.commit))
    if not await may_begin(journal):
        return
    await journal.record(intent(journal.state, order, prompt, before, parts.clock.now()))
    told = agent_order(journal.state, order, prompt, review_rules())
    ended, after = await look_around(journal, parts, await run_agent(journal, parts, parts.reviewer, told))
    closed = closing(journal, parts, ended, Change(tree=after.fingerprint))
    await journal.record(_of_what_is_there(closed, before, after, committed=journal.state.spec.commit))
    if after.fingerprint != before.fingerprint:
        changed = sorted(set(after.dirty) - set(before.dirty)) or list(after.dirty)
        named = ", ".join(changed[:_NAMED]) + (" and more" if len(changed) > _NAMED else "")
        said = f"{REVIEWER_WROTE}, and are left as they are: {named or 'HEAD was moved'}"
        await journal.tell(ev.ContinuousWarning(message=said))
        # Whoever works next is told, so that nothing gets into a commit unseen.
        await snapshot_half_done(journal, parts, order.number, REVIEWER_WROTE)


def _of_what_is_there(closed: Closed, before: TreeState, after: TreeState, *, committed: bool) -> Closed:
    """An approval is of the work as it was: if the reviewer changed that very work, it approves nothing.

    A stray file beside the commits is another matter: it is told, and lands nowhere.
    """
    is_the_same = after.head == before.head if committed else after.fingerprint == before.fingerprint
    if isinstance(closed, ev.IterationFailed) or closed.verdict is None or is_the_same:
        return closed
    said = f"The approval does not count: {REVIEWER_WROTE}.\n\n" if closed.verdict.approved else ""
    return replace(closed, verdict=ReviewVerdict(approved=False, findings=said + closed.verdict.findings))


async def _work(state: LoopState, parts: Parts, commit: str | None) -> Work:
    start = state.arrival.start
    return Work(start=start, commit=commit, difference=await _difference(parts, start, commit))


async def _difference(parts: Parts, start: str | None, commit: str | None) -> Difference | None:
    """A list for the prompt: without it the reviewer has to look for itself."""
    if start is None or commit is None:
        return None
    try:
        return await parts.workspace.difference(start, commit)
    except WorkspaceError:
        return None
