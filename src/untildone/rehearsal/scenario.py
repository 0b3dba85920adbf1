"""What the scripted model says, as values, and the TOML form people write them in.

Described for users in `docs/scenarios.md`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from untildone.core.dataclass import dataclass
from untildone.errors import ConfigError

After = Literal["repeat_last", "error", "say"]

SCENARIOS = Path(__file__).parent / "scenarios"
"""The scenarios that ship with the product."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool the model calls."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of the model, good or bad."""

    text: str = ""
    """What it says. `{n}` becomes the number of the request, `{i}` that of the conversation."""
    tools: tuple[ToolCall, ...] = ()
    """Tools it calls; `{n}` and `{i}` work inside their input too."""
    thinking: str = ""
    """What it thinks before it speaks."""
    input_tokens: int = 1000
    output_tokens: int = 100
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    """Cache writes that live five minutes."""
    cache_write_1h_tokens: int = 0
    """Cache writes that live an hour; they have their own price."""
    latency: float = 0.0
    """Seconds before the first byte."""
    chunk_delay: float = 0.0
    """Seconds between the streamed pieces."""
    stop_reason: str | None = None
    """None: `tool_use` if tools are called, else `end_turn`."""
    cut_after: float | None = None
    """Drop the connection after this share of the answer, from 0 to below 1."""
    status: int | None = None
    """Answer with this HTTP error instead, e.g. 429 or 529."""
    error_type: str = ""
    """The error's type; empty: the API's own name for that status."""
    message: str = ""
    """The error's message."""
    headers: tuple[tuple[str, str], ...] = ()
    """More response headers, e.g. `retry-after`."""
    repeat: int = 1
    """Serve it this many times."""
    model: str | None = None
    """Answer as this model; None: the scenario's, else the one that was asked."""
    when: str | None = None
    """Serve it only to a request whose last user message or system prompt contains this text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A script for the model: one list of replies, or one list for each conversation."""

    name: str
    replies: tuple[Reply, ...] = ()
    """Served in order, whichever conversation asks."""
    iterations: tuple[tuple[Reply, ...], ...] = ()
    """Served in order within a conversation; each fresh conversation gets the next list."""
    after: After = "repeat_last"
    """When the script is used up: repeat its last reply, answer with an error, or say one plain sentence."""
    model: str | None = None
    """Answer as this model; None: the one that was asked."""
    title: str = ""
    """What it shows, in one line."""


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as trouble:
        reason = getattr(trouble, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot read this scenario: {reason}") from trouble
    return parse_scenario(text, source=str(path), name=path.stem)


def shipped_scenario(name: str) -> Scenario:
    """A scenario that comes with the product, by its name."""
    path = SCENARIOS / f"{name}.toml"
    known = sorted(found.stem for found in SCENARIOS.glob("*.toml"))
    if name not in known:
        raise ConfigError(f"no scenario is called {name!r}: there are {', '.join(known)}")
    return load_scenario(path)


def parse_scenario(text: str, *, source: str = "scenario", name: str = "scenario") -> Scenario:
    """Turn TOML text into a scenario; ConfigError names the source and the key that is wrong."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise ConfigError(f"{source}: not valid TOML: {wrong}") from wrong
    _refuse_unknown(table, {"name", "title", "model", "after", "reply", "iteration"}, source, "")
    values = {key: _text(table[key], source, key) for key in ("name", "title", "model", "after") if key in table}
    if values.get("after", "error") not in get_args(After):
        raise ConfigError(f"{source}: after: must be one of {', '.join(get_args(After))}")
    replies = _replies(table.get("reply", []), source, "reply")
    iterations = _iterations(table.get("iteration", []), source)
    if bool(replies) == bool(iterations):
        raise ConfigError(f"{source}: reply: write either [[reply]] tables or [[iteration]] tables")
    return Scenario(**{"name": name, **values}, replies=replies, iterations=iterations)  # type: ignore[arg-type]  # `after` was checked above


def _iterations(value: object, source: str) -> tuple[tuple[Reply, ...], ...]:
    groups = []
    for number, group in enumerate(_tables(value, source, "iteration"), start=1):
        where = f"iteration {number}"
        _refuse_unknown(group, {"reply"}, source, f"{where}: ")
        replies = _replies(group.get("reply", []), source, f"{where}: reply")
        if not replies:
            raise ConfigError(f"{source}: {where}: reply: needs at least one [[iteration.reply]]")
        groups.append(replies)
    return tuple(groups)


def _replies(value: object, source: str, where: str) -> tuple[Reply, ...]:
    tables = _tables(value, source, where)
    return tuple(_reply(table, source, f"{where} {number}") for number, table in enumerate(tables, start=1))


def _reply(table: Mapping[str, object], source: str, where: str) -> Reply:
    _refuse_unknown(table, set(_READERS), source, f"{where}: ")
    values = {key: _READERS[key](value, source, f"{where}: {key}") for key, value in table.items()}
    reply = Reply(**values)
    for key, wrong in _contradictions(reply):
        raise ConfigError(f"{source}: {where}: {key}: {wrong}")
    return reply


def _contradictions(reply: Reply) -> list[tuple[str, str]]:
    cut = reply.cut_after
    error = reply.status is not None
    checks = (
        ("cut_after", "must be at least 0 and less than 1", cut is not None and not 0 <= cut < 1),
        ("status", "must be an HTTP error, 400 to 599", error and not 400 <= (reply.status or 0) <= 599),  # noqa: PLR2004 the range of HTTP errors
        ("repeat", "must be at least 1", reply.repeat < 1),
        ("status", "an error reply has no text, thinking or tools", error and _has_content(reply)),
        ("message", "only an error reply (one with status) has a message", bool(reply.message) and not error),
        ("error_type", "only an error reply (one with status) has it", bool(reply.error_type) and not error),
    )
    return [(key, wrong) for key, wrong, holds in checks if holds]


def _has_content(reply: Reply) -> bool:
    return bool(reply.text or reply.thinking or reply.tools)


def _refuse_unknown(table: Mapping[str, object], known: set[str], source: str, where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{source}: {where}{key}: unknown key; known are {', '.join(sorted(known))}")


def _tables(value: object, source: str, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigError(f"{source}: {where}: must be written as [[{where.rsplit(' ', 1)[-1]}]] tables")
    return value


def _text(value: object, source: str, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{source}: {where}: must be text in quotes")
    return value


def _count(value: object, source: str, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{source}: {where}: must be a whole number, not negative")
    return value


def _number(value: object, source: str, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise ConfigError(f"{source}: {where}: must be a number, not negative")
    return float(value)


def _tools(value: object, source: str, where: str) -> tuple[ToolCall, ...]:
    calls = []
    for number, table in enumerate(_tables(value, source, where), start=1):
        place = f"{where} {number}"
        _refuse_unknown(table, {"name", "input"}, source, f"{place}: ")
        given = table.get("input", {})
        if not isinstance(given, dict):
            raise ConfigError(f"{source}: {place}: input: must be a table")
        calls.append(ToolCall(_text(table.get("name"), source, f"{place}: name"), given))
    return tuple(calls)


def _headers(value: object, source: str, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise ConfigError(f'{source}: {where}: must be a table such as {{ retry-after = "2" }}')
    pairs = tuple((name, _text(text, source, f"{where}: {name}")) for name, text in value.items())
    for name, text in pairs:
        if not (name + text).isprintable():
            raise ConfigError(f"{source}: {where}: {name!r}: a header is one line of plain characters")
    return pairs


_KINDS: dict[object, Any] = {str: _text, int: _count, float: _number}
_READERS: dict[str, Any] = {
    **{entry.name: _KINDS[type(entry.default)] for entry in fields(Reply) if type(entry.default) in _KINDS},
    "tools": _tools,
    "headers": _headers,
    "cut_after": _number,
    "status": _count,
    "stop_reason": _text,
    "model": _text,
    "when": _text,
}
