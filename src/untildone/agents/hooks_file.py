"""Reads and checks a file of Claude Code hooks: Claude Code itself ignores a wrong one silently."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from untildone.errors import ConfigError

EVENTS = frozenset({
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "Notification", "UserPromptSubmit",
    "UserPromptExpansion", "SessionStart", "SessionEnd", "Stop", "StopFailure", "SubagentStart", "SubagentStop",
    "PreCompact", "PostCompact", "PreModelSwitch", "PostModelSwitch", "PermissionRequest", "PermissionDenied",
    "Setup", "TeammateIdle", "TaskCreated", "TaskCompleted", "Elicitation", "ElicitationResult", "ConfigChange",
    "WorktreeCreate", "WorktreeRemove", "InstructionsLoaded", "CwdChanged", "FileChanged", "DirectoryAdded",
    "MessageDisplay",
})  # fmt: skip

# Handler type, and the fields it cannot do without.
HANDLERS: Mapping[str, tuple[str, ...]] = {
    "command": ("command",),
    "prompt": ("prompt",),
    "agent": ("prompt",),
    "http": ("url",),
    "mcp_tool": ("server", "tool"),
}


def load_hooks(path: str | Path) -> dict[str, Any]:
    """Return the hooks of a file, by event; ConfigError with the exact place if anything in it is wrong."""
    file = Path(path)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as gone:
        raise ConfigError(f"the hooks file {file} cannot be read: {gone.strerror or gone}") from gone
    except (ValueError, RecursionError) as bad:
        raise ConfigError(f"the hooks file {file} is not valid JSON: {bad}") from bad
    # Both the bare mapping and a whole settings file are in use.
    hooks = content.get("hooks", content) if isinstance(content, dict) else content
    _Checker(file).check(hooks)
    return dict(hooks)


class _Checker:
    def __init__(self, file: Path) -> None:
        self._file = file

    def check(self, hooks: Any) -> None:
        if not isinstance(hooks, dict):
            self._wrong("hooks", "must be an object with event names as keys")
        for event, groups in hooks.items():
            if event not in EVENTS:
                self._wrong(event, f"is no hook event{_meant(event)}")
            for number, group in enumerate(self._list(event, groups)):
                self._check_group(f"{event}[{number}]", group)

    def _check_group(self, place: str, group: Any) -> None:
        if not isinstance(group, dict):
            self._wrong(place, 'must be an object with a "hooks" list')
        if not isinstance(group.get("matcher", ""), str | None):
            self._wrong(f"{place}.matcher", "must be text")
        for number, handler in enumerate(self._list(f"{place}.hooks", group.get("hooks"))):
            self._check_handler(f"{place}.hooks[{number}]", handler)

    def _check_handler(self, place: str, handler: Any) -> None:
        kind = handler.get("type") if isinstance(handler, dict) else None
        if not isinstance(kind, str) or kind not in HANDLERS:
            self._wrong(f"{place}.type", f"must be one of {', '.join(HANDLERS)}")
        for field in HANDLERS[kind]:
            value = handler.get(field)
            if not isinstance(value, str) or not value.strip():
                self._wrong(f"{place}.{field}", f"must be text that is not empty, for a {kind} hook")
        timeout = handler.get("timeout", 0)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout < math.inf:
            self._wrong(f"{place}.timeout", "must be a number of seconds, 0 or more")

    def _list(self, place: str, value: Any) -> list[Any]:
        if not isinstance(value, list) or not value:
            self._wrong(place, "must be a list with at least one entry")
        return value

    def _wrong(self, place: str, what: str) -> NoReturn:
        raise ConfigError(f"the hooks file {self._file}: {place[:200]} {what}")


def _meant(event: str) -> str:
    """Event names are case-sensitive, and that is the usual mistake."""
    same = next((name for name in EVENTS if name.lower() == event.lower()), None)
    return f": did you mean {same}?" if same else f"; known are {', '.join(sorted(EVENTS))}"
