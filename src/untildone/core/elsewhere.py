"""A run that another machine has taken over: the one it came from keeps its log, and must not go on with it."""

from untildone.core.advice import handle
from untildone.core.state import LoopState
from untildone.core.stopping import TAKEN_BY, Reason
from untildone.errors import RunElsewhere


def is_elsewhere(state: LoopState) -> bool:
    """Whether this log knows that another machine has the run."""
    return state.stop_reason == Reason.TAKEN_OVER or (state.stop is not None and state.stop.by == TAKEN_BY)


def refuse_elsewhere(state: LoopState) -> None:
    """RunElsewhere for such a run: two machines at work on one would spend twice, and know nothing of each other."""
    if is_elsewhere(state):
        raise RunElsewhere(
            f"another machine took {handle(state)} over and goes on with it there: take it back with "
            f"`untildone resume --from-server {state.run_id} --take`, or start a new run with `untildone run --new`"
        )
