"""Which tests failed and why, as the common test runners say it."""

import re
from collections.abc import Iterator

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line


@dataclass(frozen=True, slots=True)
class Failing:
    """A test that failed, as far as the runner says which it is."""

    file: str = ""
    """Its file, or a folder that ends with a slash, relative to somewhere; empty: not said."""
    name: str = ""
    """Empty: everything in the file, which could not even be loaded."""

    def is_in(self, path: str) -> bool:
        """Whether it may lie in this file of the repository."""
        if not self.file:
            return True
        if self.file.endswith("/"):
            folder = path.rpartition("/")[0]
            return not folder or f"/{self.file}".endswith(f"/{folder}/")
        return f"/{path}".endswith(f"/{self.file}") or f"/{self.file}".endswith(f"/{path}")


def failing_tests(output: str) -> frozenset[Failing]:
    """The tests that this output names as failed; none: no runner is known that prints such names."""
    return frozenset(_named(output))


def what_failed(output: str, width: int = 200) -> str:
    """The first test that failed, how many more did, and the first message; without names, the message alone.

    Falls back to the last line of the output; empty if it printed nothing.
    """
    named = list(dict.fromkeys(_named(output)))
    message = _message(output)
    if not named:
        last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
        return one_line(message or last, width)
    more = f" and {len(named) - 1} more" if named[1:] else ""
    test = one_line("::".join(filter(None, (named[0].file, named[0].name))), width // 2)
    return one_line(f"{test}{more}: {message}" if message else f"{test}{more}", width)


_MESSAGES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^E {3,}(\S.*)$",  # pytest
        r"^(?:FAILED|ERROR) \S+ - (.+)$",  # pytest --tb=no
        r"^ *error: (?:\|-\n((?: {4,}\S.*\n| *\n)+)|'(.+)'$)",  # node --test
        r"^ +\S+_test\.go:\d+: (.+)$",
        r"^thread .* panicked at .*\n(.+)$",
        r"^ *((?:[\w.]*(?:Error|Exception)\b|Expected|expect\().*)$",
    )
)


def _message(output: str) -> str:
    """What the first failed test says, as far as its runner is known."""
    found = next(filter(None, (pattern.search(output) for pattern in _MESSAGES)), None)
    return next(filter(None, found.groups()), "") if found else ""


def _named(output: str) -> Iterator[Failing]:
    return (failing for read in (_pytest, _unittest, _jest, _node, _go, _cargo) for failing in read(output))


_PYTEST = re.compile(r"^(?:FAILED|ERROR) ([^\s:]+\.\w+)(?:::(\S+?))?(?:\[.*?)?(?: - .*)?$", re.MULTILINE)


def _pytest(text: str) -> Iterator[Failing]:
    for file, name in _PYTEST.findall(text):
        yield Failing(file.removeprefix("./"), name.rpartition("::")[2])


_UNITTEST = re.compile(r"^(?:FAIL|ERROR): (\S+) \(([\w.]+)\)", re.MULTILINE)
_NOT_IMPORTED = "unittest.loader._FailedTest"


def _unittest(text: str) -> Iterator[Failing]:
    for name, where in _UNITTEST.findall(text):
        if where.startswith(_NOT_IMPORTED):
            yield Failing(name.replace(".", "/") + ".py")
        else:
            parts = where.removesuffix(f".{name}").split(".")
            yield Failing("/".join(parts[:-1]) + ".py" if parts[1:] else "", name)


_JEST_FILE = re.compile(r"^\s*FAIL\s+(?:\|[^|]*\|\s+)?(\S+\.\w+)(?: > (.+?))?(?: \(.*\)| \d.*)?$")
_JEST_TEST = re.compile(r"^\s*\u25cf (.+)$")


def _jest(text: str) -> Iterator[Failing]:
    file = ""
    for line in text.split("\n"):
        if found := _JEST_FILE.match(line[:1000]):
            file = found[1].removeprefix("./")
            if found[2]:
                yield Failing(file, found[2].rpartition(" > ")[2].strip())
        elif file and (found := _JEST_TEST.match(line[:1000])):
            name = found[1].rpartition(" \u203a ")[2].strip()
            yield Failing(file, "" if name == "Test suite failed to run" else name)


_NODE = re.compile(
    r"^ *(?:not ok \d+ - (?!.*# (?:TODO|SKIP)\b)(.+?)(?: # .*)?|\u2716 (.+) \(\d[\d.]*m?s\))$", re.MULTILINE
)


def _node(text: str) -> Iterator[Failing]:
    for tap, spec in _NODE.findall(text):
        yield Failing("", tap or spec)


_GO_TEST = re.compile(r"^[ \t]*--- FAIL: (\S+)", re.MULTILINE)
_GO_BUILD = re.compile(r"^FAIL\t(\S+) \[(?:build|setup) failed\]", re.MULTILINE)


def _go(text: str) -> Iterator[Failing]:
    for name in _GO_TEST.findall(text):
        yield Failing("", name.partition("/")[0])
    for package in _GO_BUILD.findall(text):
        yield Failing(f"{package}/")


_CARGO_TEST = re.compile(r"^test (\S+)(?: - .*)? \.\.\. FAILED$", re.MULTILINE)
_CARGO_BUILD = re.compile(r"^error(?:\[\w+\])?: .*\n\s*--> ([^:\n]+):\d+:\d+$", re.MULTILINE)


def _cargo(text: str) -> Iterator[Failing]:
    for name in _CARGO_TEST.findall(text):
        yield Failing("", name.rpartition("::")[2])
    if "could not compile" in text:
        for file in _CARGO_BUILD.findall(text):
            yield Failing(file)
