"""`untildone task …`, for people and agents alike: stdlib only, so that it also works where only the plugin is."""

import os

from untildone.core.repeats import MOST_FAILURES, failures_in_a_row
from untildone.core.todos import one_line
from untildone.errors import UsageError
from untildone.hook import plain_json, register, spool
from untildone.hook.places import AUTONOMOUS, CONTINUATION, DEVTEAM, LOOP, TASKS, state_home
from untildone.hook.task_reading import Unreadable, read_tasks
from untildone.hook.task_store import DONE, Tasks, task_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

    from untildone.hook.task_reading import Task

_ROOTS = (TASKS, DEVTEAM, LOOP, CONTINUATION, AUTONOMOUS, ".git")
_STATUSES = ("pending", "in_progress", DONE, "failed", "blocked")
_ABOUT = """\
The tasks of a project, in .untildone/tasks.db (or in .devteam/devteam.db where
that is there). This is the one way they change, for people and for agents.
Open are all that are not completed; while there is one, a loop is not done.
"""


def run_task(argv: "Sequence[str]", env: "Mapping[str, str]", now: float, *, cwd: str = "") -> str:
    """Do what was typed; what there is to say about it. UsageError where it cannot be."""
    given = _parser().parse_args(list(argv))
    project = project_above(env.get("CLAUDE_PROJECT_DIR") or cwd or os.getcwd())
    command: Callable[[Namespace, _Place], str] = given.act
    return command(given, _Place(project, state_home(env), now))


class _Place:
    __slots__ = ("home", "now", "project")

    def __init__(self, project: str, home: str, now: float) -> None:
        self.project = project
        self.home = home
        self.now = now


def project_above(folder: str) -> str:
    """The project a folder belongs to: the nearest above it that has tasks, a loop or a repository; else itself."""
    here = place = os.path.realpath(folder)
    while place != os.path.dirname(place):
        if any(os.path.lexists(os.path.join(place, name)) for name in _ROOTS):
            return place
        place = os.path.dirname(place)
    return here


# --- what can be typed -----------------------------------------------------------------------------------------


def _parser() -> "ArgumentParser":
    from argparse import ArgumentParser, RawDescriptionHelpFormatter

    class Parser(ArgumentParser):
        def error(self, message: str) -> "NoReturn":
            raise UsageError(f"{message}: `{self.prog} --help` shows how")

        def format_help(self) -> str:
            shown = super().format_help()
            for small in ("usage:", "options:", "positional arguments:"):  # as the other commands write them
                shown = shown.replace(small, small.capitalize(), 1)
            return shown

    top = Parser(prog="untildone task", description=_ABOUT, formatter_class=RawDescriptionHelpFormatter)
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)

    def command(name: str, act: "Callable[[Namespace, _Place], str]", about: str) -> "ArgumentParser":
        made = commands.add_parser(name, help=about, description=about)
        made.add_argument("--json", action="store_true", help="print JSON")
        made.set_defaults(act=act)
        return made

    add = command("add", _add, "Add a task; prints its id.")
    add.add_argument("title", metavar="TITLE")
    add.add_argument("--description", default="", metavar="TEXT", help="what is to be done, and how it is verified")
    _plan_options(add)
    plan = command("plan", _plan, "Put tasks into a sprint, or say what they depend on.")
    plan.add_argument("ids", metavar="ID", nargs="+")
    _plan_options(plan)
    start = command("start", _start, "Begin with a task.")
    done = command("done", _done, "A task is done, and verified.")
    fail = command("fail", _fail, "A task failed: counted, and tried again later.")
    fail.add_argument("--blocked", action="store_true", help="it waits for something outside: not a failure")
    for made in (start, done, fail):
        made.add_argument("id", metavar="ID")
        made.add_argument("--note", default="", metavar="TEXT", help="what was found out")
    listed = command("ls", _ls, "All tasks.")
    listed.add_argument("--sprint", metavar="N", help="only those of a sprint")
    listed.add_argument("--status", choices=_STATUSES, help="only those with this status")
    listed.add_argument("--open", action="store_true", help="only those that are not completed")
    return top


def _plan_options(parser: "ArgumentParser") -> None:
    parser.add_argument("--sprint", default="", metavar="N", help="the sprint it belongs to")
    parser.add_argument("--depends", action="append", default=[], metavar="ID", help="what has to be done first")


# --- what it does ----------------------------------------------------------------------------------------------


def _add(given: "Namespace", place: _Place) -> str:
    with Tasks(place.project) as tasks:
        task = tasks.add(given.title, description=given.description, sprint=given.sprint, depends=given.depends)
    return _said(given, task, f"{task.key} added: {task.title}")


def _plan(given: "Namespace", place: _Place) -> str:
    with Tasks(place.project) as tasks:
        planned = [_planned(tasks, key, given) for key in given.ids]
    if given.json:
        return plain_json.render({"tasks": [_as_json(task) for task in planned]})
    return "\n".join(_line(task) for task in planned)


def _planned(tasks: Tasks, key: str, given: "Namespace") -> "Task":
    fields: dict[str, str] = {"sprint": given.sprint} if given.sprint else {}
    if given.depends:
        before = tasks.find(key)
        needed = [tasks.find(other).key for other in given.depends]
        if any(_needs(tasks, other, before.key) for other in needed):
            raise UsageError(f"{before.key} would have to wait for itself: those tasks depend on it")
        fields["depends"] = ",".join(dict.fromkeys((*before.depends, *needed)))
    return tasks.change(key, **fields)


def _needs(tasks: Tasks, key: str, wanted: str) -> bool:
    """Whether a task is that one, or waits for it, however far away."""
    depends = {task.key: task.depends for task in tasks.all()}
    seen, left = set(), [key]
    while left:
        at = left.pop()
        if at == wanted:
            return True
        if at not in seen:
            seen.add(at)
            left.extend(depends.get(at, ()))
    return False


def _start(given: "Namespace", place: _Place) -> str:
    with Tasks(place.project) as tasks:
        waits = tasks.waits_for(tasks.find(given.id))
        if waits:
            raise UsageError(f"{given.id} waits for {', '.join(waits)}: do that first")
        task = tasks.change(given.id, note=given.note, status="in_progress")
    return _said(given, task, f"{task.key} started: {task.title}")


def _done(given: "Namespace", place: _Place) -> str:
    with Tasks(place.project) as tasks:
        task = tasks.change(given.id, note=given.note, status=DONE)
        left = sum(other.status != DONE for other in tasks.all())
    _count(place, point="")
    return _said(given, task, f"{task.key} is done; " + (f"{left} more open" if left else "nothing is open any more"))


def _fail(given: "Namespace", place: _Place) -> str:
    status = "blocked" if given.blocked else "failed"
    with Tasks(place.project) as tasks:
        attempts = tasks.find(given.id).attempts + (0 if given.blocked else 1)
        task = tasks.change(given.id, note=given.note, status=status, attempts=attempts)
    if given.blocked:
        return _said(given, task, f"{task.key} is blocked: `untildone task start {task.key}` takes it up again")
    in_a_row = _count(place, point=f"task: {task.key}")
    row = f"; {in_a_row} of {MOST_FAILURES} failures in a row at this point" if in_a_row else ""
    return _said(given, task, f"{task.key} failed (attempt {attempts}){row}; it stays open")


def _count(place: _Place, *, point: str) -> int:
    """Count a failure of the loop at this point, or none any more; how many in a row, 0 where no loop counts.

    Never while the database is held: a hook holds the register first and then looks at the tasks.
    """
    with register.lock(place.home, place.project):
        entry = register.find(place.home, place.project)
        if entry is None:
            return 0
        before = entry.get("failures", 0), entry.get("failure_point", "")
        in_a_row = failures_in_a_row(*before, point)
        if (in_a_row, point) == before:
            return in_a_row
        entry |= {"failures": in_a_row, "failure_point": point}
        register.write(place.home, entry)
        if point:
            spool.tell(place.home, entry["loop"], "failed", place.now, point=point, failures=in_a_row)
    if os.path.lexists(os.path.join(place.project, DEVTEAM)):
        from untildone.hook.older_state import breaker_text

        with Tasks(place.project) as tasks:
            tasks.remember(circuit_breaker=breaker_text(in_a_row, point))
    return in_a_row


def _ls(given: "Namespace", place: _Place) -> str:
    path = task_file(place.project)
    try:
        found = read_tasks(path) if os.path.lexists(path) else []
    except Unreadable as trouble:
        raise UsageError(f"{trouble}: mend or remove it") from trouble
    chosen = [task for task in found if _chosen(task, given)]
    if given.json:
        return plain_json.render(
            {"tasks": [_as_json(task) for task in chosen], "open": sum(task.status != DONE for task in found)}
        )
    if not found:
        return 'no tasks yet: `untildone task add "TITLE"` adds one'
    sprints = sorted({task.sprint for task in found if task.sprint})
    return "\n".join([*(map(_line, chosen)), *(_standing(sprint, found) for sprint in sprints), _standing("", found)])


def _chosen(task: "Task", given: "Namespace") -> bool:
    return (
        (given.sprint is None or task.sprint == given.sprint)
        and (given.status is None or task.status == given.status)
        and not (given.open and task.status == DONE)
    )


# --- what it says ----------------------------------------------------------------------------------------------


def _said(given: "Namespace", task: "Task", line: str) -> str:
    return plain_json.render(_as_json(task)) if given.json else line


def _as_json(task: "Task") -> "dict[str, Any]":
    return {
        "id": task.key,
        "title": task.title,
        "status": task.status,
        "sprint": task.sprint,
        "depends": list(task.depends),
        "attempts": task.attempts,
        "description": task.description,
        "notes": task.notes,
    }


def _line(task: "Task") -> str:
    facts = [f"sprint {task.sprint}"] if task.sprint else []
    facts += [f"after {' '.join(map(one_line, task.depends))}"] if task.depends else []
    facts += [f"failed {task.attempts} times" if task.attempts > 1 else "failed once"] if task.attempts else []
    return f"{one_line(task.key):9} {task.status:11} {task.title}" + (f"  ({', '.join(facts)})" if facts else "")


def _standing(sprint: str, tasks: "list[Task]") -> str:
    mine = [task for task in tasks if not sprint or task.sprint == sprint]
    done = sum(task.status == DONE for task in mine)
    return f"{f'sprint {sprint}' if sprint else 'all'}: {done}/{len(mine)} completed"
