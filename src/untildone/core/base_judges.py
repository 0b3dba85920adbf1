"""The base judges: the new code with everything that judges it as it was when the run began.

Who can change both the work and what judges it can make any check pass. So the checks run on the commit as it is, and
where a file that judges differs from the base, on the same code with the base's judges as well.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Literal

from untildone.core.contract import Contract
from untildone.core.dataclass import dataclass
from untildone.core.failing_tests import failing_tests
from untildone.core.findings import FileChange, Finding, FindingKind
from untildone.core.findings import waived as is_waived
from untildone.core.judges import judge_of, takes_a_place
from untildone.core.judging_parts import with_judging_part
from untildone.core.outcome import CheckResult
from untildone.core.printable import one_line

MOST_TOLD = 200
_NAMED = 20
_SAID = 200
_LINE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseJudges:
    """What to change in a commit so that it is judged as the base was."""

    restored: tuple[str, ...] = ()
    """Files as they are in the base: changed ones and deleted ones."""
    removed: tuple[str, ...] = ()
    """Files that the base does not have."""
    rewritten: Mapping[str, str] = field(default_factory=dict)
    """Files that judge only in part, with that part as it is in the base."""

    @property
    def differ(self) -> bool:
        """Whether anything that judges is not as it was in the base."""
        return bool(self.restored or self.rewritten or self.removed)

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that judges and is not as it was."""
        return tuple(sorted({*self.restored, *self.removed, *self.rewritten}))


def base_judges(
    changes: Sequence[FileChange],
    contract: Contract,
    *,
    judges: Callable[[str], bool],
    whole: Collection[str] = (),
    waived: Sequence[str] = (),
) -> BaseJudges:
    """How the base's judges differ from those of a commit; files that a human let change stay as they are.

    `whole`: files that a script of the checks reads, so that all of them judges.
    """
    restored: list[str] = []
    removed: list[str] = []
    rewritten: dict[str, str] = {}
    tests: list[str] = []
    for change in changes:
        if is_waived(change.path, waived) or (change.old_path and is_waived(change.old_path, waived)):
            continue
        if change.status == "added":
            if _is_plain_test(change, contract):
                tests.append(change.path)
            elif judges(change.path) or takes_a_place(change.path, contract):
                removed.append(change.path)
            continue
        old = change.old_path or change.path
        if not judges(old):
            removed += [change.path] if change.old_path and judges(change.path) else []
        elif old not in whole and change.status == "modified" and (part := _only_in_part(change)) is not None:
            rewritten |= {change.path: part} if part != change.after else {}
        else:
            restored.append(old)
            removed += [change.path] if change.old_path and judges(change.path) else []
    # New tests may need new helpers: where those are left out, they are left out as well.
    removed += tests if restored or removed or rewritten else []
    return BaseJudges(restored=tuple(restored), removed=tuple(removed), rewritten=rewritten)


def _is_plain_test(change: FileChange, contract: Contract) -> bool:
    judged = judge_of(change.path)
    return (
        judged is not None
        and judged.judge == "test"
        and not judged.by_folder
        and not takes_a_place(change.path, contract)
    )


def _only_in_part(change: FileChange) -> str | None:
    """Of a file that judges only in part, the new text with the base's part; None: all of it judges."""
    judged = judge_of(change.path)
    if judged is None or judged.judge not in {"mixed settings", "inline tests"}:
        return None
    if change.before is None or change.after is None:
        return None
    return with_judging_part(change.path, change.before, change.after)


# --- what it comes to ----------------------------------------------------------------------------------------


def disputed_by(results: Sequence[CheckResult]) -> list[str]:
    """What does not hold on the new code with the base's judges: tests by name where the output tells, else checks."""
    told: list[str] = []
    for result in results:
        if result.passed:
            continue
        named = sorted({"::".join(filter(None, (test.file, test.name))) for test in failing_tests(result.output_tail)})
        if result.hidden or not named:
            told.append(f"{result.name}: {'fails' if result.hidden else _last_words(result)}")
        else:
            told += [f"{name} fails" for name in named[:_NAMED]]
            told += [f"and {len(named) - _NAMED} more tests fail"] if len(named) > _NAMED else []
    return list(dict.fromkeys(one_line(said, _SAID) for said in told))


def _last_words(result: CheckResult) -> str:
    how = "did not end in time" if result.exit_code is None and result.ran else "fails"
    lines = result.output_tail.strip().splitlines()
    return f"{how} ({lines[-1].strip()})" if lines else how


_KINDS: Mapping[str, tuple[FindingKind, FindingKind, FindingKind]] = {
    "test": ("test_added", "test_edited", "test_deleted"),
    "inline tests": ("test_edited", "test_edited", "test_deleted"),
    "ci": ("ci_changed", "ci_changed", "ci_changed"),
}
_SETTINGS: tuple[FindingKind, FindingKind, FindingKind] = ("settings_changed", "settings_changed", "settings_changed")
_STATUS: dict[str, Literal[0, 1, 2]] = {"added": 0, "modified": 1, "renamed": 1, "deleted": 2}


def told_changes(
    changes: Sequence[FileChange], contract: Contract, *, judges: Callable[[str], bool], waived: Sequence[str] = ()
) -> list[Finding]:
    """Every change of a file that judges, for the reports. Only `--guard strict` lets one block by itself."""
    told = []
    for change in changes:
        path = change.old_path if change.old_path and judges(change.old_path) else change.path
        is_new = change.status == "added"
        if not (judges(path) or (is_new and takes_a_place(path, contract))) or _leaves_the_judging_part(change):
            continue
        judged = judge_of(path)
        kinds = _KINDS.get(judged.judge, _SETTINGS) if judged else _SETTINGS
        text = f"renamed to {change.path}" if change.old_path and path == change.old_path else change.status
        told.append(
            Finding(
                kind="check_shadowed" if is_new and takes_a_place(path, contract) else kinds[_STATUS[change.status]],
                path=path,
                text=one_line(text, _SAID),
                blocking=contract.guard == "strict" and not is_waived(path, waived),
            )
        )
    told.sort(key=lambda finding: (not finding.blocking, finding.path))
    return told[:MOST_TOLD]


def _leaves_the_judging_part(change: FileChange) -> bool:
    return change.status == "modified" and _only_in_part(change) == change.after


def ci_changes(changes: Sequence[FileChange], waived: Sequence[str]) -> list[str]:
    """CI that was there and is not as it was: no check here runs it, so only a human or a reviewer can say."""
    told = []
    for change in changes:
        judged = judge_of(change.old_path or change.path)
        is_ci = judged is not None and judged.judge == "ci" and change.status != "added"
        if is_ci and not is_waived(change.path, waived):
            path = one_line(change.old_path or change.path, _SAID)
            told.append(f"{path}: CI was changed, and no check here runs it")
    return told


# --- what the base's judges cannot see -----------------------------------------------------------------------

SUSPECT_FILES = (
    "pytest|PYTEST|unittest|JEST_WORKER|VITEST|NODE_TEST|NODE_ENV|node:test|_exit|settrace|reallyExit|__eq__"
    "|assert|uncaught|exitCode"
)
"""Words of which one is in every suspect line, for a quick look at what changed (a POSIX expression)."""
_SUSPECT = re.compile(
    r"PYTEST_CURRENT_TEST|PYTEST_VERSION|\b_?pytest\b|\bunittest\b|JEST_WORKER_ID|\bVITEST\b|NODE_TEST_CONTEXT"
    r"|NODE_ENV\W{1,12}test|node:test|\bos\._exit\(|\bsys\.settrace\(|\bprocess\.reallyExit"
    r"|\bassert(?:\.\w{1,80}){1,8}\s{0,80}=[^=>]|uncaughtException|\bexitCode\s{0,80}=\s{0,80}0\b"
    r"|def __eq__\([^)]{0,500}\)[^:\n]{0,200}:\s{0,500}(?:\"\"\"[^\"]{0,2000}\"\"\"\s{0,500})?return True\b"
)
_PROSE = re.compile(r"\.(?:md|rst|txt|adoc|lock)$|(?:^|/)(?:LICENSE|CHANGELOG)")


def suspects(added: Sequence[tuple[str, int, str]], judges: Callable[[str], bool]) -> list[str]:
    """Product code that asks whether it is being tested, reaches for the test runner, or ends its own process.

    `added`: pieces of text that are new, as (file, number of the first line, text).
    """
    pieces = (piece for piece in added if not judges(piece[0]) and not _PROSE.search(piece[0]))
    told = (
        one_line(f"{path}:{line}: this code behaves differently in a test: {said}", _SAID)
        for path, number, text in pieces
        for line, said in _suspect_lines(number, text)
    )
    return list(islice(told, _NAMED))


def _suspect_lines(number: int, text: str) -> Iterator[tuple[int, str]]:
    """Number and beginning of each line in which something suspect begins; `number`: of the first line."""
    end = 0
    while found := _SUSPECT.search(text, end):
        start = text.rfind("\n", 0, found.start()) + 1
        number += text.count("\n", end, start)
        end = text.find("\n", found.start()) + 1 or len(text)
        yield number, text[start : min(end, start + _LINE)].strip()
        number += 1


def is_smaller(now: Sequence[str], before: Sequence[str]) -> bool:
    """Whether a dispute is about less than the one before: anything else is the same one again."""
    return set(now) < set(before)
