"""Files that judge only in part: new text with the judging part of the base in it."""

import json
import re
from collections.abc import Mapping
from typing import Any

_JUDGING_SECTION = re.compile(
    r"pytest|coverage|\bcov\b|mypy|pyright|ruff|flake8|pylint|pycodestyle|pydocstyle|bandit|isort|black|lint|clippy"
    r"|test|tox|nox|envs|tasks|taskipy|poe|pdm[.:]scripts|aliases|mutmut|interrogate|vulture|deptry|importlinter",
    re.IGNORECASE,
)
_JUDGING_KEYS = frozenset({
    "scripts", "tasks", "test", "lint", "jest", "mocha", "nyc", "c8", "ava", "tap", "vitest", "xo", "eslintConfig",
    "lint-staged", "husky", "wireit", "nx", "standard", "config",
})  # fmt: skip
_MODULES = ("imports", "exports", "browser")
_RUN_WITH_OTHERS = re.compile(r"^(?:pre|post)")
_RUST_TESTS = re.compile(r"^[ \t]*#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{", re.MULTILINE)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BRACE = re.compile(r"[{}]")
_WHOLE = frozenset({"tox.ini"})


def with_judging_part(path: str, base: str, new: str) -> str | None:
    """The new text with what judges as it was in the base; None where the parts cannot be told apart."""
    name = path.rpartition("/")[2]
    if name.endswith(".json"):
        return _with_keys(base, new)
    if name.endswith(".rs"):
        return _with_rust_tests(base, new)
    if name.endswith((".toml", ".cfg", ".ini")) and name not in _WHOLE:
        return _with_sections(base, new)
    return None


def _sections(text: str) -> list[tuple[str, str]]:
    """Headers and what belongs to them, in order; what comes before the first one has none."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in _LINE.findall(text):
        if header := _header(line):
            found.append((header, []))
        found[-1][1].append(line)
    return [(header, "".join(lines)) for header, lines in found]


def _header(line: str) -> str:
    """The name in `[name]` or `[[name]]`, with or without a comment behind it; "" for any other line."""
    inside, bracket, rest = line.strip().partition("]")
    rest = rest.lstrip("]").strip()
    is_header = inside.startswith("[") and bracket and (not rest or rest[0] in "#;")
    return inside.lstrip("[").strip() if is_header else ""


def _judges(header: str) -> bool:
    return header == "tool" or (_JUDGING_SECTION.search(header) is not None and not header.startswith("project"))


def _with_sections(base: str, new: str) -> str:
    was = [text for header, text in _sections(base) if _judges(header)]
    now = [text for header, text in _sections(new) if _judges(header)]
    if [text.strip() for text in was] == [text.strip() for text in now]:
        return new
    kept = "".join(text for header, text in _sections(new) if not _judges(header))
    return kept.rstrip("\n") + "\n\n" + "\n".join(text.strip("\n") + "\n" for text in was)


def _with_keys(base: str, new: str) -> str | None:
    try:
        return _with_old_keys(new, json.loads(base), json.loads(new))
    except (ValueError, RecursionError):  # comparing and writing may go deeper than reading did
        return None


def _with_old_keys(new: str, was: object, now: object) -> str | None:
    if not isinstance(was, dict) or not isinstance(now, dict):
        return None
    judging = _JUDGING_KEYS | {key for key in _MODULES if _tells_tests_apart(now.get(key))}
    merged: dict[str, Any] = {key: value for key, value in now.items() if key not in judging}
    for key in was.keys() & judging:
        merged[key] = was[key]
    for key in ("scripts", "tasks"):
        added = _added_scripts(was.get(key), now.get(key))
        if added and (key in merged or key in now):
            merged[key] = {**merged.get(key, {}), **added}
    return new if merged == now else json.dumps(merged, indent=2) + "\n"


def _tells_tests_apart(value: object) -> bool:
    """Whether tests may be given another module than everything else: `{"test": "./a.js", "default": "./b.js"}`."""
    return isinstance(value, dict) and any(key == "test" or _tells_tests_apart(below) for key, below in value.items())


def _added_scripts(was: object, now: object) -> dict[str, Any]:
    """Scripts that are new and that the old ones do not run along with them."""
    if not isinstance(now, Mapping):
        return {}
    old = was if isinstance(was, Mapping) else {}
    # A first `test` script is what the goal may have asked for; one that is run before or after another is not.
    return {name: text for name, text in now.items() if name not in old and not _RUN_WITH_OTHERS.match(str(name))}


def _with_rust_tests(base: str, new: str) -> str:
    (_, was), (code, now) = _rust_parts(base), _rust_parts(new)
    if was == now:
        return new
    return code.rstrip("\n") + "\n\n" + "\n\n".join(was) + "\n" if was else code


def _rust_parts(text: str) -> tuple[str, list[str]]:
    """The code, and the modules of tests that lie among it, each to its closing brace."""
    code, tests, end = [], [], 0
    while head := _RUST_TESTS.search(text, end):
        depth, at = 1, head.end()
        while depth and (brace := _BRACE.search(text, at)):
            depth += 1 if brace[0] == "{" else -1
            at = brace.end()
        code.append(text[end : head.start()])
        end = len(text) if depth else at
        tests.append(text[head.start() : end])
    return "".join([*code, text[end:]]), tests
