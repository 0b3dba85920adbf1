"""What still runs in the background when the agent stops. For its helpers it is woken; a server runs for ever."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SHELL = "shell"


def awaited(event: "Mapping[str, Any]") -> str:
    """Other agents at work, in words. Claude Code wakes the session when one ends, and it stops again."""
    count = sum(1 for kind in _running(event) if kind != _SHELL)
    return _counted(count, "task")


def left_running(event: "Mapping[str, Any]") -> str:
    """Commands that run on, in words. One of them may never end."""
    return _counted(sum(1 for kind in _running(event) if kind == _SHELL), "shell command")


def _running(event: "Mapping[str, Any]") -> "list[object]":
    tasks = event.get("background_tasks")
    found = [task for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
    return [task.get("type") for task in found if task.get("status") == "running"]


def _counted(count: int, name: str) -> str:
    return "" if not count else f"1 {name}" if count == 1 else f"{count} {name}s"
