"""Tools by which the agent keeps the tasks of its project: the same table, and the same rules, as `untildone task`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from untildone.agents.own_tools import OwnTool, ToolRefused
from untildone.errors import UntildoneError

TaskCommand = Callable[[Sequence[str]], str]
"""Does what `untildone task` would do with these words, and says what came of it. UsageError where it cannot be."""

LONGEST_ANSWER = 20_000
_TEXT = {"type": "string"}
_ID = {"type": "string", "description": "The task's id, such as TASK-007 or 7."}
_NOTE = {"type": "string", "description": "What was found out, for whoever comes next."}

_TOOLS: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, ...]]] = {
    "task_add": (
        "Add a task to the project's list; answers with its id. Plan the work as tasks that can each be verified.",
        {
            "title": {**_TEXT, "description": "What is to be done, in one line."},
            "description": {**_TEXT, "description": "More about it, and how it is verified."},
            "sprint": {**_TEXT, "description": "The sprint it belongs to."},
            "depends": {"type": "array", "items": _TEXT, "description": "Ids of tasks that have to be done first."},
        },
        ("title",),
    ),
    "task_start": ("Begin with a task.", {"id": _ID, "note": _NOTE}, ("id",)),
    "task_done": ("A task is done, and verified.", {"id": _ID, "note": _NOTE}, ("id",)),
    "task_fail": (
        "A task failed, or (blocked) waits for something outside. It stays open.",
        {"id": _ID, "note": _NOTE, "blocked": {"type": "boolean", "description": "It waits for something outside."}},
        ("id",),
    ),
    "task_list": (
        "All tasks of the project with their status. While one is open the goal is not reached.",
        {"open": {"type": "boolean", "description": "Only those that are not completed."}},
        (),
    ),
}
TASK_TOOLS: tuple[str, ...] = tuple(f"mcp__untildone__{name}" for name in _TOOLS)
"""As Claude Code calls them."""


def words_for(tool: str, given: Mapping[str, Any]) -> list[str]:
    """A call as words for `untildone task`. Nothing that was given can become an option."""

    def said(key: str) -> str:
        return str(given.get(key) or "")

    options = [f"--{key}={said(key)}" for key in ("description", "sprint", "note") if said(key)]
    depends = given.get("depends")
    options += [f"--depends={one}" for one in depends] if isinstance(depends, list) else []
    options += [f"--{key}" for key in ("blocked", "open") if given.get(key) is True]
    known = _TOOLS[tool][1]
    kept = [option for option in options if option.removeprefix("--").partition("=")[0] in known]
    verb = "ls" if tool == "task_list" else tool.removeprefix("task_")
    about = [said("title" if tool == "task_add" else "id")] if _TOOLS[tool][2] else []
    return [verb, *kept, *(["--", *about] if about else [])]


async def call(tasks: TaskCommand, tool: str, given: Mapping[str, Any]) -> str:
    """Answer one call; what cannot be is told to the agent as an error, in the words of the command."""
    try:
        return (await asyncio.to_thread(tasks, words_for(tool, given)))[:LONGEST_ANSWER]
    except UntildoneError as refused:
        raise ToolRefused(str(refused)[:LONGEST_ANSWER]) from refused


def task_tools(tasks: TaskCommand) -> list[OwnTool]:
    """The tools."""
    return [
        OwnTool(name=name, about=about, schema=_schema(properties, required), call=partial(call, tasks, name))
        for name, (about, properties, required) in _TOOLS.items()
    ]


def _schema(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required)}
