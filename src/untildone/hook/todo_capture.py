"""Claude's own list of tasks, as its tools change it: written down for the gate and the reminder."""

import os

from untildone.core.todos import Todo, as_json, one_line, read_todos
from untildone.hook import plain_json
from untildone.hook.files import Lock, read_text, write_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.hook.answering import Call

TOOLS = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate"})
_DROPPED = "deleted"
_LONGEST_NAME = 128


def todo_path(home: str, session: str) -> str:
    """Where the list of a session lies; nowhere for a session whose name could lead elsewhere."""
    is_plain = session.replace("-", "").replace("_", "").isalnum() and session.isascii()
    return os.path.join(home, "todos", f"{session}.json") if is_plain and len(session) <= _LONGEST_NAME else ""


def captured(home: str, session: str) -> list[Todo]:
    """What Claude has on its own list."""
    path = todo_path(home, session)
    text = read_text(path) if path else None
    try:
        return read_todos(plain_json.parse(text)) if text else []
    except ValueError:
        return []


def capture(call: "Call") -> None:
    """Take over what one call of its tools changed."""
    path = todo_path(call.home, call.session)
    given, answered = call.event.get("tool_input"), call.event.get("tool_response")
    if not path or not isinstance(given, dict) or call.event.get("agent_id"):
        return  # a subagent keeps a list of its own
    with Lock(os.path.join(call.home, "todos", ".lock")):
        before = captured(call.home, call.session)
        after = _changed(call.text("tool_name"), given, answered, before)
        if after is not None:
            write_text(path, plain_json.render(as_json(after)), private=True)


def _changed(tool: str, given: dict[str, object], answered: object, before: list[Todo]) -> list[Todo] | None:
    if tool == "TodoWrite":
        return read_todos(given)
    if tool == "TaskCreate":
        subject, key = given.get("subject"), _created(answered)
        if not isinstance(subject, str) or not key:
            return None
        return [*(todo for todo in before if todo.key != key), Todo(one_line(subject), "pending", key)]
    return _updated(given, answered, before)


def _created(answered: object) -> str:
    """The id a new task was given."""
    task = answered.get("task") if isinstance(answered, dict) else None
    key = task.get("id") if isinstance(task, dict) else None
    return str(key)[:_LONGEST_NAME] if isinstance(key, str | int) else ""


def _updated(given: dict[str, object], answered: object, before: list[Todo]) -> list[Todo] | None:
    if isinstance(answered, dict) and answered.get("success") is False:
        return None
    key, status, subject = str(given.get("taskId")), given.get("status"), given.get("subject")
    if status == _DROPPED:
        return [todo for todo in before if todo.key != key]
    found = next((todo for todo in before if todo.key == key), None)
    if found is None:
        return None
    if isinstance(status, str):
        found.status = one_line(status)
    if isinstance(subject, str):
        found.content = one_line(subject)
    return before
