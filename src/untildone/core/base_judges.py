"""The base judges: the new code with everything that judges it as it was when the run began.

Who can change both the work and what judges it can make any check pass. So the checks run on the commit as it is, and
where a file that judges differs from the base, on the same code with the base's judges as well.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Literal

from untildone.core.contract import Contract
from untildone.core.dataclass import dataclass
from untildone.core.failing_tests import failing_tests
from untildone.core.findings import FileChange, Finding, FindingKind
from untildone.core.findings import waived as is_waived
from untildone.core.judges import is_product, is_source, is_switch, judge_of, takes_a_place
from untildone.core.judging_parts import with_judging_part
from untildone.core.outcome import CheckResult
from untildone.core.printable import one_line

MOST_TOLD = 200
_NAMED = 20
_FEW = 5
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
        if change.status == "modified" and _says_the_same(change):
            continue
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
        and is_source(change.path)
        and not takes_a_place(change.path, contract)
    )


_COMMENT = re.compile(r"#[^\n]*")


def _says_the_same(change: FileChange) -> bool:
    """Whether only the layout of a test in Python was changed: not in its code, and not in its comments."""
    if not change.path.endswith(".py") or not change.before or not change.after:
        return False
    if _COMMENT.findall(change.before) != _COMMENT.findall(change.after):
        return False
    try:
        was, now = (ast.dump(ast.parse(text)) for text in (change.before, change.after))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return was == now


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


# --- whether the work was needed --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutTheWork:
    """What to look at to know whether the work made a check pass: the commit without it."""

    base: BaseJudges = BaseJudges()
    """Takes the work out again. Empty: the goal was not worked on at all."""
    others: tuple[str, ...] = ()
    """What else was changed, and could make a check pass by itself. Empty: there is nothing to look at."""


_ASKS_FOR_TESTS = re.compile(r"\bcover|\b(?:add|write|more|new|missing)\b[^.;\n]{0,30}\btests?\b", re.IGNORECASE)


def without_the_work(
    changed: Sequence[FileChange], base: BaseJudges, contract: Contract, goal: str, waived: Sequence[str] = ()
) -> WithoutTheWork:
    """Part what was changed into the work and the rest.

    Product code is the work, and so is what the goal names. What a check names is what it looks at, unless it is a
    switch.
    """
    looked_at = "\n".join(check.command for check in contract.checks)
    work: list[FileChange] = []
    others: list[str] = []
    handled = {*base.restored, *base.removed}
    for change in changed:
        judged = judge_of(change.path)
        if change.path in handled:
            continue
        is_looked_at = _is_named(change.path, looked_at) and not is_switch(change.path)
        if is_waived(change.path, waived) or _is_named(change.path, goal) or is_looked_at:
            work.append(change)
        elif judged is not None and judged.judge == "test":
            others += [change.path] if change.status == "added" and not _ASKS_FOR_TESTS.search(goal) else []
        elif is_product(change.path) and not takes_a_place(change.path, contract):
            work.append(change)
        else:
            others.append(change.path)
    if not work:
        return WithoutTheWork(others=tuple(path for path in others if is_switch(path)))
    return WithoutTheWork(
        base=BaseJudges(
            restored=tuple(change.path for change in work if change.status != "added"),
            removed=tuple(change.path for change in work if change.status == "added"),
        ),
        others=tuple(sorted(others)),
    )


def _is_named(path: str, text: str) -> bool:
    name = re.escape(path.rpartition("/")[2])
    return re.search(rf"(?<![\w.-]){name}(?![\w-])", text) is not None


def not_needed(checks: Sequence[str], others: Sequence[str]) -> list[str]:
    """What to say of checks that pass without the work."""
    more = f" and {len(others) - _FEW} more" if len(others) > _FEW else ""
    made = f"{', '.join(one_line(path, _SAID) for path in others[:_FEW])}{more} made it pass"
    return [f"{one_line(name, _SAID)} passes as well without the changes to the code: {made}" for name in checks]


# --- CI: no check here runs it -----------------------------------------------------------------------------------

_KEY = re.compile(r"[\"']?([\w-]+)[\"']?\s*:(?:\s|$)")
_WORDS = re.compile(r"[\w./-]+")
_HARMLESS = frozenset({
    "name", "runs-on", "image", "uses", "rev", "timeout-minutes", "python", "python-version", "node-version",
    "go-version", "java-version", "ruby-version", "cache", "fail-fast", "max-parallel", "on",
})  # fmt: skip
_SWITCHED_OFF = re.compile(
    r"continue-on-error|allow_failure|fail_ci_if_error|\|\|\s*(?:true|:|exit 0)|\bset \+e|^exit 0|\bif\s*:|\bunless\b"
    r"|(?:paths|branches)-ignore|\b(?:when|skip|only|except|exclude)\s*:|--no-verify"
)


def ci_changes(changes: Sequence[FileChange], waived: Sequence[str]) -> list[str]:
    """CI that does less than it did: no check here runs it, so only a human or a reviewer can say."""
    told = []
    for change in changes:
        judged = judge_of(change.old_path or change.path)
        is_ci = judged is not None and judged.judge == "ci" and change.status != "added"
        if is_ci and not is_waived(change.path, waived) and not _keeps_what_it_did(change.before, change.after):
            path = one_line(change.old_path or change.path, _SAID)
            told.append(f"{path}: CI was changed, and no check here runs it")
    return told


def _keeps_what_it_did(before: str | None, after: str | None) -> bool:
    """Whether all commands, triggers and conditions are as they were, and nothing was switched off."""
    if before is None or after is None:
        return False
    was, now = (Counter(_steps(text)) for text in (before, after))
    gone, new = was - now, now - was
    return not any(_SWITCHED_OFF.search(line) for line in new) and all(_goes_on(line, new) for line in gone)


def _steps(text: str) -> list[str]:
    lines = (line.strip().removeprefix("- ").strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _goes_on(line: str, new: Iterable[str]) -> bool:
    """Whether a line that is gone says nothing about what is done, or does so in a new line that says it and more."""
    key = _KEY.match(line)
    if key is None or key[1] not in _HARMLESS:
        return False
    if key[1] not in {"on", "uses"}:
        return True
    words = set(_WORDS.findall(line.partition("@")[0]))
    same = (other for other in new if other.endswith(":") or other.partition(":")[0] == line.partition(":")[0])
    return words <= {word for other in same for word in _WORDS.findall(other)}


# --- what no look can see ----------------------------------------------------------------------------------------

SUSPECT_FILES = (
    "pytest|PYTEST|unittest|JEST_WORKER|VITEST|NODE_TEST|NODE_ENV|node:test|_exit|settrace|reallyExit|__eq__|stack"
    "|frame|assert|uncaught|exitCode"
    "|\\.(out|expected|approved|golden|snap)"
)
"""Words of which one is in every suspect line, for a quick look at what changed (a POSIX expression)."""
_RUNNER = r"(?:_?pytest|unittest|jest|vitest|mocha)\b"
_PLACES = r"(?:sys\.modules|sys\.argv|process\.argv|find_spec)\b"
_ASKS = (
    rf"{_PLACES}[^\n]{{0,120}}\b{_RUNNER}|\b{_RUNNER}[^\n]{{0,120}}{_PLACES}"
    rf"|\b{_RUNNER}[\"'] (?:not )?in [^\n]{{0,80}}env"
    r"|PYTEST_CURRENT_TEST|PYTEST_VERSION|JEST_WORKER_ID|NODE_TEST_CONTEXT|\.VITEST\b|[\"']VITEST\b"
    r"|NODE_ENV\W{1,12}test"
    r"|\binspect\.stack\b|\b_getframe\b|\bcurrentframe\b|\bextract_stack\b|\bsys\.settrace\("
    r"|[\w})*]\.(?:out|expected|approved|golden)[\"'](?=[\s\S]{0,300}\b(?:cat|open|read\w{0,20})\b)"
    r"|\bassert(?:\.\w{1,80}){1,8}\s{0,80}=[^=>]|\bdef pytest_\w|\bpytest\.hookimpl"
    r"|def __eq__\([^)]{0,500}\)[^:\n]{0,200}:\s{0,500}(?:\"\"\"[^\"]{0,2000}\"\"\"\s{0,500})?"
    r"return (?:True|isinstance\([^()\n]{0,200}\))[ \t]*$"
)
_ENDS = (
    r"\bos\._exit\(|\bprocess\.reallyExit|\bexitCode\s{0,80}=\s{0,80}0\b"
    r"|uncaughtException(?![\s\S]{0,300}\bexit\([1-9])"
)
"""Where a check counts tests, those that did not run are missing."""
_IMPORTS = re.compile(r"^[ \t]*(?:import|from)[ \t][^\n]{0,200}\b(?:_?pytest|unittest)\b[^\n]{0,200}", re.MULTILINE)
_ANY = re.compile(
    r"\b(?:equals? to|match(?:es)?|compares equal to) any(?:thing)?\b|\bequal to everything\b", re.IGNORECASE
)


def suspects(
    added: Sequence[tuple[str, int, str]], judges: Callable[[str], bool], *, goal: str = "", counted: bool = False
) -> list[str]:
    """Product code that asks whether it is being tested, changes the test runner, or ends its own process.

    `added`: pieces of text that are new, as (file, number of the first line, text). `counted`: all checks count tests.
    """
    pieces = (piece for piece in added if is_source(piece[0]) and not judges(piece[0]))
    told = (
        one_line(f"{path}:{line}: this code behaves differently in a test: {said}", _SAID)
        for path, number, text in pieces
        for line, said in _suspect_lines(number, text, _suspicions(text, counted=counted))
        if not (said.startswith("def __eq__") and _ANY.search(goal))
    )
    return list(islice(told, _NAMED))


def _suspicions(text: str, *, counted: bool) -> re.Pattern[str]:
    found = [_ASKS] if counted else [_ASKS, _ENDS]
    imported = {name for line in _IMPORTS.findall(text) for name in re.findall(r"\w+", line)}
    if imported:
        names = "|".join(sorted(imported)[:_NAMED])
        found.append(rf"^[ \t]*(?:{names})(?:\.\w{{1,80}}){{1,8}}\s{{0,80}}=[^=]|\bsetattr\([ \t]*(?:{names})\b")
    return re.compile("|".join(found), re.MULTILINE)


def _suspect_lines(number: int, text: str, suspect: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Number and beginning of each line in which something suspect begins; `number`: of the first line."""
    end = 0
    while found := suspect.search(text, end):
        start = text.rfind("\n", 0, found.start()) + 1
        number += text.count("\n", end, start)
        end = text.find("\n", found.start()) + 1 or len(text)
        yield number, text[start : min(end, start + _LINE)].strip()
        number += 1


_QUIETING: tuple[tuple[str, str], ...] = (
    (r"\b(?:ruff|flake8|pycodestyle)\b", r"#\s*(?:ruff:|flake8:)?\s*noqa\b"),
    (r"\b(?:mypy|pyright|ty)\b", r"#\s*(?:type:\s*ignore|mypy:|pyright:)"),
    (r"\bpylint\b", r"#\s*pylint:\s*(?:disable|skip-file)"),
    (r"\beslint\b|\bnpm\b.*\blint\b", r"eslint-disable"),
    (r"\btsc\b", r"@ts-(?:ignore|nocheck|expect-error)"),
    (r"\bgolangci-lint\b", r"//\s*nolint"),
    (r"\bclippy\b", r"#!?\[(?:allow|expect)\("),
    (r"\brubocop\b", r"#\s*rubocop:\s*disable"),
)
"""Linters in a check, and the comments that let them find less."""


def quieted_by(checks: Sequence[str]) -> re.Pattern[str] | None:
    """The comments that let these checks find less."""
    used = [comment for linter, comment in _QUIETING if any(re.search(linter, text) for text in checks)]
    return re.compile("|".join(used)) if used else None


def quieted(changes: Sequence[FileChange], judges: Callable[[str], bool], comments: re.Pattern[str]) -> list[str]:
    """New comments in product code that tell a linter which is a check to say nothing."""
    told = []
    for change in changes:
        texts = ("", "") if judges(change.path) else (change.before or "", change.after or "")
        was, now = (Counter(said for _, said in _suspect_lines(1, text, comments)) for text in texts)
        if now.total() > was.total():
            told.append(f"{change.path}: this tells a check to say nothing: {next(iter(now - was))}")
    return [one_line(said, _SAID) for said in told[:_NAMED]]


def lost_examples(changes: Sequence[FileChange]) -> list[str]:
    """Examples that doctest ran and that are not there any more, or show something else."""
    told = []
    for change in changes:
        was, now = (Counter(_examples(text or "")) for text in (change.before, change.after))
        told += [
            f"{change.path}: an example is gone or was changed: {lost.partition(chr(10))[0]}" for lost in was - now
        ]
    return [one_line(said, _SAID) for said in told[:_NAMED]]


def _examples(text: str) -> list[str]:
    """Each line after `>>>` together with what it has to print."""
    found: list[str] = []
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith(">>>"):
            found.append(line)
            inside = True
        elif not line or line.startswith(('"""', "'''")):
            inside = False
        elif inside:
            found[-1] += f"\n{line}"
    return found


def is_smaller(now: Sequence[str], before: Sequence[str]) -> bool:
    """Whether a dispute is about less than the one before: anything else is the same one again."""
    return set(now) < set(before)
