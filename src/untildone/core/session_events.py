"""What is told of loops that live inside an interactive Claude Code, where hooks drive them and others look later."""

from typing import ClassVar

from untildone.core.dataclass import dataclass
from untildone.core.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesFolded(Event):
    """How much of what a loop's hooks wrote down is in the log: it stands in the same commit as the events of it."""

    TYPE: ClassVar[str] = "continuous.notes_folded"
    until: int
    """Bytes, from the beginning of the notes."""
    skipped: int = 0
    """Lines among the new ones that made no sense."""
    last: int = 0
    """The number of the last line that a hook wrote."""
    foreign: int = 0
    """Lines among the new ones that no hook wrote."""
    gaps: int = 0
    """Places among the new ones where lines of the hooks are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalChanged(Event):
    """The user changed what such a loop works for, or what judges it, while it was at work."""

    TYPE: ClassVar[str] = "continuous.goal_changed"
    goal: str
    completion_signal: str
    checks: tuple[str, ...] = ()
    max_iterations: int | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked(Event):
    """Such a loop has a question for the human, and goes on without an answer."""

    TYPE: ClassVar[str] = "continuous.question_asked"
    iteration_num: int
    question: str
    by: str = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCounted(Event):
    """The breaker of such a loop counted one more failure at the same point, or none is left."""

    TYPE: ClassVar[str] = "continuous.failure_counted"
    point: str
    failures: int
    """In a row; 0: it was reset."""
    limit: int
    """So many open the breaker."""
