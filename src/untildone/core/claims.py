"""What the agent says about being done. A claim is a reason to look, never proof.

Stdlib only: the Stop hook runs this file under `python3 -I -S`.
"""

from dataclasses import dataclass
from typing import Literal

Form = Literal["report", "block", "signal", "tasks", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A status the agent gave, through the report tool, structured output or a LOOP_STATUS block."""

    status: str = "IN_PROGRESS"
    """IN_PROGRESS, COMPLETE or BLOCKED."""
    exit_signal: bool | None = None
    """The explicit word on whether everything is done; None when it was not given."""
    tasks_completed: int = 0
    files_modified: int = 0
    tests_status: str = "NOT_RUN"
    """PASSING, FAILING or NOT_RUN."""
    work_type: str = "IMPLEMENTATION"
    """IMPLEMENTATION, TESTING, DOCUMENTATION or REFACTORING."""
    recommendation: str = ""
    summary: str = ""
    """One line on what was done, fit for a commit message."""
    assumptions: tuple[str, ...] = ()
    """Decisions taken because nobody was there to ask."""
    questions: tuple[str, ...] = ()
    """What a human should answer in the morning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Everything the final message says about being done, before any policy is applied to it."""

    form: Form = "none"
    """The strongest form found; it alone decides."""
    report: Report | None = None
    signal: bool = False
    indicators: int = 0
    """Advisory phrases such as "all tasks complete": never a reason to stop by themselves."""
    question: bool = False
    """The message ends by asking the human something instead of going on."""
