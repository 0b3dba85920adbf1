"""Files that judge only in part: new text with the judging part of the base in it."""

import json
import re
from collections.abc import Mapping
from typing import Any

_HEADER = re.compile(r"^[ \t]*\[+[ \t]*([^\]\n]+?)[ \t]*\]+[ \t]*(?:[#;].*)?$", re.MULTILINE)
_JUDGING_SECTION = re.compile(
    r"pytest|coverage|\bcov\b|mypy|pyright|ruff|flake8|pylint|pycodestyle|pydocstyle|bandit|isort|black|lint|clippy"
    r"|test|tox|nox|envs|tasks|taskipy|poe|pdm[.:]scripts|aliases|mutmut|interrogate|vulture|deptry|importlinter",
    re.IGNORECASE,
)
_JUDGING_KEYS = frozenset({
    "scripts", "tasks", "test", "lint", "jest", "mocha", "nyc", "c8", "ava", "tap", "vitest", "xo", "eslintConfig",
    "lint-staged", "husky", "wireit", "nx", "standard", "config",
})  # fmt: skip
_RUN_WITH_OTHERS = re.compile(r"^(?:pre|post)")
_RUST_TESTS = re.compile(r"^[ \t]*#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{", re.MULTILINE)
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
    """Headers and what belongs to them, in order; what stands before the first one has none."""
    heads = list(_HEADER.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    before = text[: heads[0].start()] if heads else text
    return [("", before), *((head[1], text[head.start() : end]) for head, end in zip(heads, ends, strict=True))]


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
        was, now = json.loads(base), json.loads(new)
    except (ValueError, RecursionError):
        return None
    if not isinstance(was, dict) or not isinstance(now, dict):
        return None
    merged: dict[str, Any] = {key: value for key, value in now.items() if key not in _JUDGING_KEYS}
    for key in was.keys() & _JUDGING_KEYS:
        merged[key] = was[key]
    for key in ("scripts", "tasks"):
        added = _added_scripts(was.get(key), now.get(key))
        if added and (key in merged or key in now):
            merged[key] = {**merged.get(key, {}), **added}
    return new if merged == now else json.dumps(merged, indent=2) + "\n"


def _added_scripts(was: object, now: object) -> dict[str, Any]:
    """Scripts that are new and that the old ones do not run along with them."""
    if not isinstance(now, Mapping):
        return {}
    old = was if isinstance(was, Mapping) else {}
    # A first `test` script is what the goal may have asked for; one that is run before or after another is not.
    return {name: text for name, text in now.items() if name not in old and not _RUN_WITH_OTHERS.match(str(name))}


def _with_rust_tests(base: str, new: str) -> str:
    was, now = _rust_tests(base), _rust_tests(new)
    if was == now:
        return new
    for tests in now:
        new = new.replace(tests, "", 1)
    return new.rstrip("\n") + "\n\n" + "\n\n".join(was) + "\n" if was else new


def _rust_tests(text: str) -> list[str]:
    """The modules of tests that lie among the code, to their closing brace."""
    found = []
    for head in _RUST_TESTS.finditer(text):
        depth, at = 1, head.end()
        while at < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        found.append(text[head.start() : at])
    return found
