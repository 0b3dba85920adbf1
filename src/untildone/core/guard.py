"""What a run may not do to the files that judge it: tests, CI, coverage and lint settings."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Literal

from untildone.core.contract import Contract
from untildone.core.findings import FileChange, Finding, matches
from untildone.core.findings import waived as is_waived
from untildone.core.guard_rules import judge_of
from untildone.core.guard_settings import inspect_settings
from untildone.core.guard_shadow import Before, may_shadow, shadows
from untildone.core.guard_tests import inspect_tests
from untildone.core.printable import one_line

MOST_FINDINGS = 200
TEXT = 200
_WORDS = re.compile(r"[\w./-]+")
_BY_SHELL = re.compile(r"(?:^|[\s;&|(])(?:(?:ba|da|z|k)?sh|source|\.)\s+(?:-[a-z]+\s+)*([\w./-]*\w)")
_A_FILE = re.compile(r"/\w|\w\.[a-z]\w{0,4}$")
_JUDGES = re.compile(
    r"(?:^|[/_.-])(?:ci|check\w*|tests?|tester|testing|verify\w*|lint\w*|accept\w*|spec|qa|e2e|run_?tests?)(?:[/_.-]|$)"
)


_NOTHING_KNOWN = Before()


def is_guarded(path: str, more: Sequence[str] = ()) -> bool:
    """Whether a change of this file can make the checks prove less."""
    return judge_of(path) is not None or matches(path, more)


def is_watched(path: str, contract: Contract) -> bool:
    """The same, with the files that the checks name, and those that could take the place of what they run."""
    return (
        is_guarded(path, contract.guard_files)
        or _is_check(path, _scripts(contract) | _files(contract))
        or may_shadow(path, contract)
    )


def inspect(
    changes: Sequence[FileChange], contract: Contract, *, waived: Sequence[str] = (), before: Before = _NOTHING_KNOWN
) -> tuple[Finding, ...]:
    """What was done to guarded files. What a human let pass is still told."""
    tests, settings, ci, others = _sorted(changes, contract)
    had_tests = before.had_tests or any(change.before is not None for change in tests)
    found = [
        *inspect_tests(tests),
        *inspect_settings(settings, mixed=_is_mixed, named=_words(contract), had_tests=had_tests),
        *_any_change(ci, "ci_changed"),
        *_any_change(others, "settings_changed"),
        *_unreadable([*settings, *tests]),
        *_named_files(changes, contract),
        *shadows(changes, contract, before),
    ]
    if contract.guard == "strict":
        found = [replace(finding, blocking=True) for finding in found]
    found = [_told(finding, contract, waived) for finding in found]
    found.sort(key=lambda finding: (not finding.blocking, finding.path, finding.line))
    return tuple(found[:MOST_FINDINGS])


def _told(finding: Finding, contract: Contract, waived: Iterable[str]) -> Finding:
    let_pass = contract.guard == "off" or is_waived(finding.path, waived)
    return replace(finding, text=one_line(finding.text, TEXT), blocking=finding.blocking and not let_pass)


def _sorted(
    changes: Sequence[FileChange], contract: Contract
) -> tuple[list[FileChange], list[FileChange], list[FileChange], list[FileChange]]:
    """Tests, settings, CI, and what the user named or the checks run."""
    scripts = _scripts(contract)
    tests, settings, ci, others = list[FileChange](), list[FileChange](), list[FileChange](), list[FileChange]()
    for change in changes:
        # What it was counts first: a test that was renamed out of sight is still a test.
        judged = judge_of(change.old_path) if change.old_path else None
        judged = judged or judge_of(change.path)
        if _is_check(change.path, scripts) or _is_check(change.old_path, scripts):
            others.append(change)
        elif judged is None:
            others += [change] if any(matches(p, contract.guard_files) for p in (change.path, change.old_path)) else []
        elif judged.judge in {"test", "inline tests"}:
            tests.append(change)
        else:
            (ci if judged.judge == "ci" else settings).append(change)
    return tests, settings, ci, others


def _any_change(changes: Iterable[FileChange], kind: Literal["ci_changed", "settings_changed"]) -> Iterator[Finding]:
    """Files of which every change counts; a new one takes nothing away."""
    for change in changes:
        line = _first_difference(change)
        lines = (change.after or "").split("\n")
        text = {"added": "added", "deleted": "deleted", "renamed": f"renamed from {change.old_path}"}.get(change.status)
        yield Finding(
            kind=kind,
            path=change.path,
            line=line,
            text=text or (lines[line - 1] if 0 < line <= len(lines) else ""),
            blocking=change.status != "added",
        )


def _first_difference(change: FileChange) -> int:
    if change.before is None or change.after is None:
        return 0
    pairs = zip_longest(change.before.split("\n"), change.after.split("\n"))
    return next((number for number, (old, new) in enumerate(pairs, 1) if old != new), 0)


def _is_mixed(path: str) -> bool:
    judged = judge_of(path)
    return judged is not None and judged.judge == "mixed settings"


def _is_check(path: str, scripts: frozenset[str]) -> bool:
    # The folder of the run may lie below the top of the repository.
    return any(path == script or path.endswith(f"/{script}") for script in scripts)


def _unreadable(changes: Iterable[FileChange]) -> Iterator[Finding]:
    """Links, very large files, and binary ones: what was done to them cannot be seen."""
    for change in changes:
        judged = judge_of(change.path)
        if change.status == "deleted" or change.after is not None or judged is None:
            continue
        is_test = judged.judge in {"test", "inline tests"}
        # A new test takes nothing away, and what only lies beside tests may be a picture.
        if not is_test or (judged.by_name and judged.judge == "test" and change.status != "added"):
            said = "it is a link, not text, or larger than 1 MB"
            yield Finding(kind="unreadable", path=change.path, text=said, blocking=True)


def _named_files(changes: Iterable[FileChange], contract: Contract) -> Iterator[Finding]:
    """Files that were there and that a check names."""
    files = _files(contract)
    for change in changes:
        named = next((path for path in (change.path, change.old_path) if path and _is_check(path, files)), "")
        if change.status == "added" or not named or judge_of(named) is not None or _is_check(named, _scripts(contract)):
            continue
        text = "a check names it: whoever changes it decides what that says"
        line = _first_difference(change)
        yield Finding(kind="settings_changed", path=change.path, line=line, text=text, blocking=True)


def _words(contract: Contract) -> frozenset[str]:
    return frozenset(word for check in contract.checks for word in _WORDS.findall(check.command[:10_000]))


def _files(contract: Contract) -> frozenset[str]:
    """Files that the checks name, and that judge by their names: the others may be what is under test."""
    named = (word for word in _words(contract) if _A_FILE.search(word) and _JUDGES.search(word))
    return frozenset(word.removeprefix("./") for word in named)


def _scripts(contract: Contract) -> frozenset[str]:
    """Shell scripts that a check runs: who rewrites one decides what it says. Programs under test are no such thing."""
    run = (word for check in contract.checks for word in _BY_SHELL.findall(check.command[:10_000]))
    return frozenset(word.removeprefix("./") for word in (*filter(_is_script, _words(contract)), *run))


def _is_script(word: str) -> bool:
    name = word.rpartition("/")[2]
    return name.endswith((".sh", ".bash")) or (word.startswith("./") and "." not in name)
