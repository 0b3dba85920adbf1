"""Texts as they read without what they are wrapped in, and where every letter of them stood before.

Agents write both what is looked for and what is looked through: all of this takes time in proportion to its length,
whatever it is.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote

Span = tuple[int, int, str]
"""From where to where, and what is to stand there instead."""

_WRAPPED = re.compile(
    r"\\++(?:u([0-9a-fA-F]{4}))?+"
    r"|((?:%(?:25)*+(?:[0-9a-fA-F]{2})?+)++)"
    r"|&(?:amp;)*+(?:(lt|gt|quot|apos|#34|#39|#x27);)?+"
)
_ENTITIES = {"lt": "<", "gt": ">", "quot": '"', "#34": '"', "apos": "'", "#39": "'", "#x27": "'"}
_PERCENT = re.compile(r"%(?:25)++")
_LETTERS = str.maketrans("\n\r\t\b\f", "nrtbf")
_ESCAPE = re.compile(r"\\++(?:u([0-9a-fA-F]{4})|([nrtbf\"/']))?+")
_SHORT = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


class Reading:
    """A text in which some pieces were replaced by what they mean."""

    def __init__(self, text: str, pieces: re.Pattern[str], meaning: Callable[[re.Match[str]], str]) -> None:
        self._began: list[int] = []
        self._ended: list[int] = []
        self._stood: list[tuple[int, int]] = []
        parts: list[str] = []
        at = length = 0
        for piece in pieces.finditer(text):
            means = meaning(piece)
            parts += (text[at : piece.start()], means)
            length += piece.start() - at
            self._began.append(length)
            length += len(means)
            self._ended.append(length)
            self._stood.append(piece.span())
            at = piece.end()
        parts.append(text[at:])
        self.text = "".join(parts)

    def stood(self, start: int, end: int) -> tuple[int, int]:
        """Where something stood that is here from `start` to `end`; of a piece, all of it."""
        at = bisect_left(self._began, start)
        if at < len(self._began) and self._began[at] == start:
            first = self._stood[at][0]
        else:
            first = self._before(at - 1, start)[0]
        return first, self._before(bisect_right(self._began, end - 1) - 1, end - 1)[1]

    def _before(self, at: int, place: int) -> tuple[int, int]:
        """From where to where the letter at a place stood; `at`: the last piece that begins before or there."""
        if at < 0:
            return place, place + 1
        if place < self._ended[at]:
            return self._stood[at]
        where = self._stood[at][1] + place - self._ended[at]
        return where, where + 1


def unwrapped(text: str) -> Reading:
    """A text as it looks however it was escaped: for JSON (again and again), for an address, for a page.

    Backslashes are left out, and what they stand before counts as the letter it is: nothing depends on their number.
    """
    return Reading(text.translate(_LETTERS), _WRAPPED, _letter)


def _letter(piece: re.Match[str]) -> str:
    code, percent, entity = piece.groups()
    if code:
        means = chr(int(code, 16))
    elif percent:
        means = unquote(_PERCENT.sub("%", percent), errors="replace")
    else:
        means = "" if piece[0][0] == "\\" else _ENTITIES.get(entity or "", "&")
    return means.replace("\\", "").translate(_LETTERS)


def unescaped(text: str) -> Reading:
    """What a JSON text inside a text says, however often it was wrapped."""
    return Reading(text, _ESCAPE, _plain)


def _plain(piece: re.Match[str]) -> str:
    code, short = piece.groups()
    if code:
        return chr(int(code, 16))
    return _SHORT.get(short, short) if short else "\\"


def occurrences(text: str, wanted: str) -> Iterator[tuple[int, int]]:
    """Where a text holds another one, which is not empty."""
    at = text.find(wanted)
    while at >= 0:
        yield at, at + len(wanted)
        at = text.find(wanted, at + len(wanted))


def without(text: str, spans: Iterable[Span]) -> str:
    """A text with something else in those places; where several overlap, the first and longest says what."""
    parts: list[str] = []
    ended = 0
    for start, end, said in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= ended:
            parts += (text[ended:start], said)
        ended = max(ended, end)
    return "".join([*parts, text[ended:]]) if parts else text
