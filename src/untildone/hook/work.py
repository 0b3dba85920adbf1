"""Open work, wherever it is written down: files of checkboxes, task databases, lists of todos."""

import os

from untildone.core.todos import IN_PROGRESS, PENDING, Todo, is_understood, one_line, open_todos, read_todos
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
_BLOCKED = "blocked"
"""Such a task is not done, and waits for somebody else."""


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
            _add_todos(work, os.path.join(project, TODOS), TODOS)
        elif source == OWN_TODOS:
            _add_todos(work, _own_path(home, session), "the list of todos")
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

    Without `foreign` nothing that may have come from elsewhere: it could say anything, and would say it unasked.
    """
    names = [name for name in (TODOS, DEVTEAM, TASKS) if os.path.lexists(os.path.join(project, name))]
    if names and not foreign:
        names = _trusted(project, names)
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


def _trusted(project: str, names: "list[str]") -> "list[str]":
    """Those that did not come with the repository."""
    from untildone.hook.adopting import came_with_repository

    return [name for name in names if not came_with_repository(project, name)]


def _own(home: str, session: str) -> list[Todo]:
    if not _own_path(home, session):
        return []
    from untildone.hook.todo_capture import captured

    return captured(home, session)


def _own_path(home: str, session: str) -> str:
    if not home or not os.path.isdir(os.path.join(home, "todos")):
        return ""
    from untildone.hook.todo_capture import todo_path

    return todo_path(home, session)


def _add_todos(work: Work, path: str, name: str) -> None:
    if not path or not os.path.lexists(path):
        return
    try:
        value = plain_json.parse(read_text(path) or "")
    except ValueError:
        value = None
    left = open_todos(read_todos(value))
    work.add(len(left), (f"{todo.status or 'no status'}: {todo.content}" for todo in left))
    if not is_understood(value):
        work.add(1, [f"{name} cannot be read as a whole, so nothing shows that it is done"])


def _add_boxes(work: Work, project: str, source: str) -> None:
    path = os.path.join(project, source)
    text = None if _leads_out(path, project) else read_text(path)
    if text is None:
        work.add(1, [f"{one_line(source)} cannot be read, so nothing shows that it is done"])
        return
    if "[" not in text:
        return
    from untildone.core.tasks import read_tasks

    found = read_tasks(text)
    if found.open_blocking:
        more = f" and {found.open_blocking - 1} more" if found.open_blocking > 1 else ""
        work.add(found.open_blocking, [f"{one_line(source)}: {one_line(found.next_open)}{more}"])


def _leads_out(path: str, project: str) -> bool:
    """Whether a file is a link to somewhere outside of the project: nobody asked for what is written there."""
    if not os.path.islink(path):
        return False
    inside = os.path.join(os.path.realpath(project), "")
    return not os.path.realpath(path).startswith(inside)


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
    from untildone.hook.task_reading import Unreadable, open_tasks

    found: list[Todo] = []
    for name in names:
        try:
            tasks = [task for task in open_tasks(os.path.join(project, name)) if task.status != _BLOCKED]
        except Unreadable:
            continue
        for task in tasks:
            status = IN_PROGRESS if task.status == IN_PROGRESS else PENDING
            found.append(Todo(f"{task.key}: {task.title}", status, task.key))
    return found
