"""Open work as a reminder: what is in progress, the next few that wait, and the rules for both.

Stdlib only, and next to nothing of it: the hooks run this file under `python3 -I -S`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN_PENDING = 5
IN_PROGRESS, PENDING = "in_progress", "pending"
CLOSED = (
    "completed",
    "complete",
    "done",
    "closed",
    "finished",
    "cancelled",
    "canceled",
    "skipped",
    "abandoned",
    "deleted",
)
"""Only these words say that something is over; every other one, known or not, leaves it open."""
_MOST = 500
"""No reminder is longer: nobody works through it, and it would fill the context."""
_LONGEST = 300

_RULES = """\
IMPORTANT: You have incomplete work. Before starting anything new:
1. Continue working on IN PROGRESS todos first
2. If blocked, explain why and move on to the next PENDING item
3. Only start new work if all todos are complete or explicitly abandoned"""


class Todo:
    """One item of work."""

    __slots__ = ("content", "key", "status")

    def __init__(self, content: str, status: str, key: str = "") -> None:
        self.content = content
        self.status = status
        self.key = key
        """What whoever wrote it calls it; empty where it has no name."""


def read_todos(value: object) -> list[Todo]:
    """The items of a parsed `{"todos": [{"content", "status"}]}`, or of that list alone; what is none is left out."""
    found = (_todo(item) for item in _listed(value) or ())
    return [todo for todo in found if todo is not None]


def is_understood(value: object) -> bool:
    """Whether `read_todos` finds a list there, and leaves nothing of it out."""
    listed = _listed(value)
    return listed is not None and all(_todo(item) is not None for item in listed)


def _listed(value: object) -> "list[object] | None":
    listed = value.get("todos") if isinstance(value, dict) else value
    return listed if isinstance(listed, list) else None


def as_json(todos: "Iterable[Todo]") -> dict[str, list[dict[str, str]]]:
    """The same, to be written down."""
    return {"todos": [{"id": todo.key, "content": todo.content, "status": todo.status} for todo in todos]}


def open_todos(todos: "Iterable[Todo]") -> list[Todo]:
    """What is left to do, in progress first."""
    kept = [todo for todo in todos if is_open(todo.status)]
    return sorted(kept, key=lambda todo: todo.status != IN_PROGRESS)


def is_open(status: str) -> bool:
    """Whether this status says that something is left to do."""
    return status_word(status) not in CLOSED


def status_word(text: str) -> str:
    """A status in the one form in which they are compared."""
    return "_".join(text.lower().replace("-", " ").replace("_", " ").split())


def reminder(todos: "Iterable[Todo]") -> str:
    """The text that is put beside a prompt; nothing where no work is open."""
    left = open_todos(todos)[:_MOST]
    working = [todo for todo in left if todo.status == IN_PROGRESS]
    waiting = left[len(working) :]
    if not left:
        return ""
    parts = ["[SYSTEM REMINDER - TODO CONTINUATION]"]
    if working:
        parts.append("\n".join((f"IN PROGRESS ({_items(working)}):", *_lines(working))))
    if waiting:
        more = [f"  ... and {len(waiting) - SHOWN_PENDING} more"] if len(waiting) > SHOWN_PENDING else []
        parts.append("\n".join((f"PENDING ({_items(waiting)}):", *_lines(waiting[:SHOWN_PENDING]), *more)))
    return "\n\n".join((*parts, _RULES))


def _items(todos: list[Todo]) -> str:
    return f"{len(todos)} item" if len(todos) == 1 else f"{len(todos)} items"


def _lines(todos: list[Todo]) -> list[str]:
    return [f"  - {todo.content}" for todo in todos]


def _todo(item: object) -> Todo | None:
    if not isinstance(item, dict):
        return None
    content, status, key = item.get("content"), item.get("status"), item.get("id")
    if not isinstance(content, str) or not isinstance(status, str):
        return None
    name = str(key) if isinstance(key, str | int) else ""
    return Todo(one_line(content), status_word(one_line(status)), name[:_LONGEST])


def one_line(text: str) -> str:
    """Text of anybody's as one safe line that is not too long."""
    if not (text.isascii() and text.isprintable()):
        from .printable import printable

        text = printable(text[: 4 * _LONGEST])
    return " ".join(text.split())[:_LONGEST]
