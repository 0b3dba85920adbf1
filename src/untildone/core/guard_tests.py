"""What became of the tests: gone, moved, renamed, skipped, emptied, edited, added."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import islice

from untildone.core.dataclass import dataclass
from untildone.core.findings import FileChange, Finding
from untildone.core.guard_languages import Reader, reader_for
from untildone.core.guard_python import collected_tests
from untildone.core.guard_rules import judge_of
from untildone.core.guard_units import EMPTY, LINE, Source, Unit, read_source

_ALIKE = 0.5
"""A test whose lines are half the same under another name was renamed."""
_MOST_COMPARED = 300
_MOST_TOLD = 50
"""Of one kind, in one file: nobody reads more, and hostile files have no end of them."""

_TRIVIAL = re.compile(
    r"^(?:pass|\.\.\.|return(?:\s+(?:None|nil|null|true|True|undefined))?;?|[{}()\[\];,]+|end|None|nil|\{\s*\}"
    r"|assert\s+(?:True|1|not\s+False|1\s*==\s*1|true)(?:,.*)?"
    r"|(?:self\.)?(?:assert\w*|Assert\.\w+|XCTAssert\w*|assert!|assert_eq!)\(\s*(?:true|True|1)(?:\s*,\s*(?:true|True|1))?\s*\)?;?"
    r"|expect\(\s*(?:true|1)\s*\)(?:\.to)?\.(?:toBe|toEqual|be|eq|toBeTruthy)\w*\(?(?:true|1)?\)?;?"
    r"|assert\.(?:ok|equal|True)\((?:t,\s*)?(?:true|1)(?:\s*,\s*(?:true|1))?\);?)$"
)  # fmt: skip
_RETURN = re.compile(r"^return(?:\s+(?:None|nil|null|undefined))?;?$")
_BUILD_TAG = re.compile(r"^//\s*(?:go:build|\+build)\s+\S")
_COMMENT = re.compile(r"^\s*(?:#|//|--|/?\*|;)+\s?")


@dataclass(frozen=True, slots=True)
class TestFile:
    """A changed file with the tests it had and has."""

    change: FileChange
    reader: Reader | None
    before: Source = EMPTY
    after: Source = EMPTY
    lost: Counter[str] = field(default_factory=Counter)
    """Names it had more often than it has."""
    gained: Counter[str] = field(default_factory=Counter)
    """Names it has more often than it had."""


def inspect_tests(changes: Sequence[FileChange]) -> list[Finding]:
    """What was done to tests, over all files at once: a test that moved is not gone."""
    files = [_opened(change) for change in changes]
    gained: Counter[str] = Counter()
    for file in files:
        gained.update(file.gained)
    known = {unit.name for file in files for unit in file.before.units}
    fresh = [unit for file in files for unit in file.after.units if unit.name in file.gained and unit.name not in known]
    found: list[Finding] = []
    for file in files:
        found += _about(file, gained, fresh[:_MOST_COMPARED], known)
    return found


def _opened(change: FileChange) -> TestFile:
    old, new = reader_for(change.old_path or change.path), reader_for(change.path)
    before = read_source(change.before, old) if old else EMPTY
    after = read_source(change.after, new) if new and _still_collected(change) else EMPTY
    had, has = (Counter(unit.name for unit in source.units) for source in (before, after))
    return TestFile(change, new or old, before, after, lost=had - has, gained=has - had)


def _still_collected(change: FileChange) -> bool:
    """Whether a file that was renamed is still one that test runners look at."""
    if not change.old_path:
        return True
    old, new = judge_of(change.old_path), judge_of(change.path)
    return new is not None and (new.by_name or old is None or not old.by_name)


def _about(file: TestFile, gained: Counter[str], fresh: Sequence[Unit], known: set[str]) -> Iterator[Finding]:
    change = file.change
    findings = [
        *_gone(file, gained, fresh),
        *islice(_skipped(file, known), _MOST_TOLD),
        *islice(_emptied(file), _MOST_TOLD),
    ]
    told = {finding.line for finding in findings}
    findings += islice((finding for finding in _idle(file) if finding.line not in told), _MOST_TOLD)
    yield from findings
    if change.status == "deleted" or any(finding.blocking for finding in findings):
        return
    if change.status == "added":
        inline = not file.after.units and _judge(change.path) == "inline tests"
        if not inline:
            yield Finding(kind="test_added", path=change.path, text=_named(file.after.units))
    elif _differs(file):
        moved = f"moved from {change.old_path}" if change.old_path else ""
        yield Finding(kind="test_edited", path=change.path, line=_first_difference(file), text=moved)


def _judge(path: str) -> str:
    judged = judge_of(path)
    return judged.judge if judged else ""


def _named(units: Sequence[Unit]) -> str:
    names = ", ".join(unit.name for unit in units[:5])
    return f"{names} and {len(units) - 5} more" if len(units) > 5 else names  # noqa: PLR2004 - as many as fit a line


def _differs(file: TestFile) -> bool:
    """Whether what was changed has to do with tests: code that tests lie among is not guarded itself."""
    if _judge(file.change.path) != "inline tests":
        return True
    return [(unit.name, unit.body) for unit in file.before.units] != [(u.name, u.body) for u in file.after.units]


def _first_difference(file: TestFile) -> int:
    for number, (old, new) in enumerate(zip(file.before.raw, file.after.raw, strict=False), 1):
        if old != new:
            return number
    return 0


# --- gone ------------------------------------------------------------------------------------------


def _gone(file: TestFile, gained: Counter[str], fresh: Sequence[Unit]) -> Iterator[Finding]:
    """Tests that are nowhere any more. A file that went with all of its tests is one finding."""
    lost, missing = file.lost.copy(), list[Unit]()
    for unit in reversed(file.before.units):
        if lost[unit.name] > 0:
            lost[unit.name] -= 1
            if gained[unit.name] > 0:
                gained[unit.name] -= 1
            elif len(missing) >= _MOST_COMPARED or not (file.reader and _is_renamed(unit, fresh, file.reader)):
                missing.append(unit)
    whole = file.change.status == "deleted" or not _still_collected(file.change)
    if whole and (missing or (not file.before.units and _is_test_by_name(file.change))):
        yield Finding(
            kind="test_deleted",
            path=file.change.old_path or file.change.path,
            text=_where_to(file) or _named(file.before.units),
            blocking=True,
        )
    elif whole:
        said = "its tests are in other files now" if file.before.units else "it held no tests of its own"
        yield Finding(kind="test_deleted", path=file.change.path, text=said)
    else:
        yield from (_removed(file, unit) for unit in missing[: -_MOST_TOLD - 1 : -1])


def _is_test_by_name(change: FileChange) -> bool:
    judged = judge_of(change.old_path or change.path)
    return judged is not None and judged.judge == "test" and judged.by_name


def _where_to(file: TestFile) -> str:
    return f"renamed to {file.change.path}, which is no test file" if file.change.old_path else ""


def _removed(file: TestFile, unit: Unit) -> Finding:
    hidden = _commented(file, unit)
    text = f"{unit.name} is commented out" if hidden else file.before.raw[unit.line - 1].strip()
    return Finding(kind="test_removed", path=file.change.path, line=hidden or unit.line, text=text, blocking=True)


def _commented(file: TestFile, unit: Unit) -> int:
    """The line of the new file on which a test is commented out; 0: it is not there at all."""
    wanted = file.before.raw[unit.line - 1].strip()
    for number, (raw, code) in enumerate(zip(file.after.raw, file.after.code, strict=False), 1):
        if unit.name in raw and raw.strip() != code.strip() and wanted == _COMMENT.sub("", raw, count=1).strip():
            return number
    return 0


def _is_renamed(unit: Unit, fresh: Sequence[Unit], reader: Reader) -> bool:
    mine = set(unit.body)
    for other in fresh:
        theirs = set(other.body)
        both = mine | theirs
        alike = len(mine & theirs) / len(both) if both else 1.0
        if alike >= _ALIKE and not (_asserts(unit.body, reader) and not _asserts(other.body, reader)):
            return True
    return False


# --- skipped ---------------------------------------------------------------------------------------


def _skipped(file: TestFile, known: set[str]) -> Iterator[Finding]:
    """Markers that are new. One on a test that is new itself proves no less than before: it is told, not blocked."""
    if file.reader is None:
        return
    had = Counter(line.strip() for line in file.before.code if _is_marker(line, file.reader))
    had += Counter(line.strip() for line in file.before.raw if _BUILD_TAG.match(line))
    for index, (raw, code) in enumerate(zip(file.after.raw, file.after.code, strict=False)):
        tag = bool(_BUILD_TAG.match(raw)) and file.reader.language.name == "Go"
        if not (tag or _is_marker(code, file.reader)):
            continue
        text = (raw if tag else code).strip()
        if had[text] > 0:
            had[text] -= 1
            continue
        concerned = _concerned(file.after, index)
        old = any(unit.name in known for unit in concerned) or (not concerned and bool(file.before.units))
        focus = bool(file.reader.focus.search(code))
        yield Finding(kind="skip_added", path=file.change.path, line=index + 1, text=raw.strip(), blocking=old or focus)


def _is_marker(line: str, reader: Reader) -> bool:
    return bool(line) and bool(reader.skips.search(line) or reader.focus.search(line))


def _concerned(source: Source, index: int) -> list[Unit]:
    """The tests a marker speaks of: the one around it, else those in the block below it."""
    around = [unit for unit in source.units if unit.first <= index + 1 <= unit.last]
    if around:
        return around
    line = source.code[index]
    depth = len(line) - len(line.lstrip())
    below = [unit for unit in source.units if unit.first > index + 1]
    if not below:
        return []
    end = next(
        (
            number
            for number, other in enumerate(source.code[below[0].line :], below[0].line)
            if other and len(other) - len(other.lstrip()) <= depth
        ),
        len(source.code),
    )
    return [unit for unit in below if unit.line <= end] or list(source.units)


# --- emptied ---------------------------------------------------------------------------------------


def _emptied(file: TestFile) -> Iterator[Finding]:
    """Tests that still have their names and look at nothing any more."""
    reader = file.reader
    if reader is None:
        return
    olds: dict[str, list[Unit]] = {}
    for unit in file.before.units:
        olds.setdefault(unit.name, []).append(unit)
    for unit in file.after.units:
        if not (same := olds.get(unit.name)):
            continue
        old = same.pop(0)
        if unit.body == old.body or not _asserts(old.body, reader):
            continue
        if why := _why_empty(old, unit, reader):
            line = file.after.raw[unit.line - 1].strip()[:LINE]
            yield Finding(
                kind="test_removed", path=file.change.path, line=unit.line, text=f"{line}: {why}", blocking=True
            )


def _why_empty(old: Unit, new: Unit, reader: Reader) -> str:
    body = _significant(new.body)
    if not body:
        return "nothing is left in it"
    if not _asserts(new.body, reader) and set(body) <= set(old.body):
        return "its assertions are gone"
    first = next((line for line in new.body if line.strip("{}()[];,")), "")
    if _RETURN.match(first) and not any(map(_RETURN.match, old.body[:1])):
        return "it returns before it looks at anything"
    return ""


def _asserts(body: Sequence[str], reader: Reader) -> bool:
    return any(reader.asserts.search(line) for line in _significant(body))


def _significant(body: Sequence[str]) -> list[str]:
    return [line for line in body if not _TRIVIAL.match(line)]


def _idle(file: TestFile) -> Iterator[Finding]:
    """Python tests that are still there by name, and are not collected any more or cannot fail any more."""
    if file.reader is None or file.reader.language.name != "Python" or file.change.before is None:
        return
    before, after = collected_tests(file.change.before), collected_tests(file.change.after)
    if before is None or after is None:
        return
    for unit in file.after.units:
        if unit.name not in before:
            continue
        gone = unit.name not in after
        if gone or (before[unit.name] and not after[unit.name]):
            why = "it is there, and is not run any more" if gone else "nothing in it can fail any more"
            text = f"{file.after.raw[unit.line - 1].strip()[:LINE]}: {why}"
            yield Finding(kind="test_removed", path=file.change.path, line=unit.line, text=text, blocking=True)
