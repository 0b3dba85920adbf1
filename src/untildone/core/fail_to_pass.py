"""New tests on old code: a test that passes on both proves nothing about the change."""

from collections.abc import Mapping, Sequence

from untildone.core.contract import FAIL_TO_PASS
from untildone.core.dataclass import dataclass
from untildone.core.failing_tests import Failing, failing_tests
from untildone.core.findings import FileChange
from untildone.core.guard_languages import reader_for
from untildone.core.guard_rules import judge_of
from untildone.core.guard_units import read_source
from untildone.core.outcome import CheckResult

_NAMED = 5
_ADVICE = "say with --fail-to-pass-check CMD how only the new tests are run, such as 'pytest tests/test_new.py'"


@dataclass(frozen=True, slots=True)
class Changed:
    """The tests of a file that a run added or edited."""

    new: frozenset[str]
    edited: frozenset[str]
    added: bool
    """The file itself is new."""


def changed_tests(changes: Sequence[FileChange]) -> dict[str, Changed]:
    """Files with tests that are new or not what they were."""
    found: dict[str, Changed] = {}
    for change in changes:
        judged, reader = judge_of(change.path), reader_for(change.path)
        if reader is None or judged is None or judged.judge not in {"test", "inline tests"}:
            continue
        before, after = read_source(change.before, reader).units, read_source(change.after, reader).units
        old = {(unit.name, unit.body) for unit in before}
        names = {unit.name for unit in after if (unit.name, unit.body) not in old}
        had = {unit.name for unit in before}
        if names:
            found[change.path] = Changed(frozenset(names - had), frozenset(names & had), change.status == "added")
    return found


def verdict(wrong: str, *, tests: Sequence[str] = ()) -> CheckResult:
    """It as one more condition of the contract, so that every report tells how it came out."""
    said = wrong or f"fails on the code the run began with: {_some(tests)}"
    return CheckResult(name=FAIL_TO_PASS, command="", passed=not wrong, output_tail=said, room="clean")


def not_shown(
    with_tests: Sequence[CheckResult],
    without: Sequence[CheckResult],
    tests: Mapping[str, Changed],
    baseline: Mapping[str, bool],
) -> str:
    """Why new tests are not shown to fail on the old code; "" when they are.

    `with_tests`: the checks on the old code with the tests; `without`: on the old code alone, of those that were red
    before the run anyway. There a red check says nothing by itself: the new tests must be among those that fail.
    """
    red = [result for result in with_tests if result.ran and not result.passed]
    if not red:
        lost = next((result.output_tail.strip() for result in with_tests if not result.ran), "")
        return lost or f"{_some(tuple(tests))} passes on the code the run began with, too: it proves nothing"
    if any(baseline.get(result.name) for result in red):
        return ""
    before = frozenset(failing for result in without for failing in failing_tests(result.output_tail))
    failed = frozenset(failing for result in red for failing in failing_tests(result.output_tail))
    if not failed or not tests:
        names = ", ".join(f"`{result.name}`" for result in red)
        return f"it cannot be told whether new tests fail on the old code: {names} was red before the run; {_ADVICE}"
    idle = [path for path, changed in tests.items() if not any(_shows(f, path, changed, before) for f in failed)]
    if not idle:
        return ""
    return (
        f"no new test of {_some(idle)} is among those that fail on the code the run began with (its checks were red "
        f"before the run); if they do fail there, {_ADVICE}"
    )


def _shows(failing: Failing, path: str, changed: Changed, before: frozenset[Failing]) -> bool:
    if not failing.is_in(path):
        return False
    if not failing.name:
        return changed.added or failing not in before
    return failing.name in changed.edited or (failing.name in changed.new and failing not in before)


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more if paths else "what was added or changed"
