"""What another policy would have done with what really happened, and what it would have cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from untildone.core import events as ev
from untildone.core.dataclass import dataclass
from untildone.core.decide import STOP_RULES, Iterate, Stop, decide
from untildone.core.durations import format_duration
from untildone.core.figures import count, dollars
from untildone.core.fold import apply
from untildone.core.limits import cutting_limit
from untildone.core.policy import Policy
from untildone.core.settings import BY_NAME, as_typed
from untildone.core.state import LoopState
from untildone.core.stopping import Reason, meaning
from untildone.core.trace import AgentReply
from untildone.errors import UsageError

_NOT_TRIED = frozenset({"deadline", "unbounded", "completion_match", "session", "hook_failure"})
_TRIABLE = tuple(field.name for field in fields(Policy) if field.name not in _NOT_TRIED)
# After these the loop asks what comes next.
_BETWEEN = (
    ev.IterationCompleted, ev.IterationFailed, ev.IterationValidation, ev.TasksRead, ev.StopRequested,
    ev.LandingCommitted, ev.LandingSnapshot,
)  # fmt: skip
_BY_HUMAN = frozenset({Reason.SHUTDOWN_SIGNAL, Reason.STOP_REQUESTED, Reason.TAKEN_OVER})
_BY_POLICY = frozenset(rule.reason for rule in STOP_RULES)
"""All other stops come from outside, such as a folder that is gone: they happen under any policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Where the other policy would have stopped, beside where the run really stopped."""

    changes: Mapping[str, Any]
    reason: str | None
    """None: it would have gone on beyond what was recorded."""
    then: LoopState
    really: LoopState
    same: bool = False
    """It stops where the run stopped, and for the same reason."""

    @property
    def text(self) -> str:
        """The answer in a sentence or two."""
        tried = ", ".join(
            f"{name} = {as_typed(BY_NAME[name], value) or 'none'}" for name, value in self.changes.items()
        )
        if self.reason is None:
            return f"With {tried} the run would have gone on beyond what is recorded ({_sums(self.really)})."
        why = f"in iteration {self.then.attempts}: {meaning(self.reason)} ({self.reason})"
        if self.same:
            return f"With {tried} the run would have been the same: it stops {why}.\nThat is {_sums(self.really)}."
        return (
            f"With {tried} the run would have stopped {why}.\n"
            f"That is {_sums(self.then)}, instead of {_sums(self.really)}."
        )


@dataclass(frozen=True, slots=True)
class _StopFound:
    """Where the other policy stops, as far as the log was read."""

    reason: str
    then: LoopState
    answer_assumed: bool = False
    """The agent was to be asked what is left, and its answer was taken as a yes."""
    reached: bool = False
    """The run itself stopped there as well."""


def parse_changes(written: Sequence[str]) -> dict[str, Any]:
    """Policy fields and values from `name=value` texts."""
    changes = {}
    for text in written:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in _TRIABLE:
            raise UsageError(f"--set {text}: give NAME=VALUE with one of {', '.join(_TRIABLE)}")
        try:
            changes[name] = BY_NAME[name].parse(value)
        except ValueError as wrong:
            raise UsageError(f"--set {name} {wrong}") from wrong
    return changes


def what_if(records: Iterable[ev.Record], changes: Mapping[str, Any]) -> WhatIf:
    """Fold a run's control records under a changed policy up to the first stop that no resume followed.

    What a human did is a fact under any policy: a run that was stopped and resumed goes on after that.
    """
    really = other = LoopState()
    found: _StopFound | None = None
    is_over = False
    for record in records:
        if not is_over:
            found = _still_stops(found, record) or _stop_before(other, record)
            is_over = found is not None and _starts_work(record.event)
        really = apply(really, record)
        other = apply(other, record)
        other = replace(other, policy=replace(other.policy, **changes))
        if not is_over and found is None:
            found = _stop_after(other, record)
    if found is None:
        return WhatIf(changes=dict(changes), reason=None, then=other, really=really)
    same = found.reached and not is_over and found.reason == really.stop_reason
    return WhatIf(changes=dict(changes), reason=found.reason, then=found.then, really=really, same=same)


def _starts_work(event: ev.Event) -> bool:
    """Whether the run goes on to new work; a last word after a limit belongs to the stop."""
    return isinstance(event, ev.IterationStarted) and not event.handoff


def _still_stops(found: _StopFound | None, record: ev.Record) -> _StopFound | None:
    """What is left of a stop at this record: a resume takes it back, and so does an answer that is recorded."""
    if found is None:
        return None
    match record.event:
        case ev.ContinuousSuspended() | ev.ContinuousCompleted():
            return replace(found, reached=True)
        case ev.ContinuousResumed() if found.reached or found.reason in _BY_HUMAN:
            return None
        case ev.IterationStarted(question=True) if found.answer_assumed:
            return None
        case _:
            return found


def _stop_before(state: LoopState, record: ev.Record) -> _StopFound | None:
    """The stop that was due when the run went on to this record, or the recorded one if it came from outside."""
    event = record.event
    if isinstance(event, ev.IterationStarted):
        found = None if event.handoff else _due(state, record.at)
        return None if found and found.answer_assumed and event.question else found
    if not isinstance(event, ev.ContinuousSuspended | ev.ContinuousCompleted):
        return None
    found = _due(state, record.at)
    if found is None and event.stop_reason not in _BY_POLICY:
        found = _StopFound(event.stop_reason, state)
    return replace(found, reached=True) if found else None


def _stop_after(state: LoopState, record: ev.Record) -> _StopFound | None:
    if isinstance(record.event, AgentReply):
        limit = cutting_limit(state, record.at)
        return _StopFound(limit.reason, state) if limit else None
    return _due(state, record.at) if isinstance(record.event, _BETWEEN) else None


def _due(state: LoopState, at: float) -> _StopFound | None:
    """The stop that is due between two iterations."""
    if state.open is not None:
        return None
    due, assumed = decide(state, at), False
    if isinstance(due, Iterate) and due.question:
        due, assumed = decide(replace(state, answered=True), at), True
    return _StopFound(due.reason, state, assumed) if isinstance(due, Stop) else None


def _sums(state: LoopState) -> str:
    iterations = count(state.attempts, "iteration")
    return f"{iterations}, {dollars(state.spent_usd)}, {format_duration(state.active_seconds)}"
