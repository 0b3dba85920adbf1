"""Which of many secrets a text holds, in time that grows with the text and not with their number.

Agents write both the secrets of a folder and what is looked through: whatever they are, a place of a text costs no
more than a bounded number of looks.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from untildone.uplink.reading import Span

FEW = 300
"""Up to so many, each is looked for by itself: that is faster, and simpler."""
GRAM = 6
"""Letters that are looked up at once: what is looked for is at least as long."""
_STRIDE = 3
_LONG = GRAM + _STRIDE - 1
_MOST_SHORT = 30
_HEAD = 64
_MOST_LENGTHS = 16
_MOST_ALIKE = 8
"""Of those with the same GRAM, so many lengths of at most so many letters are looked up; longer ones that begin alike
are tried one by one, if they are no more than that."""
_BLANK = re.compile(r"\s|\Z")

Text = TypeVar("Text", str, bytes)


class Hints(Generic[Text]):
    """Whether a text may hold one of many others: never no when it does."""

    def __init__(self, wanted: Iterable[Text]) -> None:
        self._each: tuple[Text, ...] = tuple(dict.fromkeys(wanted))
        self._grams: frozenset[Text] = frozenset()
        self._always = False
        if len(self._each) > FEW:
            long = [one for one in self._each if len(one) >= _LONG]
            self._each = tuple(one for one in self._each if len(one) < _LONG)
            self._always = len(self._each) > _MOST_SHORT
            # Of the letters from any place on, one of these stands at a place that is looked at.
            self._grams = frozenset(one[at : at + GRAM] for one in long for at in range(_STRIDE))

    def may_be_in(self, text: Text) -> bool:
        """Whether it is worth a closer look."""
        if self._always or any(one in text for one in self._each):
            return True
        if not self._grams:
            return False
        return not self._grams.isdisjoint([text[at : at + GRAM] for at in range(0, len(text), _STRIDE)])


class Finding:
    """Finds many texts in another one, all at once."""

    def __init__(self, said: Mapping[str, str]) -> None:
        """`said`: what is to stand there instead, by what is looked for; that is GRAM letters long, or longer."""
        self._said = said
        self._long: dict[str, list[str]] = {}
        """Those that go on, by the longest beginning that is looked up, the longest first."""
        lengths: dict[str, set[int]] = {}
        for wanted in said:
            lengths.setdefault(wanted[:GRAM], set()).add(min(len(wanted), _HEAD))
        self._lengths = {gram: tuple(sorted(found)[:_MOST_LENGTHS][::-1]) for gram, found in lengths.items()}
        for wanted in sorted(said, key=len, reverse=True):
            longest = self._lengths[wanted[:GRAM]][0]
            if len(wanted) > longest:
                self._long.setdefault(wanted[:longest], []).append(wanted)

    def spans(self, text: str) -> Iterator[Span]:
        """Where they are; of those that begin at one place, the longest."""
        lengths = self._lengths
        past = 0
        for at in range(len(text) - GRAM + 1):
            begins = text[at : at + GRAM]
            if begins in lengths and at >= past and (found := self._at(text, at, lengths[begins])):
                if isinstance(found, str):
                    yield at, at + len(found), self._said[found]
                else:
                    # Too many to try each: better too much is hidden than too little.
                    past = _blank(text, at + GRAM)
                    yield at, past, self._said[found[0]]

    def _at(self, text: str, at: int, lengths: tuple[int, ...]) -> str | list[str]:
        """What stands there, or all that may."""
        alike = self._long.get(text[at : at + lengths[0]], [])
        if len(alike) > _MOST_ALIKE:
            return alike
        for one in alike:
            if text.startswith(one, at):
                return one
        for length in lengths:
            if (piece := text[at : at + length]) in self._said:
                return piece
        return ""


def _blank(text: str, at: int) -> int:
    found = _BLANK.search(text, at)
    return found.start() if found else len(text)
