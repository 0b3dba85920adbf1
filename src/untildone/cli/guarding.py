"""Who may give a command: an agent steers no run, not its own either, and starts none."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

from untildone.config import OPERATOR_MARK
from untildone.errors import NotTheOperator
from untildone.sandbox.guard import parent_of

_GENERATIONS = 1000
"""Far more ancestors than any process has: a bound for a table of processes that changes while it is read."""


def operator_only(command: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse inside an agent's process tree."""

    @wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if is_inside_agent():
            raise NotTheOperator("an agent may not start or steer a run: ask the human, or report that you are blocked")
        return command(*args, **kwargs)

    return guarded


def is_inside_agent() -> bool:
    """Whether an agent started this process, or one above it: taking the mark out on the way hides nothing."""
    if os.environ.get(OPERATOR_MARK):
        return True
    pid: int | None = os.getppid()
    for _ in range(_GENERATIONS):
        if not pid:
            break
        if _is_marked(pid):
            return True
        pid = parent_of(pid)
    return False


def _is_marked(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 -- not a file of anybody's, and asked often
            variables = file.read().split(b"\0")
    except OSError:
        # Of another user, gone already, or a system without /proc.
        return False
    mark = f"{OPERATOR_MARK}=".encode()
    return any(variable.startswith(mark) and variable != mark for variable in variables)
