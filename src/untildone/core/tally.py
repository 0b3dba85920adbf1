"""How many tests ran, as the common test runners print it: fewer than at the start is a proof of less."""

import re
from collections.abc import Callable, Iterator

from untildone.core.dataclass import dataclass

_LAST = 400_000
"""Characters that are looked at, from the end: summaries are printed last."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Tests of one command."""

    run: int
    """Tests (or, where a runner counts nothing smaller, packages) that gave a verdict which counts."""
    skipped: int | None
    """None: not all of the tests were come to, so that those that would be skipped are not known."""

    def __add__(self, other: "Tally") -> "Tally":
        known = self.skipped is not None and other.skipped is not None
        return Tally(self.run + other.run, (self.skipped or 0) + (other.skipped or 0) if known else None)


def tally(output: str) -> Tally | None:
    """What the runners in this output counted, all of them together; None: none of them is known."""
    text = output[-_LAST:]
    found = [counted for read in _RUNNERS for counted in read(text)]
    return sum(found[1:], found[0]) if found else None


_Read = Callable[[str], Iterator[Tally]]

_COUNTS = re.compile(r"(\d+) ([a-z]+)")
_PYTEST = re.compile(r"^=*[ ]?((?:\d+ [a-z ]+, ){0,12}\d+ [a-z ]+|no tests ran) in \d+(?:\.\d+)?s\b.*$", re.MULTILINE)
_STOPPED = re.compile(r"^!+ (?:stopping after|Interrupted|_pytest\.outcomes\.Exit|KeyboardInterrupt)", re.MULTILINE)


def _pytest(text: str) -> Iterator[Tally]:
    early = _STOPPED.search(text) is not None
    for found in _PYTEST.finditer(text):
        counts = {word: int(number) for number, word in _COUNTS.findall(found[1])}
        whole = not early and not counts.keys() & {"error", "errors"}
        ran = sum(counts.get(word, 0) for word in ("passed", "failed", "xpassed"))
        yield Tally(ran, counts.get("skipped", 0) + counts.get("xfailed", 0) if whole else None)


_UNITTEST = re.compile(r"^Ran (\d+) tests? in .*$\s+^(OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", re.MULTILINE)


def _unittest(text: str) -> Iterator[Tally]:
    for total, _, said in _UNITTEST.findall(text):
        counts = dict(re.findall(r"([a-z ]+)=(\d+)", said))
        counts = {name.strip(): int(number) for name, number in counts.items()}
        skipped = counts.get("skipped", 0) + counts.get("expected failures", 0)
        # An error may be a whole module that cannot be imported.
        yield Tally(max(int(total) - skipped, 0), None if "errors" in counts else skipped)


_JEST = re.compile(r"^Tests:\s+(.*\b\d+ total)\s*$", re.MULTILINE)
_VITEST = re.compile(r"^[ \t]*Tests\s+(\d+ .*?)\s+\(\d+\)\s*$", re.MULTILINE)
_LOST_SUITES = re.compile(r"Test suite failed to run|Failed Suites")


def _jest(text: str) -> Iterator[Tally]:
    whole = _LOST_SUITES.search(text) is None
    for pattern in (_JEST, _VITEST):
        for said in pattern.findall(text):
            counts = {word: int(number) for number, word in _COUNTS.findall(said)}
            skipped = sum(counts.get(word, 0) for word in ("skipped", "todo", "pending"))
            yield Tally(counts.get("passed", 0) + counts.get("failed", 0), skipped if whole else None)


_GO_TEST = re.compile(r"^[ \t]*--- (PASS|FAIL|SKIP): ", re.MULTILINE)
_GO_VERBOSE = re.compile(r"^=== RUN   ", re.MULTILINE)
_GO_PACKAGE = re.compile(r"^(?:ok  |FAIL)\t\S+\t?(?!.*\[no test).*$", re.MULTILINE)


def _go(text: str) -> Iterator[Tally]:
    packages = len(_GO_PACKAGE.findall(text))
    if packages and _GO_VERBOSE.search(text):
        verdicts = _GO_TEST.findall(text)
        skipped = verdicts.count("SKIP")
        yield Tally(len(verdicts) - skipped, skipped if "FAIL" not in verdicts else None)
    elif packages:
        yield Tally(packages, None)


_CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)
_NEXTEST = re.compile(
    r"^[ \t]*Summary \[[^\]]*\]\s+(?:\d+/)?(\d+) tests? run: .*?(?:, (\d+) skipped)?\s*$", re.MULTILINE
)


def _rust(text: str) -> Iterator[Tally]:
    for passed, failed, ignored in _CARGO.findall(text):
        # What comes after the first program with a failure is not run.
        yield Tally(int(passed) + int(failed), int(ignored) if failed == "0" else None)
    for run, skipped in _NEXTEST.findall(text):
        yield Tally(int(run), int(skipped or 0))


_RSPEC = re.compile(r"^(\d+) examples?, \d+ failures?(?:, (\d+) pending)?(?:, \d+ errors?.*)?$", re.MULTILINE)
_MINITEST = re.compile(
    r"^(\d+) (?:runs|tests), \d+ assertions, \d+ failures, \d+ errors, (?:\d+ pendings, )?(\d+) (?:skips|omissions)",
    re.MULTILINE,
)
_EXUNIT = re.compile(
    r"^(?:\d+ doctests?, )?(\d+) tests?, \d+ failures?(?:, \d+ excluded)?(?:, (\d+) skipped)?$", re.MULTILINE
)
_MAVEN = re.compile(r"^(?:\[\w+\]\s+)?Tests run: (\d+), Failures: \d+, Errors: \d+, Skipped: (\d+)\s*$", re.MULTILINE)
_PHPUNIT = re.compile(
    r"^Tests: (\d+), Assertions: \d+(?:, (?!Skipped)[A-Z]\w+: \d+)*(?:, Skipped: (\d+))?.*$", re.MULTILINE
)
_DOTNET = re.compile(r"- Failed:\s+\d+, Passed:\s+\d+, Skipped:\s+(?P<skipped>\d+), Total:\s+(?P<total>\d+)")
_TAP = re.compile(
    r"^(?:#|\u2139) tests (\d+)$(?:\s+^(?:#|\u2139) (?!skipped)\w+ \d+$){0,9}\s+^(?:#|\u2139) skipped (\d+)$",
    re.MULTILINE,
)


def _counted_with_skipped(text: str) -> Iterator[Tally]:
    """Runners whose total has those that were skipped in it."""
    for pattern in (_RSPEC, _MINITEST, _EXUNIT, _MAVEN, _PHPUNIT, _TAP):
        for total, skipped in pattern.findall(text):
            yield Tally(max(int(total) - int(skipped or 0), 0), int(skipped or 0))
    for found in _DOTNET.finditer(text):
        yield Tally(int(found["total"]) - int(found["skipped"]), int(found["skipped"]))


_MOCHA = re.compile(r"^[ \t]+(\d+) (passing|failing|pending)\b", re.MULTILINE)
_PHPUNIT_OK = re.compile(r"^OK \((\d+) tests?, \d+ assertions?\)$", re.MULTILINE)
_CTEST = re.compile(r"^\d+% tests passed, \d+ tests? failed out of (\d+)", re.MULTILINE)


def _counted(text: str) -> Iterator[Tally]:
    if mocha := _MOCHA.findall(text):
        pending = sum(int(number) for number, word in mocha if word == "pending")
        yield Tally(sum(int(number) for number, word in mocha if word != "pending"), pending)
    for total in (*_PHPUNIT_OK.findall(text), *_CTEST.findall(text)):
        yield Tally(int(total), 0)


_RUNNERS: tuple[_Read, ...] = (_pytest, _unittest, _jest, _go, _rust, _counted_with_skipped, _counted)
