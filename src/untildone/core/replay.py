"""What another policy would have done with what really happened, and what it would have cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from untildone.core import events as ev
from untildone.core.dataclass import dataclass
from untildone.core.decide import Iterate, Stop, decide
from untildone.core.durations import format_duration
from untildone.core.figures import count, dollars
from untildone.core.fold import apply
from untildone.core.limits import cutting_limit
from untildone.core.policy import Policy
from untildone.core.settings import BY_NAME
from untildone.core.state import LoopState
from untildone.core.stopping import meaning
from untildone.core.trace import AgentReply
from untildone.errors import UsageError

_NOT_TRIED = frozenset({"deadline", "unbounded", "completion_match", "session", "hook_failure"})
_TRIABLE = tuple(field.name for field in fields(Policy) if field.name not in _NOT_TRIED)
# After these the loop asks what comes next.
_BETWEEN = (
    ev.IterationCompleted, ev.IterationFailed, ev.IterationValidation, ev.TasksRead, ev.StopRequested,
    ev.LandingCommitted, ev.LandingSnapshot,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Where the other policy would have stopped, beside where the run really stands."""

    changes: Mapping[str, Any]
    reason: str | None
    """None: it would have gone on beyond what was recorded."""
    then: LoopState
    really: LoopState

    @property
    def text(self) -> str:
        """The answer in a sentence or two."""
        tried = ", ".join(f"{name} = {value}" for name, value in self.changes.items())
        if self.reason is None:
            return f"With {tried} the run would have gone on beyond what is recorded ({_sums(self.really)})."
        return (
            f"With {tried} the run would have stopped in iteration {self.then.attempts}: {meaning(self.reason)} "
            f"({self.reason}).\nThat is {_sums(self.then)}, instead of {_sums(self.really)}."
        )


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
    """Fold a run's control records under a changed policy up to the first stop."""
    really = other = LoopState()
    stopped: tuple[str, LoopState] | None = None
    for record in records:
        really = apply(really, record)
        other = apply(other, record)
        other = replace(other, policy=replace(other.policy, **changes))
        if stopped is None and (reason := _stops(other, record)) is not None:
            stopped = (reason, other)
    reason, then = stopped or (None, other)
    return WhatIf(changes=dict(changes), reason=reason, then=then, really=really)


def _stops(state: LoopState, record: ev.Record) -> str | None:
    if isinstance(record.event, AgentReply):
        limit = cutting_limit(state, record.at)
        return limit.reason if limit else None
    if state.open is None and isinstance(record.event, _BETWEEN):
        due = decide(state, record.at)
        if isinstance(due, Iterate) and due.question:
            # What it would have answered is not recorded: taken as a yes, since its claim said so.
            due = decide(replace(state, answered=True), record.at)
        return due.reason if isinstance(due, Stop) else None
    return None


def _sums(state: LoopState) -> str:
    iterations = count(state.attempts, "iteration")
    return f"{iterations}, {dollars(state.spent_usd)}, {format_duration(state.active_seconds)}"
