"""What the agent did to its own record, folded: remembered for the human, and nothing else."""

from dataclasses import replace

from untildone.core import events as ev
from untildone.core.printable import one_line
from untildone.core.state import LoopState

_DETAIL = 200
TAMPERED_KEPT = 10
REFUSALS_RECORDED = 20
"""After so many an agent's refused commands are refused without a word in the log: it could be calling in a loop."""


def tampered(state: LoopState, event: ev.StoreTampered, _: float) -> LoopState:
    """Keep the last few."""
    return replace(state, tampered=(*state.tampered, event.detail)[-TAMPERED_KEPT:])


def refused(state: LoopState, _: ev.SteeringRefused, __: float) -> LoopState:
    """Count."""
    return replace(state, refusals=state.refusals + 1)


def told_of(state: LoopState) -> list[str]:
    """What a human should know of it: a safe sentence each, none when nothing happened."""
    told = []
    if state.tampered:
        times = "once" if len(state.tampered) == 1 else f"{_at_least(len(state.tampered), TAMPERED_KEPT)} times"
        last = one_line(state.tampered[-1], _DETAIL)
        told.append(f"the record was changed from outside {times} and put right: {last}")
    if state.refusals:
        times = "once" if state.refusals == 1 else f"{_at_least(state.refusals, REFUSALS_RECORDED)} times"
        told.append(f"the agent tried to steer the run {times} and was refused")
    if state.notes_foreign:
        were = "1 note was" if state.notes_foreign == 1 else f"{state.notes_foreign} notes were"
        told.append(f"{were} not written by the hook and not believed")
    if state.notes_gaps:
        told.append("notes of the hook were taken away or changed")
    return told


def _at_least(number: int, counted: int) -> str:
    return f"{number}" if number < counted else f"{number} or more"
