"""Settings that make checks prove less: thresholds, strictness, ignore lists, the commands that run the tests."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

from untildone.core.dataclass import dataclass
from untildone.core.findings import FileChange, Finding
from untildone.core.guard_commands import guarded_names, options, redefined
from untildone.core.guard_outline import Outline, outline

Weaker = Literal["lower", "higher", "off", "on", "longer", "command", "options", "fewer", "any"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What makes a setting weaker. `keys` is matched against the whole dotted path."""

    weaker: Weaker
    keys: str
    words: str


RULES: tuple[Rule, ...] = (
    Rule("lower", r"(?:^|[.-])(?:cov-)?fail[_-]under$|minimum_coverage|min[_-]?(?:imum)?[_-]?coverage|\bminMsi$"
         r"|\bminimum$|(?:coverageThreshold|thresholds?|check-coverage)\b.*\b(?:branches|functions|lines|statements|perFile)$"
         r"|^(?:nyc\.|c8\.)?(?:branches|functions|lines|statements)$|status\..*\btarget$|qualitygate",
         "coverage or score that must be reached"),
    Rule("higher", r"max[_-]?warnings$|max[_-]?complexity$|status\..*\bthreshold$"
         r"|[a-z]-threshold$|max[_-](?:statements|branches|returns|args|locals|nested)|cyclop|gocyclo",
         "warnings or complexity that are allowed"),
    Rule("off", r"(?:^|\.)(?:strict\w*|noImplicit\w+|noUnchecked\w+|noUnused\w+|exactOptionalPropertyTypes|xfail_strict"
         r"|disallow_\w+|check_untyped_defs|warn_\w+|no_implicit_\w+|checkJs|branch|failOnWarning|failOnRisky"
         r"|errorOnDeprecated|forbidOnly|beStrict\w+|require_ci_to_pass|Enabled|check-coverage"
         r"|(?:lib|bin|test|example|package)\.(?:test|doctest|harness|autotests))$",
         "strictness"),
    Rule("on", r"(?:^|\.)(?:ignore_errors|passWithNoTests|allow_failure|continue[_-]on[_-]error|skip_empty"
         r"|reportOnly|informational|dangerouslyIgnoreUnhandledErrors|exit[_-]zero|skipTests|testFailureIgnore"
         r"|maven\.test\.skip|skipITs)$",
         "letting errors pass"),
    Rule("longer", r"(?:^|\.)(?:(?:extend-)?(?:ignore|exclude|select-off)|extend[_-](?:ignore|exclude)"
         r"|per-file-ignores(?:\..*)?|extend-per-file-ignores(?:\..*)?|lint\.ignore|omit|exclude_(?:lines|also)|disable|disable_error_code"
         r"|collect_ignore\w*|norecursedirs|\w*IgnorePatterns|\w*ignores|ignorePatterns|Exclude|exclude-rules.*"
         r"|exclude-(?:dirs|files|functions)|exclusions|sonar\.\w*\.?exclusions|excluded|disabled_rules|skips)$",
         "what is left out"),
    Rule("options", r"\baddopts$", "options of the test runner"),
    Rule("any", r"^make\.|(?:^|\.)(?:script-shell|ignore-scripts|runner)$|^alias\.(?:t|test|check|clippy)$",
         "how commands are run"),
    Rule("command", r"^(?:scripts|tasks|target)\.|\bcommands$", "the commands that run the tests"),
    Rule("fewer", r"\btest\.include$|coverage\.include$|collectCoverageFrom$|testDir$|\brun\.source$"
         r"|\btestMatch$|\btestRegex$|\btestpaths$|python_(?:files|functions|classes)$|\bspec$|\broots$"
         r"|(?:^|\.)(?:select|extend-select|enable|linters\.enable|enable_error_code)$",
         "what is run"),
)  # fmt: skip

MIXED: dict[str, str] = {
    "pyproject.toml": r"^tool\.(?:pytest|coverage|ruff|mypy|pyright|basedpyright|pylint|flake8|tox|bandit"
    r"|importlinter|ty)\b",
    "setup.cfg": r"^(?:tool:pytest|coverage|flake8|mypy|pylint|pycodestyle|pydocstyle|tool:interrogate)",
    "tox.ini": r"^(?:pytest|coverage|flake8|mypy|testenv|pycodestyle|tox)",
    "package.json": r"^(?:jest|vitest|nyc|c8|mocha|ava|eslintConfig|xo|stylelint|tap)\b",
    "deno.json": r"^(?:test|lint)\b",
    "composer.json": r"^scripts\.(?:phpstan|psalm)",
    "Cargo.toml": r"^(?:lib|bin|test|example)\.(?:test|doctest|harness)$|^package\.autotests$|^lints\.",
    "config.toml": r"(?:^|\.)runner$|^alias\.",
    ".npmrc": r"^(?:script-shell|ignore-scripts)$",
    "pom.xml": r"(?:^|\.)(?:skipTests|testFailureIgnore|maven\.test\.skip|skipITs)$",
}
"""Files that also hold other things: only these sections of them judge a run, and the targets that run tests."""
_MAKE = r"^make\."

_DEEPEST = 8
_LONGEST_LINE = 20_000
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_RULE_OFF = re.compile(r"^(?:off|0|allow|ignore)$", re.IGNORECASE)
_RULE_ON = re.compile(r"^(?:error|warn|2|1|deny|forbid)$", re.IGNORECASE)
_RUNS = re.compile(r"(?:^|\.)(?:script-shell|runner)$")
_A_RULE = re.compile(r"(?:^|\.)rules\.[^.]+$")
_SECTION = re.compile(r"(?:tool\.)?(?:ruff|pylint|flake8|pyright|bandit|importlinter|eslintConfig|stylelint|xo)\b")
_NARROWS = re.compile(
    r"\btestpaths$|python_(?:files|functions|classes)$|\btestMatch$|\btestRegex$|\btestDir$|\btest\.include$|^include$"
    r"|\broots$|\bspec$"
)
_PROGRAM = re.compile(r"(?:jest|vitest|playwright|cypress|karma)\.\w+\.[cm]?[jt]s$|\.mocharc\.c?js$")
_NARROWS_IN_PROGRAM = re.compile(
    r"\b(testMatch|testRegex|testDir|roots|include|spec|specPattern|passWithNoTests|testPathIgnorePatterns|testIgnore"
    r"|exclude)\b[\"']?\s*:"
)
"""Settings that say where tests are: given for the first time, they leave out all the others."""
_HOOKS = re.compile(
    r"\bcollect_ignore|\bdef\s+pytest_(?:collection_modifyitems|ignore_collect|runtest_makereport|runtest_protocol"
    r"|pyfunc_call|sessionfinish|exception_interact|report_teststatus|deselected)\b|\bexitstatus\s*=|\.outcome\s*="
    r"|\bmark\.(?:skip|xfail)\b|\bpytest\.(?:skip|xfail|exit)\b|\bos\._exit\(|\bsys\.exit\("
    r"|\bimport\s+\*|\bpytest_plugins\b|\bglobals\(\)|\b(?:exec|eval|__import__)\(|\b(?:vars|setattr)\(.*pytest_"
)
_GRADLE = re.compile(
    r"\bignoreFailures\b.*\btrue\b|\bsetIgnoreFailures\(true|\benabled\s*=?\s*false|\bonlyIf\b|\bexclude\b"
)
_MARKERS = {"conftest.py": _HOOKS, "build.gradle": _GRADLE, "build.gradle.kts": _GRADLE}
"""Files that are programs: lines that are new in them and can drop or forgive tests."""


@dataclass(frozen=True, slots=True)
class _Pair:
    change: FileChange
    before: Outline
    after: Outline


def inspect_settings(
    changes: Sequence[FileChange], *, mixed: Callable[[str], bool], named: Collection[str] = (), had_tests: bool = False
) -> list[Finding]:
    """What was done to settings; a value that moved from one file to another is not gone.

    `named`: words of the checks, which may be targets. `had_tests`: there were tests that new settings can leave out.
    """
    pairs = [_opened(change, mixed(change.path), named) for change in changes]
    elsewhere = {key: values for pair in pairs for key, values in _by_last_key(pair.after).items()}
    earlier = {key: values for pair in pairs for key, values in _by_last_key(pair.before).items()}
    found: list[Finding] = []
    for pair in pairs:
        weakened = list(_weakened(pair, elsewhere))
        weakened += _narrowed(pair, earlier) if had_tests else []
        found += weakened
        if not weakened and _section_changed(pair, whole=not mixed(pair.change.path)):
            added = pair.change.status == "added"
            found.append(
                Finding(kind="settings_changed", path=pair.change.path, text="added" if added else _first(pair))
            )
    return found


def _opened(change: FileChange, mixed: bool, named: Collection[str]) -> _Pair:
    old, new = outline(change.old_path or change.path, change.before), outline(change.path, change.after)
    if mixed:
        kept = re.compile(MIXED.get(change.path.rpartition("/")[2], _MAKE))
        names = guarded_names(old, named) | guarded_names(new, named)
        old = {key: values for key, values in old.items() if key in names or kept.search(key)}
        new = {key: values for key, values in new.items() if key in names or kept.search(key)}
    return _Pair(change, old, new)


def _narrowed(pair: _Pair, earlier: Outline) -> Iterator[Finding]:
    for key, values in pair.after.items():
        if _NARROWS.search(key) and key not in pair.before and earlier.get(key.rpartition(".")[2]) != values:
            why = f"{' '.join(values)[:100]} is new, and leaves out what is elsewhere"
            yield _finding(pair, key, _FEWER, why)
            return
    # Settings that are a program are not read as keys and values: on one line everything is one value.
    change = pair.change
    if _PROGRAM.search(change.path) and (new := _first_match(change.after)) and new not in (change.before or ""):
        yield Finding(kind="settings_changed", path=change.path, text=f"{new} is new", blocking=True)


def _first_match(text: str | None) -> str:
    found = _NARROWS_IN_PROGRAM.search(text or "")
    return found[1] if found else ""


def _by_last_key(flat: Outline) -> Outline:
    return {key.rpartition(".")[2]: values for key, values in flat.items()}


def _section_changed(pair: _Pair, *, whole: bool) -> bool:
    if pair.change.status == "added":
        return whole
    return pair.before != pair.after or (whole and pair.change.before != pair.change.after)


def _first(pair: _Pair) -> str:
    keys = [key for key in {**pair.before, **pair.after} if pair.before.get(key) != pair.after.get(key)]
    return ", ".join(keys[:5])


def _weakened(pair: _Pair, elsewhere: Outline) -> Iterator[Finding]:
    change = pair.change
    name = change.path.rpartition("/")[2]
    if marker := _MARKERS.get(name):
        yield from _marked(change, marker)
        return
    if change.status == "deleted" and not pair.before:
        yield Finding(kind="settings_changed", path=change.path, text="the file is gone", blocking=True)
    for key in dict.fromkeys((*pair.before, *pair.after)):
        old, new = pair.before.get(key, ()), pair.after.get(key, ())
        if old == new or _is_set_up(pair, key):
            continue
        if not new:
            new = elsewhere.get(key.rpartition(".")[2], ())
        for rule in _rules():
            if rule[1].search(key) and (why := _TESTS[rule[0].weaker](old, new)):
                yield _finding(pair, key, rule[0], why)
                break
        else:
            if new and _RULE_OFF.match(new[0]) and (_RULE_ON.match(old[0]) if old else _A_RULE.search(key)):
                yield _finding(pair, key, _OFF, f"{old[0] if old else 'what it was'} became {new[0]}")


_OFF = Rule("off", "", "a rule")
_FEWER = Rule("fewer", "", "where tests are")


def _is_set_up(pair: _Pair, key: str) -> bool:
    """Whether a tool is given its first settings: that takes nothing away, unless it is what runs the tests."""
    if pair.change.status == "added":
        return not key.endswith("addopts") and not _RUNS.search(key)
    section = _SECTION.match(key)
    return section is not None and not any(old.startswith(section[0]) for old in pair.before)


def _rules() -> list[tuple[Rule, re.Pattern[str]]]:
    return [(rule, re.compile(rule.keys)) for rule in RULES]


_ABOUT_RUNNING = frozenset({"command", "options", "fewer", "any"})


def _finding(pair: _Pair, key: str, rule: Rule, why: str) -> Finding:
    line = _line_of(pair.change.after, key, pair.after.get(key, ())) or _line_of(pair.change.before, key, ())
    kind: Literal["settings_changed", "threshold_lowered"] = (
        "settings_changed" if rule.weaker in _ABOUT_RUNNING else "threshold_lowered"
    )
    return Finding(kind=kind, path=pair.change.path, line=line, text=f"{key} ({rule.words}): {why}", blocking=True)


def _line_of(text: str | None, key: str, values: Sequence[str]) -> int:
    """Where a setting stands: by as much of its path as is written in one piece, else by its last value."""
    lines = (text or "").split("\n")
    parts = key.split(".")[-_DEEPEST:]
    wanted = [".".join(parts[at:]) for at in range(len(parts))] + [value[:100] for value in values[-1:]]
    for word in filter(None, wanted):
        for number, line in enumerate(lines, 1):
            if word in line:
                return number
    return 0


def _marked(change: FileChange, marker: re.Pattern[str]) -> Iterator[Finding]:
    """Hooks can drop or forgive any test; only new ones are told."""
    old = {line.strip() for line in (change.before or "").split("\n")}
    for number, line in enumerate((change.after or "").split("\n"), 1):
        if line.strip() not in old and marker.search(line[:_LONGEST_LINE]) and not line.lstrip().startswith("#"):
            yield Finding(kind="skip_added", path=change.path, line=number, text=line.strip(), blocking=True)


# --- what weaker means -----------------------------------------------------------------------------


def _numbers(values: Sequence[str]) -> list[float]:
    return [float(found[0]) for value in values if (found := _NUMBER.search(value[:100]))]


def _lower(old: Sequence[str], new: Sequence[str]) -> str:
    before, after = _numbers(old), _numbers(new)
    if before and not after:
        return f"{old[0]} is gone"
    return next((f"{a:g} became {b:g}" for a, b in zip(before, after, strict=False) if b < a), "")


def _higher(old: Sequence[str], new: Sequence[str]) -> str:
    before, after = _numbers(old), _numbers(new)
    if before and not after:
        return f"{old[0]} is gone"
    return next((f"{a:g} became {b:g}" for a, b in zip(before, after, strict=False) if b > a), "")


def _off(old: Sequence[str], new: Sequence[str]) -> str:
    if [value.lower() for value in old] == ["true"] and [value.lower() for value in new] != ["true"]:
        return f"true became {new[0]}" if new else "true is gone"
    # Off from nothing: only where a tool is strict unless told otherwise.
    return "false is new" if not old and [value.lower() for value in new] == ["false"] else ""


def _on(old: Sequence[str], new: Sequence[str]) -> str:
    was, is_now = ([value.lower() for value in values] == ["true"] for values in (old, new))
    return "true is new" if is_now and not was else ""


def _split(values: Sequence[str]) -> list[str]:
    return [part for value in values for part in re.split(r"[,\s]+", value) if part]


def _longer(old: Sequence[str], new: Sequence[str]) -> str:
    more = [part for part in _split(new) if part not in set(_split(old))]
    return f"{', '.join(more[:5])} is new" if more else ""


def _fewer(old: Sequence[str], new: Sequence[str]) -> str:
    if not old:
        return ""
    lost = [word for word in _split(old) if word not in set(_split(new))]
    return f"{', '.join(lost[:5])} is gone" if lost else ""


def _any(old: Sequence[str], new: Sequence[str]) -> str:
    was, now = (" ".join(values)[:100] or "nothing" for values in (old, new))
    return f"{was} became {now}"


_TESTS: dict[Weaker, Callable[[Sequence[str], Sequence[str]], str]] = {
    "lower": _lower,
    "higher": _higher,
    "off": _off,
    "on": _on,
    "longer": _longer,
    "command": redefined,
    "options": options,
    "fewer": _fewer,
    "any": _any,
}
