"""One line a person understands for each tool call: the command, the path, the pattern."""

from collections.abc import Mapping
from typing import Any

from untildone.core.printable import one_line, printable

LONGEST = 1000
REPORT_TOOL = "mcp__untildone__report"
_PATH_KEYS = ("file_path", "notebook_path", "path")

# Which field says it best, for tools where the fallback order below would choose another.
_TELLING = {
    "Bash": ("command",),
    "Grep": ("pattern",),
    "Glob": ("pattern",),
    "Task": ("subagent_type", "description"),
    "Agent": ("subagent_type", "description"),
    "WebFetch": ("url",),
    "WebSearch": ("query",),
    "Skill": ("skill", "command"),
}
_ANYTHING = (*_PATH_KEYS, "command", "pattern", "query", "url", "description", "prompt")


def tool_detail(name: str, given: Mapping[str, Any], cwd: str) -> str:
    """Describe a tool call in one line of at most LONGEST characters; empty when nothing tells it better."""
    if name == "TodoWrite":
        return _first_line(_current_item(given.get("todos")))
    if name.startswith("mcp__"):
        server, _, tool = name.removeprefix("mcp__").partition("__")
        return _first_line(f"{server}/{tool}" if tool else server)
    for key in _TELLING.get(name, _ANYTHING):
        value = given.get(key)
        if isinstance(value, str) and value.strip():
            return _first_line(relative(value, cwd) if key in _PATH_KEYS else value)
    return ""


def relative(path: str, cwd: str) -> str:
    """Return a path as seen from `cwd`, if it lies in there."""
    root = cwd.rstrip("/") + "/"
    return path.removeprefix(root) if cwd and path != root else path


def _first_line(text: str) -> str:
    """Return the first line that says something, safe to show, cut."""
    lines = printable(text[: 4 * LONGEST], lines=True).split("\n")
    return next((said for line in lines if (said := one_line(line))), "")[:LONGEST]


def _current_item(todos: Any) -> str:
    items = [todo for todo in todos if isinstance(todo, Mapping)] if isinstance(todos, list) else []
    current = next((todo for todo in items if todo.get("status") == "in_progress"), items[0] if items else {})
    content = current.get("content")
    return content if isinstance(content, str) else ""
