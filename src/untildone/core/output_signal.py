"""What a failing check says, apart from what differs between two runs of it on the same commit.

What differs there is noise: times, ids, made-up names, temporary paths. It is kept as hashes of lines, never as text.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from untildone.core.dataclass import dataclass
from untildone.core.failing_tests import failing_tests
from untildone.core.outcome import CheckResult

_KEPT = 256
_PLACES_KEPT = 1024
_LINES = 50
_WIDTH = 1000
_ANYTHING = "*"
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_VALUE = re.compile(r"""(['"`])(?![^'"`\s]*[/\\.][^'"`\s]*\1)[^\n]*?\1""")
"""A quoted value, which is often what the agent tried last; a quoted path is a place, and stays."""
_POSITION = re.compile(r"(\.\w+)(?::\d+)+|\blines? \d+|\(\d+, ?\d+\)")
"""A position in a source file: it moves with each edit."""
_FIGURE = re.compile(r"[^\W_]*\d[^\W_]*(?:[.,:]\d[^\W_]*)*")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,12})?")

_KEY = re.compile(r"(?:[0-9]{1,4}(?:\.[0-9]{1,4})*)?/[0-9]{1,4}:[0-9a-f]{12}")

_Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an output, as far as it stays the same."""

    shape: str
    """A hash of its words, without its numbers."""
    numbers: tuple[float, ...] = ()
    doubtful: bool = False
    """Noise was found in it only now: whether it was there before is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a check fails with."""

    check: str
    lines: tuple[Line, ...]
    is_measured: bool = False
    """It ran twice on the commit: a number that is left is no noise."""
    has_new_noise: bool = False
    """Of some lines it is not known whether they were there before."""

    @property
    def shapes(self) -> tuple[str, ...]:
        """Its lines."""
        return tuple(dict.fromkeys(f"{self.check}:{line.shape}" for line in self.lines))

    @property
    def certain(self) -> frozenset[str]:
        """The lines of which it is known whether they were there before."""
        return frozenset(f"{self.check}:{line.shape}" for line in self.lines if not line.doubtful)

    @property
    def whole(self) -> str:
        """All of its lines in one name, whatever their order."""
        return f"{self.check}:{_hash(' '.join(sorted(self.shapes)))}"

    @property
    def numbers(self) -> dict[str, float]:
        """Its numbers by their places."""
        lines = ((f"{self.check}:{line.shape}", line.numbers) for line in self.lines)
        return {f"{shape}:{n}": number for shape, numbers in lines for n, number in enumerate(numbers)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the checks said so far. Bounded, whatever they print."""

    noise: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    wholes: tuple[str, ...] = ()
    last: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """By check: the lines of the newest look at which it failed."""
    extremes: tuple[tuple[str, tuple[float, float]], ...] = ()
    """The smallest and the greatest number so far, by their places."""


NOTHING = Heard()


def learned(known: Heard, checks: Sequence[CheckResult]) -> Heard:
    """The same, and what these checks tell about their noise."""
    return replace(known, noise=_with(known.noise, [key for check in checks for key in check.noise or ()], _KEPT))


def said(check: CheckResult, known: Heard) -> Said:
    """What it fails with: the tests it names, else its last lines without noise."""
    if names := failing_tests(check.output_tail):
        lines = tuple(Line(_hash(name)) for name in sorted(f"{test.file}::{test.name}" for test in names))
        return Said(check=check.name, lines=lines)
    new = frozenset(check.noise or ()).difference(known.noise)
    lines = tuple(signal(check.output_tail, known.noise, new))
    return Said(check=check.name, lines=lines, is_measured=check.noise is not None, has_new_noise=bool(new))


def says_more(known: Heard, now: Said) -> bool:
    """Whether a check got somewhere: to a place where it never was, to less than ever, or to a number never reached."""
    before, lines = dict(known.last).get(now.check), frozenset(now.shapes)
    extremes = dict(known.extremes)
    if now.is_measured and any(
        not low <= number <= high
        for place, number in now.numbers.items()
        for low, high in [extremes.get(place, (number, number))]
    ):
        return True
    if before is None or now.whole in known.wholes:
        return before is None
    # Lines that only become more are a list that grows, unless it ends with another one.
    new, gone = now.certain.difference(known.lines), frozenset(before) - lines
    is_less = not now.has_new_noise and lines < frozenset(before)
    return is_less or bool(new and (gone or now.shapes[-1] in new))


def heard(known: Heard, now: Sequence[Said]) -> Heard:
    """After a look."""
    extremes = dict(known.extremes)
    for place, number in (item for one in now for item in one.numbers.items()):
        low, high = extremes.pop(place, (number, number))
        extremes[place] = (min(low, number), max(high, number))
    return replace(
        known,
        lines=_with(known.lines, [shape for one in now for shape in one.shapes], _PLACES_KEPT),
        wholes=_with(known.wholes, [one.whole for one in now], _KEPT),
        last=tuple((dict(known.last) | {one.check: one.shapes for one in now}).items()),
        extremes=tuple(extremes.items())[-_PLACES_KEPT:],
    )


def _with(known: tuple[str, ...], new: Sequence[str], most: int) -> tuple[str, ...]:
    there = frozenset(known)
    return (*known, *(value for value in dict.fromkeys(new) if value not in there))[-most:]


def compared(first: CheckResult, second: CheckResult) -> CheckResult:
    """The first of two runs of a check on the same commit, with what the second one tells about it."""
    if second.passed:
        return replace(first, flaky=True)
    if not second.ran or second.exit_code is None:
        return first
    return replace(first, noise=noise(first.output_tail, second.output_tail))


def noise(first: str, second: str) -> tuple[str, ...]:
    """What differs between two outputs of the same check on the same commit."""
    one, two = dict.fromkeys(_lines(first)), dict.fromkeys(_lines(second))
    left, found = [line for line in two if line not in one], list[str]()
    for line in (line for line in one if line not in two):
        alike = [other for other in left if len(other) == len(line)]
        twin = max(alike, key=partial(_same, line), default=())
        if not twin or not _same(line, twin):
            found.append(_key((), line))
            continue
        left.remove(twin)
        found.append(_key(tuple(n for n, word in enumerate(line) if word != twin[n]), line))
    return tuple(dict.fromkeys((*found, *(_key((), line) for line in left))))


def signal(output: str, known: Collection[str], new: Collection[str] = ()) -> Iterator[Line]:
    """The last lines without the noise that is known; `new`: noise that was found only now."""
    known = {key for key in (*known, *new) if _KEY.fullmatch(key)}
    places = sorted({_places(key) for key in known}, key=lambda at: (-len(at[0]), at))
    for line in _lines(output):
        key = next((key for at, size in places if size == len(line) and (key := _key(at, line)) in known), "")
        at = _places(key)[0] if key else ()
        if not key or at:
            words = _without(line, at)
            shape, numbers = _figures(" ".join(words))
            yield Line(_hash(shape), numbers, doubtful=key in new)


def _lines(output: str) -> list[_Words]:
    lines = (_VALUE.sub("''", line[:_WIDTH]).split() for line in _COLOUR.sub("", output).splitlines())
    return [tuple(words) for words in lines if words][-_LINES:]


def _same(line: _Words, other: _Words) -> int:
    return sum(word == there for word, there in zip(line, other, strict=True))


def _key(at: tuple[int, ...], line: _Words) -> str:
    """A name for all lines like this one, with any words at those places; without places, for the line itself."""
    shape, _ = _figures(" ".join(_without(line, at)))
    return f"{'.'.join(map(str, at))}/{len(line)}:{_hash(shape)}"


def _places(key: str) -> tuple[tuple[int, ...], int]:
    at, size = key.partition(":")[0].split("/")
    return tuple(int(n) for n in at.split(".") if n), int(size)


def _without(line: _Words, at: tuple[int, ...]) -> _Words:
    return tuple(_ANYTHING if n in at else word for n, word in enumerate(line)) if at else line


def _figures(text: str) -> tuple[str, tuple[float, ...]]:
    """The text with # in the place of each number, and the numbers that are no position, time, version or id."""
    text = _POSITION.sub(r"\1:#", text)
    numbers = tuple(float(word) for word in _FIGURE.findall(text) if _NUMBER.fullmatch(word))
    return _FIGURE.sub("#", text), numbers


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
