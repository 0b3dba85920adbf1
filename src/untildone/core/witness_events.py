"""What the loop saw with its own eyes: the baseline, every verdict, and what a human let pass."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

from untildone.core.contract import Room
from untildone.core.dataclass import dataclass
from untildone.core.event import Command, Event, Kind
from untildone.core.findings import Finding
from untildone.core.outcome import CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTaken(Event):
    """The checks before any work was done: what failed then is not the run's fault."""

    TYPE: ClassVar[str] = "continuous.baseline"
    commit: str | None
    room: Room
    checks: tuple[CheckResult, ...] = ()
    refused: str = ""
    """Why the run cannot go on like this: a check that cannot be run at all, or passes in a copy of the tree alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationValidation(Event):
    """The loop ran the checks itself: after a claim, or to see how far the work is."""

    TYPE: ClassVar[str] = "iteration.validation"
    iteration_num: int
    passed: bool
    feedback: str = ""
    checks: tuple[CheckResult, ...] = ()
    tree: str = ""
    commit: str | None = None
    git_status: Mapping[str, Any] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    room: Room = "tree"
    """Where the checks ran; `tree` is the weaker evidence."""
    findings: tuple[Finding, ...] = ()
    """What the guard saw in the changes of this run; the blocking ones were not waived."""
    judges: tuple[str, ...] = ()
    """Files that judge the work and are not as they were when the run began: the checks ran with those as well."""
    base_checks: tuple[CheckResult, ...] = ()
    """The checks on the same code with those files as they were."""
    disputed: tuple[str, ...] = ()
    """What does not hold there, or cannot be seen there, although the checks pass: one line each."""
    claimed: bool = True
    """False: the loop looked by itself, to see whether the work gets any further."""
    seconds: float | None = None
    """How long the look took, everything included; None: not measured."""
    weaker: str = ""
    """Why the checks prove less than they could; "" when only the commit could be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessAtWork(Event):
    """The loop is looking for itself, and a step of that takes longer than a moment."""

    TYPE: ClassVar[str] = "iteration.checking"
    KIND: ClassVar[Kind] = "trace"
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeAccepted(Command):
    """A human says that the changed tests are right, so that the work counts as done with them."""

    TYPE: ClassVar[str] = "continuous.accepted"
    disputed: tuple[str, ...] = ()
    """What was disputed at that moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverGiven(Command):
    """Guarded files may change from now on."""

    TYPE: ClassVar[str] = "continuous.waived"
    patterns: tuple[str, ...]
    """Globs of paths."""
    user: str = ""
    """The account that `untildone waive` ran under; empty for an order from elsewhere."""
