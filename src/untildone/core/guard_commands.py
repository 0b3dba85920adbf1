"""Commands that run tests, before and after: what still runs the same, and what was put in its place."""

import re
from collections.abc import Iterable, Iterator, Sequence

from untildone.core.guard_outline import Outline

TEST_TARGET = re.compile(
    r"^(?:.*[-_:])?(?:test|tests|check|checks|lint|coverage|cov|ci|verify|typecheck|type-check)(?:[-_:].*)?$"
)
"""Names that targets and scripts for testing and linting usually have."""
_GROUPS = re.compile(r"^(target|scripts|tasks)\.(.+)$")
_CALLED = re.compile(
    r"(?:\b(?:npm|pnpm|yarn|bun|deno)\s+(?:run(?:-script)?\s+|task\s+)?|\brun-[sp]\s+|\b(?:make|just|task)\s+|\$[({]MAKE[)}]\s+)"
    r"([\w:.-]+)"
)
_FLAG_VALUE = re.compile(
    r"--(cov-fail-under|fail-under|max-warnings|coverage-threshold|min-coverage)[= ](\d+(?:\.\d+)?)"
)
_WEAKENS = re.compile(
    r"(?:^|\s)(?:-k\b|-m\s|--ignore\b|--ignore-glob|--deselect|--no-cov\b|-p(?:\s|\w)|--exit-zero|--passWithNoTests"
    r"|--testPathIgnorePatterns|--testNamePattern|-t\s|--exclude\b|--skip\b|--no-fail|--run-never|--exit-code[= ]0"
    r"|--suppress-\S+|--continue-on-collection-errors|--if-present|--lf\b|--last-failed|--no-run|--collect-only|--co\b"
    r"|--help\b|-h\b|--version\b|-V\b|--fixtures|--markers\b|--setup-(?:plan|only)|--sw\b|--stepwise|--rootdir|-c\b"
    r"|--confcutdir|--noconftest|--override-ini|-o\b|--onlyChanged|--changedSince|--only-changed|--changed\b"
    r"|--listTests|--showConfig|--list\b|--dry-run|--config\b|--findRelatedTests|--run\b|-run\b|-list\b|--shard\b"
    r"|--test-name-pattern|-i\b|--keep-going|--ignore-errors)"
    r"|\||;|(?<!&)&(?!&)|\bexit 0\b|\s#"
)
_NO_TEST = re.compile(r"no test specified")
_TAKES_A_VALUE = re.compile(
    r"^(?:--(?:cov|cov-report|cov-config|durations|tb|maxfail|timeout|color|junit-?xml|reporters?|maxWorkers|jobs"
    r"|workers|numprocesses|dist|log-level|verbosity|outputFile|format|max-warnings|testTimeout)|-n|-j|-W|-r)$"
)


def guarded_names(flat: Outline, named: Iterable[str]) -> set[str]:
    """The keys of targets and scripts that run tests: by their names, by the checks, and by what those call."""
    keys = {key for key in flat if (found := _GROUPS.match(key)) and _runs_tests(found[2], named)}
    waiting = list(keys)
    while waiting:
        key = waiting.pop()
        group = key.partition(".")[0]
        called = {name for value in flat[key] for name in _CALLED.findall(value)}
        # A target that does nothing itself leaves the work to those it needs; else they only make what is tested.
        called |= set(flat[key]) if all(f"{group}.{value}" in flat for value in flat[key]) else set()
        for other in {f"{group}.{name}" for name in called} & flat.keys() - keys:
            keys.add(other)
            waiting.append(other)
    return keys


def _runs_tests(name: str, named: Iterable[str]) -> bool:
    plain = re.sub(r"^(?:pre|post)", "", name)
    return bool(TEST_TARGET.match(plain) or TEST_TARGET.match(name)) or name in named


def redefined(old: Sequence[str], new: Sequence[str]) -> str:
    """How a command is not what it was; "" when all of it is still run, and nothing of it is left out."""
    before, after = " ".join(old), " ".join(new)
    weak = _new_weakness(before, after)
    if not before or _NO_TEST.search(before):
        return next((f"{flag} is new" for flag in weak if flag.startswith("-")), "")
    if not after:
        return f"{before[:100]} is gone"
    if moved := _limits(before, after):
        return moved
    if weak:
        return f"{weak[0]} is new"
    now = list(_steps(new))
    lost = [step for step in _steps(old) if not any(_extends(other, step) for other in now)]
    return f"{' '.join(lost[0])[:100]} is not run as it was" if lost else ""


def options(old: Sequence[str], new: Sequence[str]) -> str:
    """How options of a test runner let it look at less."""
    before, after = " ".join(old), " ".join(new)
    if weak := _new_weakness(before, after):
        return f"{weak[0]} is new"
    if moved := _limits(before, after):
        return moved
    was, now = (_FLAG_VALUE.sub(" ", text).split() for text in (before, after))
    if lost := [word for word in was if word not in now]:
        return f"{' '.join(lost[:5])} is gone"
    if strange := _strange(["", *was], ["", *now]):
        return f"{strange} is new"
    return ""


def _new_weakness(before: str, after: str) -> list[str]:
    known = {found.strip() for found in _WEAKENS.findall(before)}
    return [found.strip() for found in _WEAKENS.findall(after) if found.strip() not in known]


def _limits(before: str, after: str) -> str:
    limits = dict(_FLAG_VALUE.findall(after))
    for flag, value in _FLAG_VALUE.findall(before):
        raised = flag == "max-warnings"
        if flag not in limits or ((float(limits[flag]) > float(value)) == raised and limits[flag] != value):
            return f"--{flag} {value} became {limits.get(flag, 'nothing')}"
    return ""


def _steps(values: Sequence[str]) -> Iterator[list[str]]:
    for value in values:
        for part in value.split("&&"):
            words = _FLAG_VALUE.sub(" ", part).split()
            if words:
                yield words


def _extends(new: Sequence[str], old: Sequence[str]) -> bool:
    """Whether it is the same program with the same words, and at most some harmless flags between them."""
    if new[0] != old[0]:
        return False
    rest = iter(new)
    return all(word in rest for word in old) and not _strange(old, new)


def _strange(old: Sequence[str], new: Sequence[str]) -> str:
    """A word that is new and no flag, nor the value of a new one: it may say that only a part is run."""
    known = list(old)
    flag = ""
    for word in new:
        if word in known:
            known.remove(word)
            flag = ""
        elif word.startswith("-"):
            flag = word
        elif not _TAKES_A_VALUE.match(flag):
            return word
        else:
            flag = ""
    return ""
