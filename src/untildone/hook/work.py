"""Open work, wherever it is written down: files of checkboxes, task databases, lists of todos."""

import os

from untildone.core.todos import Todo, one_line, open_todos, read_todos
from untildone.hook import plain_json
from untildone.hook.files import read_text
from untildone.hook.places import DEVTEAM, TASKS, TODOS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OWN_TODOS = "todos"
"""The source that is Claude's own list, as its tools wrote it."""
OUR_TASKS = "tasks.db"
KNOWN = (OUR_TASKS, DEVTEAM, TODOS, OWN_TODOS)
_SHOWN = 8
_TO_DO = {"in_progress": "in_progress", "pending": "pending", "failed": "pending"}
"""What can be worked on; a blocked task waits for somebody else."""


class Work:
    """What is open."""

    __slots__ = ("failed_point", "lines", "open")

    def __init__(self) -> None:
        self.open = 0
        self.lines: list[str] = []
        """The first few, safe to show."""
        self.failed_point = ""
        """The task that failed most often and is not done, if one did."""

    def add(self, count: int, lines: "Iterable[str]") -> None:
        """So many more, of which these can be shown."""
        self.open += count
        self.lines.extend(line for line in list(lines)[: max(0, _SHOWN - len(self.lines))])


def open_work(project: str, sources: "Sequence[str]", *, home: str = "", session: str = "") -> Work:
    """Everything open in these sources, or in all that are known.

    What cannot be read is open: nothing shows that it is done.
    """
    work = Work()
    for source in sources or KNOWN:
        if source in {OUR_TASKS, TASKS, DEVTEAM}:
            _add_tasks(work, os.path.join(project, DEVTEAM if source == DEVTEAM else TASKS))
        elif source == TODOS:
            _add_todos(work, todos_of_file(project))
        elif source == OWN_TODOS:
            _add_todos(work, _own(home, session))
        else:
            _add_boxes(work, project, source)
    return work


def todos_of_file(project: str) -> list[Todo]:
    """The list in `.claude/todo_state.json`; a file that is none of that holds nothing."""
    text = read_text(os.path.join(project, TODOS))
    try:
        return read_todos(plain_json.parse(text)) if text else []
    except ValueError:
        return []


def all_todos(project: str, *, home: str, session: str, foreign: bool = True) -> list[Todo]:
    """The lists, and the tasks of the databases; the same text is said once.

    Without `foreign` nothing that came with the repository: it could say anything, and would say it unasked.
    """
    names = [name for name in (TODOS, DEVTEAM, TASKS) if os.path.lexists(os.path.join(project, name))]
    if names and not foreign:
        from untildone.hook.adopting import came_with_repository

        names = [name for name in names if not came_with_repository(project, name)]
    listed = [*(todos_of_file(project) if TODOS in names else ()), *_own(home, session)]
    listed += _tasks_as_todos(project, [name for name in names if name != TODOS])
    return list({todo.content: todo for todo in reversed(listed)}.values())[::-1]


def goal_from_todos(home: str, project: str, session: str) -> str:
    """A goal made of everything that is pending; nothing where nothing is."""
    left = open_todos(all_todos(project, home=home, session=session))
    if not left:
        return ""
    return "\n".join(("Work through all of these, in this order, until every one is done:", "", *map(_box, left)))


def _box(todo: Todo) -> str:
    return f"- [ ] {todo.content}" + (" (in progress)" if todo.status == "in_progress" else "")


def _own(home: str, session: str) -> list[Todo]:
    if not home or not os.path.isdir(os.path.join(home, "todos")):
        return []
    from untildone.hook.todo_capture import captured

    return captured(home, session)


def _add_todos(work: Work, todos: list[Todo]) -> None:
    left = open_todos(todos)
    work.add(len(left), (f"{todo.status}: {todo.content}" for todo in left))


def _add_boxes(work: Work, project: str, source: str) -> None:
    text = read_text(os.path.join(project, source))
    if text is None:
        work.add(1, [f"{one_line(source)} cannot be read, so nothing shows that it is done"])
        return
    if "[ ]" not in text:
        return
    from untildone.core.tasks import read_tasks

    found = read_tasks(text)
    if found.open_blocking:
        more = f" and {found.open_blocking - 1} more" if found.open_blocking > 1 else ""
        work.add(found.open_blocking, [f"{one_line(source)}: {one_line(found.next_open)}{more}"])


def _add_tasks(work: Work, path: str) -> None:
    if not os.path.lexists(path):
        return
    from untildone.hook.task_reading import Unreadable, summary

    try:
        found = summary(path, shown=_SHOWN)
    except Unreadable as trouble:
        work.add(1, [f"{trouble}, so nothing shows that its tasks are done"])
        return
    work.add(found.open, found.lines)
    work.failed_point = work.failed_point or found.failed_point


def _tasks_as_todos(project: str, names: list[str]) -> list[Todo]:
    """The open tasks of these databases."""
    if not names:
        return []
    from untildone.hook.task_reading import Unreadable, read_tasks

    found: list[Todo] = []
    for name in names:
        try:
            tasks = read_tasks(os.path.join(project, name))
            found += [Todo(f"{task.key}: {task.title}", _TO_DO.get(task.status, ""), task.key) for task in tasks]
        except Unreadable:
            continue
    return found
