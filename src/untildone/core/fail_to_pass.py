"""New tests on old code: a test that passes on both proves nothing about the change."""

from collections.abc import Mapping, Sequence

from untildone.core.contract import FAIL_TO_PASS
from untildone.core.failing_tests import Failing, failing_tests
from untildone.core.findings import FileChange
from untildone.core.judges import judge_of
from untildone.core.outcome import CheckResult

_NAMED = 5
_ADVICE = "say with --fail-to-pass-check CMD how only the new tests are run, such as 'pytest tests/test_new.py'"


def changed_tests(changes: Sequence[FileChange]) -> dict[str, bool]:
    """Files of tests that a run added (True) or edited (False)."""
    found: dict[str, bool] = {}
    for change in changes:
        judged = judge_of(change.path)
        if judged is not None and judged.judge == "test" and not judged.by_folder and change.status != "deleted":
            found[change.path] = change.status == "added"
    return found


def verdict(wrong: str, *, tests: Sequence[str] = ()) -> CheckResult:
    """It as one more condition of the contract, so that every report tells how it came out."""
    said = wrong or f"fails on the code the run began with: {_some(tests)}"
    return CheckResult(name=FAIL_TO_PASS, command="", passed=not wrong, output_tail=said, room="clean")


def not_shown(
    with_tests: Sequence[CheckResult],
    without: Sequence[CheckResult],
    tests: Mapping[str, bool],
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
    idle = [path for path, added in tests.items() if not any(_shows(f, path, added, before) for f in failed)]
    if not idle:
        return ""
    return (
        f"no new test of {_some(idle)} is among those that fail on the code the run began with (its checks were red "
        f"before the run); if they do fail there, {_ADVICE}"
    )


def _shows(failing: Failing, path: str, added: bool, before: frozenset[Failing]) -> bool:
    return failing.is_in(path) and (added or failing not in before)


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more if paths else "what was added or changed"
