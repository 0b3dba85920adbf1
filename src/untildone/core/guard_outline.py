"""Settings files of any format as flat paths and values, so that one set of rules fits all of them."""

import configparser
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

Outline = dict[str, tuple[str, ...]]
"""From a dotted path to its values; a list has several."""

_DEEPEST = 20
_LONGEST = 4000
_MOST_LINES = 20_000
_COMMENT = re.compile(r"^\s*(?:#|//|;|\*|/\*|<!--)")
_ENTRY = re.compile(r"""^\s*(?:-\s+)?["']?([\w@.*/:-]+?)["']?\s*(?::(?!/)|=(?!=))\s*(.*)$""")
_XML = re.compile(r"^\s*<([\w:.-]+)[^<>]{0,500}>([^<>]{1,500})</")
_ITEM = re.compile(r"""^\s*-?\s*(.+?),?\s*$""")
_QUOTED = re.compile(r"""["']([^"']{1,500})["']""")
_SPECIAL = re.compile(
    r"^((?:export\s+|override\s+)*(?:SHELL|\.SHELLFLAGS|MAKEFLAGS|GNUMAKEFLAGS|PATH|PYTEST_ADDOPTS|NODE_OPTIONS|GOFLAGS"
    r"|RUSTFLAGS|PYTHONPATH)(?=\s*[:+?!]*=)|\.(?:IGNORE|ONESHELL|SILENT|POSIX|DEFAULT)(?=\s*:)|[-s]?include(?=\s))"
)
"""Says how every recipe of a makefile is run."""
_ASSIGNED = re.compile(r"^(?:export\s+|override\s+)*([\w.-]+)\s*[:?!]{0,3}(\+?)=\s*(.*)$")
_VARIABLE = re.compile(r"\$(?:\(([\w.-]+)\)|\{([\w.-]+)\})|\{\{\s*([\w.-]+)\s*\}\}")
_DEEPEST_VARIABLE = 5
_TARGET = re.compile(r"^([\w.-]+(?:\s+[\w.-]+)*)\s*(?:\w+=\S*\s*)*:(?!=)")


def outline(path: str, text: str | None) -> Outline:
    """The settings in a text; what cannot be parsed is read line by line."""
    if not text:
        return {}
    name = path.rpartition("/")[2]
    if name.lower() in {"makefile", "gnumakefile", "justfile", ".justfile"}:
        return _targets(text)
    if name.endswith("ignore"):
        return {"ignore": tuple(line.strip() for line in text.split("\n")[:_MOST_LINES] if line.strip())}
    try:
        parsed = _parsed(name, text)
    except (ValueError, RecursionError, configparser.Error, OverflowError):
        parsed = None
    return _by_lines(text) if parsed is None else _flat(parsed)


def _parsed(name: str, text: str) -> Any:
    end = name.rpartition(".")[2]
    if end == "toml":
        return tomllib.loads(text)
    if end in {"json", "eslintrc", "nycrc", "mocharc", "c8rc"}:
        return json.loads(text)
    if end in {"cfg", "ini", "coveragerc", "flake8", "pylintrc"}:
        ini = configparser.RawConfigParser(strict=False, allow_no_value=True)
        ini.read_string(text)
        return {section: {key: _ini_value(value) for key, value in ini.items(section)} for section in ini.sections()}
    return None


def _ini_value(value: str | None) -> str | list[str]:
    lines = [line.strip() for line in (value or "").split("\n") if line.strip()]
    return lines if len(lines) > 1 else "".join(lines)


def _flat(parsed: Any) -> Outline:
    flat: dict[str, list[str]] = {}
    for path, value in _leaves(parsed, "", 0):
        flat.setdefault(path, []).append(value)
    return {path: tuple(values) for path, values in flat.items()}


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path, depth + 1)
    else:
        yield path, (str(value).lower() if isinstance(value, bool) else str(value))[:_LONGEST]


def _by_lines(text: str) -> Outline:
    """YAML, JavaScript, XML and the like: keys by indentation, items below them."""
    flat: dict[str, list[str]] = {}
    stack: list[tuple[int, str]] = []
    for raw in text.split("\n")[:_MOST_LINES]:
        line = raw[:_LONGEST].rstrip()
        if not line or _COMMENT.match(line):
            continue
        depth = len(line) - len(line.lstrip())
        entry = _XML.match(line) or _ENTRY.match(line)
        # An item of a YAML list may stand as far left as its key.
        while stack and (stack[-1][0] > depth or (stack[-1][0] == depth and not line.lstrip().startswith("-"))):
            stack.pop()
        path = ".".join(key for _, key in stack[-_DEEPEST:])
        if entry:
            key, value = entry[1], entry[2].strip().rstrip(",").strip()
            full = f"{path}.{key}" if path else key
            flat.setdefault(full, []).extend(_values(value))
            if not line.lstrip().startswith("- "):
                stack.append((depth, key))
        elif item := _ITEM.match(line):
            flat.setdefault(path, []).extend(_values(item[1]))
    return {path: tuple(values) for path, values in flat.items()}


def _values(text: str) -> list[str]:
    text = text.partition(" #")[0].strip()
    if text.startswith(("[", "{")) and (quoted := _QUOTED.findall(text)):
        return quoted
    if text.startswith("["):
        return [part.strip() for part in text.strip("[]").split(",") if part.strip()]
    plain = text.strip("\"'` ")
    return [plain] if plain.strip("[]{}()") else []


def _targets(text: str) -> Outline:
    """Targets with what they need and do, variables filled in; and what says how recipes are run."""
    flat: dict[str, list[str]] = {}
    variables: dict[str, str] = {}
    current = ""
    for raw in text.split("\n")[:_MOST_LINES]:
        line = raw[:_LONGEST].rstrip()
        if line[:1] in {"\t", " "} and current:
            command = line.strip().lstrip("@")
            flat[current] += [_recipe(command)] if not command.startswith("#") else []
        elif found := _SPECIAL.match(line):
            current = ""
            flat.setdefault(f"make.{found[1].split()[-1].lstrip('-')}", []).append(line)
        elif assigned := _ASSIGNED.match(line):
            current = ""
            old = variables.get(assigned[1], "")
            variables[assigned[1]] = f"{old} {assigned[3]}".strip() if assigned[2] == "+" else assigned[3]
        elif found := _TARGET.match(line):
            current = f"target.{found[1].split()[0]}"
            flat.setdefault(current, [])
            flat[current] += [word for word in line[found.end() :].partition("#")[0].split() if word]
        elif line and not line.startswith("#"):
            current = ""
    return {path: tuple(_filled_in(value, variables) for value in values) for path, values in flat.items()}


def _filled_in(text: str, variables: dict[str, str]) -> str:
    for _ in range(_DEEPEST_VARIABLE):
        filled = _VARIABLE.sub(lambda found: variables.get(found[1] or found[2] or "", found[0]), text)[:_LONGEST]
        if filled == text:
            break
        text = filled
    return text


def _recipe(line: str) -> str:
    # Make goes on after a command that begins with a dash, whatever it answered.
    return f"{line[1:].lstrip()} || true" if line.startswith("-") else line
