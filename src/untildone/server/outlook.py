"""What comes of an order, in words: before it is given, if a person should think twice, and after. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from untildone.core import events as ev
from untildone.core.figures import count
from untildone.core.findings import matches
from untildone.core.limits import LIMIT_NAMES, LIMITS, Limit, is_exhausted, is_reached
from untildone.core.obstacles import blocking
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.core.wire import OrderKind
from untildone.errors import UsageError

_SAID: Mapping[str, str] = {
    "message": "the agent reads it in its next prompt",
    "stop": "it stops now",
    "pause": "it pauses after the running iteration",
    "resume": "it goes on",
    "limits": "the new limits hold",
    "skip_wait": "it tries now; if the limit still holds, it waits again",
    "reset": "cleared",
}
_ANY_FILES = ("Zq.7", ".a/b/Zq.7")
"""Whatever means both of these means every file."""


def outlook(event: ev.Command, kind: OrderKind, state: LoopState, *, alive: bool, now: float) -> str:
    """What comes of it; `kind`: of the order, `alive`: somebody drives the run."""
    match event:
        case ev.LimitsChanged() if ending := _ending(event, state, alive=alive, now=now):
            return ending
        case ev.MessageReceived(urgent=True) if alive:
            return "the agent is told at once"
        case ev.StopRequested(after_iteration=True):
            return "it stops after its running iteration"
        case ev.WaiverGiven():
            said = _waived(event, state)
        case ev.StopRequested():
            said = _SAID["stop"]
        case _:
            said = _SAID[kind]
    return said if alive else f"{said}, once somebody goes on with it"


def warning(event: ev.Command, state: LoopState, *, alive: bool, now: float) -> str:
    """What a person should say yes to before the order is given; nothing for most."""
    if isinstance(event, ev.LimitsChanged):
        return _ending(event, state, alive=alive, now=now)
    if isinstance(event, ev.WaiverGiven):
        everything = next((one for one in event.patterns if all(matches(path, [one]) for path in _ANY_FILES)), "")
        return f"{one_line(everything, 60)} means every file: tests, CI and thresholds, too" if everything else ""
    return ""


def refuse_foreign(patterns: object) -> None:
    """UsageError for a pattern that means no file of the project."""
    written = [one for one in patterns if isinstance(one, str)] if isinstance(patterns, list) else []
    for pattern in written:
        if pattern.startswith("/") or ".." in pattern.split("/"):
            shown = one_line(pattern, 60)
            raise UsageError(f"{shown} means no file of the project: write it from its folder on, like tests/old/*")


def _waived(event: ev.WaiverGiven, state: LoopState) -> str:
    meant = [finding for finding in blocking(state) if matches(finding.path, event.patterns)]
    left = len(blocking(state)) - len(meant)
    rest = f", {count(left, 'other finding')} still in the way" if left else ""
    none = "" if meant or not left else "; nothing that was found last is meant by that"
    return f"these files may change{rest}{none}"


def _ending(event: ev.LimitsChanged, state: LoopState, *, alive: bool, now: float) -> str:
    """What limits do that are used up as soon as they hold; nothing for all others."""
    changed: dict[str, Any] = dict(event.changes)
    after = replace(state, policy=replace(state.policy, **changed))

    def moment(limit: Limit) -> float:
        # Nobody works on a run that stands still: only the clock on the wall goes on.
        return now if alive or limit.field == "deadline" else state.last_at

    full = [limit for limit in LIMITS if limit.field in changed and is_reached(limit, after, moment(limit))]
    if not full:
        return ""
    first = full[0]
    used = "less than what is used" if is_exhausted(first, after, moment(first)) else "as good as used up"
    what = "this deadline is past" if first.field == "deadline" else f"{LIMIT_NAMES[first.field]}: that is {used}"
    if not alive:
        return f"{what}: whoever goes on with it is stopped at once"
    is_cut = state.open is None or any(limit.cuts for limit in full)
    return f"{what}: it stops {'now' if is_cut else 'after its running iteration'}"
