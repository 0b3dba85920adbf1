"""When a driver takes the folder: at once, or only if a landing needs the agent again."""

from collections.abc import Sequence

from untildone.core import events as ev
from untildone.core.decide import Decision, Land, Stop, Wait, decide
from untildone.core.delivery import has_arrived
from untildone.core.fold import fold
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.errors import WorkspaceError
from untildone.ports import Prepared, Resumption


def resumption(state: LoopState, opening: Sequence[ev.Event], now: float) -> Resumption:
    """What the workspace is to know about a run before a new driver's first word is recorded."""
    arrival = state.arrival
    return Resumption(
        branch=arrival.branch,
        base=arrival.base,
        broken_off=state.phase == "running",
        left=arrival.left,
        judged_from=arrival.base_of_judges,
        visits=_only_lands(state, opening, now),
    )


def _only_lands(state: LoopState, opening: Sequence[ev.Event], now: float) -> bool:
    """Whether all that is left to do with finished work is to bring it to its base: no folder is needed for that."""
    if not state.run_id or state.open is not None or state.unsettled is not None:
        return False
    records = (ev.Record(seq=state.last_seq + n, at=now, event=event) for n, event in enumerate(opening, 1))
    taken_up = fold(records, state)
    due = decide(taken_up, now)
    # Work of a run that goes on is joined with the base in the tree; checks in the tree need it too.
    return isinstance(due, Land) and bool(due.because) and taken_up.spec.contract.room == "clean"


async def still_visits(journal: Journal, parts: Parts, due: Decision) -> bool:
    """Take the folder when the agent has something to mend; until then it is left alone.

    DirtyWorkspace when it is not free.
    """
    if isinstance(due, Land | Wait | Stop):
        return True
    arrival = journal.state.arrival
    place = await parts.workspace.prepare(Resumption(branch=arrival.branch, base=arrival.base))
    await journal.record(prepared_event(place))
    for line in place.lines:
        await journal.tell(ev.ContinuousWarning(message=line))
    return False


async def what_is_left(parts: Parts) -> list[ev.Event]:
    """The tree as this driver leaves it, for the next one to tell what people changed meanwhile."""
    try:
        commit = await parts.workspace.left()
    except WorkspaceError:
        return []  # then nothing counts as theirs
    return [ev.LandingLeft(commit=commit)] if commit is not None else []


async def leave_folder(journal: Journal, parts: Parts) -> None:
    """Remember what lies there as the run's. Trouble with that is no reason to spoil a stop."""
    state = journal.state
    landed = state.phase == "completed" and state.arrival.landed is not None and has_arrived(state)
    try:
        line = await parts.workspace.leave(landed=landed)
    except WorkspaceError as trouble:
        line = f"what is uncommitted could not be remembered as this run's: {trouble}"
    if line:
        await journal.tell(ev.ContinuousWarning(message=line))
        await journal.flush()


def prepared_event(place: Prepared, remote: str | None = None) -> ev.LandingPrepared:
    """Where a driver works, for the log."""
    return ev.LandingPrepared(
        branch=place.branch, base=place.base, start=place.start, history=place.history, remote=remote,
        judged_from=place.judged_from,
    )  # fmt: skip


def doubts(state: LoopState, place: Prepared) -> list[str]:
    """Lines about what git remembers of a run otherwise than the log, which holds: an agent can write in git."""
    arrival, said = state.arrival, []
    if place.newest > state.attempts:
        lost = f"the record of this run ends with iteration {state.attempts}, git has work of iteration {place.newest}"
        said.append(f"{lost}: the end of the record is lost, and what it cost is not counted; the work itself is kept")
    if place.start and arrival.start and place.start != arrival.start:
        said.append(f"git says that the run began with {place.start[:10]}, the log {arrival.start[:10]}: that holds")
    if place.base and arrival.base and place.base != arrival.base:
        told = f"git says that the work is meant for {one_line(place.base, 60)}, the run {one_line(arrival.base, 60)}"
        said.append(f"{told}: that holds; `--base` names another")
    return said
