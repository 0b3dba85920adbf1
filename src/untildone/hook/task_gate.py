"""Whether the tasks of a project are done: what a loop asks before it believes that its goal is reached."""

import os

from untildone.hook.task_command import project_above
from untildone.hook.task_reading import Unreadable, read_tasks, summary
from untildone.hook.task_store import task_file

_SHOWN = 10


def tasks_left(folder: str) -> str:
    """Why they are not all done, in words; "" when there are tasks and all of them are."""
    path = task_file(project_above(folder))
    if not os.path.lexists(path):
        return "there are no tasks: plan the work as tasks, and finish them"
    try:
        left = summary(path, shown=_SHOWN)
        if not left.open:
            return "" if read_tasks(path) else "there are no tasks: plan the work as tasks, and finish them"
    except Unreadable as trouble:
        return f"the tasks cannot be read: {trouble}"
    more = [f"and {left.open - _SHOWN} more"] if left.open > _SHOWN else []
    return "\n".join([f"{left.open} tasks are open:" if left.open > 1 else "a task is open:", *left.lines, *more])
