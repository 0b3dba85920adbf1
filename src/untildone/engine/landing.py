"""Bringing finished work to where the user wants it: merged here, or through a pull request."""

from collections.abc import Sequence

from untildone.core import events as ev
from untildone.core.decide import Land
from untildone.core.figures import IN_LINE
from untildone.core.printable import one_line
from untildone.engine.journal import Journal
from untildone.engine.mending import failures_on, landing_message, send_back
from untildone.engine.parts import Parts
from untildone.engine.pulls import land_by_pull
from untildone.engine.watch import unless
from untildone.errors import WorkspaceError
from untildone.ports.delivery import NotLanded


async def land(journal: Journal, parts: Parts, work: Land) -> None:
    """Go one step: the work arrives, the agent has something to mend, or a human is needed. Safe to repeat."""
    arrival = journal.state.arrival
    if (arrival.commit, arrival.because) != (work.commit, work.because):
        await journal.record(ev.LandingBegun(commit=work.commit, because=work.because))
    if journal.state.spec.landing.land == "pr":
        await land_by_pull(journal, parts, work)
    else:
        await _merge_here(journal, parts, work)


async def _merge_here(journal: Journal, parts: Parts, work: Land) -> None:
    """A stop asked for meanwhile calls it off, unless the base has just moved; the next driver tries again."""
    arriving = _merge_and_look(journal, parts, work)
    outcome: ev.Event | NotLanded | None
    try:
        outcome = await unless(journal, parts.clock, arriving, lambda: journal.state.stop is not None)
    except WorkspaceError as trouble:
        outcome = NotLanded(cause="base", detail=str(trouble))
    match outcome:
        case NotLanded(cause="base", detail=reason):
            await journal.record(ev.LandingGaveUp(reason=reason))
        case NotLanded(cause="conflict" | "checks" as cause, detail=detail):
            await send_back(journal, cause, detail)
        case ev.LandingMerged():
            await journal.record(outcome)
        case ev.LandingReverted():
            await journal.record(outcome)
            if journal.state.arrival.fixes > journal.state.spec.landing.fixes:
                await journal.record(ev.LandingGaveUp(reason=f"{outcome.base} was red with it, again and again"))


async def _merge_and_look(
    journal: Journal, parts: Parts, work: Land
) -> ev.LandingMerged | ev.LandingReverted | NotLanded:
    """Merge, and look afterwards at what nobody could look at before. What came of it is recorded when both are done.

    A driver that dies in between leaves a merge that the next one finds, and looks at.
    """

    async def verify(commit: str) -> str:
        return await _wrong_with(commit, journal, parts, work)

    async def in_line(ahead: Sequence[str]) -> None:
        told = ev.ContinuousWaiting(cause=IN_LINE, until=None, detail=_before_us(ahead))
        await journal.record(told if ahead else ev.LandingBegun(commit=work.commit, because=work.because))

    message = landing_message(journal.state)
    outcome = await parts.lander.merge(work.commit, message=message, verify=verify, in_line=in_line)
    if isinstance(outcome, NotLanded):
        return outcome
    base, strategy = journal.state.arrival.base or "", journal.state.spec.landing.strategy
    wrong = "" if outcome.verified else await verify(outcome.merged)
    if not wrong:
        return ev.LandingMerged(
            commit=work.commit, base=base, merged=outcome.merged, strategy=strategy, cleanup=outcome.cleanup
        )
    revert = await parts.lander.revert(outcome.merged, reason=f"{base} is red with it")
    return ev.LandingReverted(merged=outcome.merged, revert=revert, base=base, reason=wrong)


def _before_us(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} before us ({', '.join(one_line(name, 60) for name in names[:_NAMED])}{more})"


async def _wrong_with(merged: str, journal: Journal, parts: Parts, work: Land) -> str:
    """What to tell the agent about the merged tree: "" when it holds."""
    base = journal.state.arrival.base
    if journal.state.spec.contract.room == "tree":
        # Only what lies in the agent's tree can be checked there, so the merged tree must be that very tree.
        differing = await parts.workspace.changes(work.commit, merged, lambda _: True)
        return _MERGE_FIRST.format(base=base) if differing else ""
    wrong = await failures_on(merged, journal, parts)
    return _RED_TOGETHER.format(base=base) + wrong if wrong else ""


_NAMED = 3
_MERGE_FIRST = (
    "{base} has changed, and the checks run only in your own tree: merge {base} into your branch "
    "(`git merge {base}`), so that they see both together, and claim again.\n"
)
_RED_TOGETHER = (
    "Your work was merged with the newest {base} and whatever lands together with it, in a fresh checkout, and there "
    "the checks fail. Merge {base} into your branch (`git merge {base}`), mend what fails, and claim again.\n\n"
)
