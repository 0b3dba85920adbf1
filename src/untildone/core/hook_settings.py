"""Our hooks inside a settings file of Claude Code: put in beside other people's, taken out without a trace."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from untildone.core import json_text
from untildone.core.dataclass import dataclass
from untildone.errors import ConfigError

MARK = "# untildone"
"""How each command of ours ends: to the shell a comment."""
CAP = "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"
RAISED = 10_000
"""As many stops in a row as a loop can have turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One command for one event."""

    event: str
    command: str
    timeout: int
    matcher: str = ""

    def group(self) -> dict[str, Any]:
        """As it stands in a settings file."""
        matcher = {"matcher": self.matcher} if self.matcher else {}
        return {**matcher, "hooks": [{"type": "command", "command": self.command, "timeout": self.timeout}]}


def read_settings(text: str, name: str) -> dict[str, Any]:
    """The settings of a text, as far as we touch them; ConfigError where they have another shape."""
    try:
        settings = json.loads(text.strip("\ufeff \t\r\n") or "{}")
    except (ValueError, RecursionError) as broken:
        raise ConfigError(f"{name} is no valid JSON ({broken}): fix it first, nothing was changed") from broken
    if not isinstance(settings, dict):
        raise ConfigError(f"{name} holds no settings: it has to be a JSON object; nothing was changed")
    for key in ("hooks", "env"):
        if not isinstance(settings.get(key, {}), dict):
            raise ConfigError(f"{name}: {key!r} has to be an object; nothing was changed")
    for event, groups in settings.get("hooks", {}).items():
        if not isinstance(groups, list):
            raise ConfigError(f"{name}: the hooks of {event!r} have to be a list; nothing was changed")
    return settings


def our_commands(settings: Mapping[str, Any]) -> dict[str, list[str]]:
    """The commands of ours, by event."""
    found: dict[str, list[str]] = {}
    for event, groups in settings.get("hooks", {}).items():
        for group in groups if isinstance(groups, list) else ():
            found.setdefault(event, []).extend(hook["command"] for hook in _hooks(group) if is_ours(hook))
    return {event: commands for event, commands in found.items() if commands}


def is_ours(hook: object) -> bool:
    """Whether we wrote this hook."""
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and command.endswith(MARK)


def with_hooks(text: str, hooks: Sequence[Hook]) -> str:
    """The text with our hooks after everybody else's, and with the cap of stops raised."""
    text = text if text.strip("\ufeff \t\r\n") else "{}\n"
    if hooks:
        text = _with_object(text, json_text.root(text), "hooks")
    for hook in hooks:
        events = _object(text, "hooks")
        found = json_text.member(text, events, hook.event)
        if found is None:
            text = json_text.added(text, events, [hook.group()], hook.event)
        else:
            text = json_text.added(text, found.value_start, hook.group())
    return _with_cap(text)


def without_hooks(text: str, *, earlier_cap: str | None) -> str:
    """The text without anything of ours: what is left empty by that goes too; the cap is what it was."""
    settings = json.loads(text.removeprefix("\ufeff"))
    for event in our_commands(settings):
        text = _without_event(text, event)
    if not json.loads(text.removeprefix("\ufeff")).get("hooks", {"": 0}):
        text = _without_member(text, json_text.root(text), "hooks")
    env = settings.get("env")
    if not isinstance(env, dict) or env.get(CAP) != str(RAISED):
        return text
    found = json_text.member(text, _object(text, "env"), CAP)
    if earlier_cap is not None and found is not None:
        return json_text.replaced(text, found, earlier_cap)
    text = _without_member(text, _object(text, "env"), CAP)
    return text if len(env) > 1 else _without_member(text, json_text.root(text), "env")


def plugin_of(settings: Mapping[str, Any]) -> bool | None:
    """Whether the settings switch us on or off as a plugin; None where they do not speak of it."""
    named = settings.get("enabledPlugins")
    found = (
        [value for name, value in named.items() if name.partition("@")[0] == "untildone"]
        if isinstance(named, dict)
        else []
    )
    return any(value is True for value in found) if found else None


def cap_of(settings: Mapping[str, Any]) -> str | None:
    """What the settings say about the cap."""
    value = settings.get("env", {}).get(CAP)
    return None if value is None else str(value)


def is_raised(cap: str | None) -> bool:
    """Whether a cap lets a whole loop through; 0 switches it off."""
    return cap is not None and cap.isascii() and cap.isdigit() and (int(cap[:9]) == 0 or int(cap[:9]) >= RAISED)


def _with_cap(text: str) -> str:
    root = json_text.root(text)
    env = json_text.member(text, root, "env")
    if env is None:
        return json_text.added(text, root, {CAP: str(RAISED)}, "env")
    found = json_text.member(text, env.value_start, CAP)
    if found is None:
        return json_text.added(text, env.value_start, str(RAISED), CAP)
    return text if is_raised(str(json_text.value_of(text, found))) else json_text.replaced(text, found, str(RAISED))


def _with_object(text: str, at: int, key: str) -> str:
    return text if json_text.member(text, at, key) is not None else json_text.added(text, at, {}, key)


def _object(text: str, key: str) -> int:
    found = json_text.member(text, json_text.root(text), key)
    assert found is not None
    return found.value_start


def _without_event(text: str, event: str) -> str:
    """Only our hooks go: a group somebody put others into stays with those."""
    found = json_text.member(text, _object(text, "hooks"), event)
    assert found is not None
    for group in reversed(json_text.items(text, found.value_start)):
        given = json_text.value_of(text, group)
        if _hooks(given) and not all(is_ours(hook) for hook in _hooks(given)):
            inner = json_text.member(text, group.value_start, "hooks")
            assert inner is not None
            text = json_text.without(text, inner.value_start, lambda _, hook: is_ours(hook))
    text = json_text.without(text, found.value_start, lambda _, group: _is_our_group(group))
    if json_text.items(text, found.value_start):
        return text
    return _without_member(text, _object(text, "hooks"), event)


def _is_our_group(group: object) -> bool:
    return bool(_hooks(group)) and all(is_ours(hook) for hook in _hooks(group))


def _without_member(text: str, at: int, key: str) -> str:
    return json_text.without(text, at, lambda name, _: name == key)


def _hooks(group: object) -> list[Any]:
    hooks = group.get("hooks") if isinstance(group, dict) else None
    return hooks if isinstance(hooks, list) else []
