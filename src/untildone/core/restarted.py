"""A program that is started again with an environment: what humans ordered since holds, unless that says otherwise."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from untildone.core.changed import settings_changed
from untildone.core.dataclass import dataclass
from untildone.core.events import (
    ContinuousStarted,
    Event,
    LimitsChanged,
    PauseRequested,
    Record,
    SettingsChanged,
    StopRequested,
)
from untildone.core.figures import clock
from untildone.core.fold import apply
from untildone.core.limits import LIMIT_FIELDS
from untildone.core.policy import Policy, RunSpec
from untildone.core.printable import one_line
from untildone.core.state import LoopState

BY = "worker"
AGAIN = ", before this start"
"""Added to whoever asked for what is kept over a start."""

_SETTINGS = (ContinuousStarted, LimitsChanged, SettingsChanged)
_NAME = 60
_HOLDS = (PauseRequested, StopRequested)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the environment came to, and when."""

    spec: RunSpec
    policy: Policy
    at: float


def said_last(records: Iterable[Record]) -> Said | None:
    """What the environment of a run said when it was last started; None: its log does not tell."""
    said: Said | None = None
    state = LoopState()
    for record in records:
        event = record.event
        if not isinstance(event, _SETTINGS):
            continue
        before, state = state, apply(state, record)
        if isinstance(event, ContinuousStarted):
            said = Said(spec=event.spec, policy=event.policy, at=record.at)
        elif said is not None and isinstance(event, SettingsChanged) and event.by == BY:
            spec = _merged(before.spec, event.spec, said.spec)
            said = Said(spec=spec, policy=_merged(before.policy, event.policy, said.policy), at=record.at)
    return said


def asked_by_start(state: LoopState, said: Said | None, says: tuple[RunSpec, Policy]) -> list[Event]:
    """What a start asks of the run it takes up: what its environment says otherwise than at the last start."""
    if said is None:
        return []
    spec, policy = _merged(said.spec, says[0], state.spec), _merged(said.policy, says[1], state.policy)
    same = (spec, policy) == (state.spec, state.policy)
    return [] if same else [settings_changed(BY, (state.spec, state.policy), spec, policy)]


def kept_orders(state: LoopState, records: Sequence[Record]) -> list[Event]:
    """What humans asked for and a new driver would forget: a stop that nobody carried out, and a pause."""
    kept: list[Event] = []
    if state.paused:
        kept.append(PauseRequested(by=f"{paused_by(records)}{AGAIN}"))
    if state.phase == "running" and state.stop is not None and state.stop.signal is None:
        kept.append(StopRequested(by=f"{state.stop.by.removesuffix(AGAIN)}{AGAIN}"))
    return kept


def paused_by(records: Sequence[Record]) -> str:
    """Who asked for the pause that holds."""
    found = (record.event.by for record in reversed(records) if isinstance(record.event, PauseRequested))
    return next(found, "a person").removesuffix(AGAIN)


def undone_orders(state: LoopState, records: Sequence[Record], policy: Policy) -> list[str]:
    """What a human ordered since the start and these limits would undo, in a few words each."""
    undone = [f"the pause by {one_line(paused_by(records), _NAME)} ends"] if state.paused else []
    ordered = {name for record in records if isinstance(record.event, LimitsChanged) for name in record.event.changes}
    for name in sorted(ordered & set(LIMIT_FIELDS)):
        was, now = getattr(state.policy, name), getattr(policy, name)
        if was != now:
            undone.append(f"{name} was {_shown(name, was)} and is {_shown(name, now)}")
    return undone


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "none"
    return clock(value) if name == "deadline" else f"{value:.10g}"


def in_order(asked: Sequence[Event], driver: Event) -> list[Event]:
    """A new driver is free of what was asked of the one before: what is to hold it, it is asked for itself."""
    return [
        *(event for event in asked if not isinstance(event, _HOLDS)),
        driver,
        *(event for event in asked if isinstance(event, _HOLDS)),
    ]


def _merged(was: T, now: T, holds: T) -> T:
    """What holds, with all that differs between two others as the later one of these has it."""
    changes: dict[str, object] = {}
    for field in fields(was):  # type: ignore[arg-type]  # dataclasses of ours
        old, new, held = (getattr(one, field.name) for one in (was, now, holds))
        if old != new:
            alike = is_dataclass(new) and type(old) is type(new) is type(held)
            changes[field.name] = _merged(old, new, held) if alike else new
    return replace(holds, **changes)  # type: ignore[type-var]
