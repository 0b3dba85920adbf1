"""Names that somebody may have meant: what looks like one of ours, and is none."""

import difflib
from collections.abc import Collection, Iterable

_ALIKE = 0.8
_SHORT = 9
"""Below this many characters a name one slip away is as likely somebody else's."""
_LONG = 14
"""From this many characters on, two slips are no chance."""
_SHORT_WORD = 3
"""In a word of fewer characters, one slip makes another word."""


def nearest(name: str, known: Collection[str]) -> str | None:
    """The name that was probably meant by one that is surely wrong."""
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=_ALIKE)
    return near[0] if near else None


def slips(given: Iterable[str], known: Collection[str]) -> list[tuple[str, str]]:
    """Names that may be anybody's, but are a slip or two away from one of ours; and which."""
    ours = sorted(name for name in known if len(name) >= _SHORT)
    odd = sorted(set(given) - set(known))
    return [(name, meant) for name in odd for meant in ours if _is_slip(name, meant)]


def _is_slip(name: str, meant: str) -> bool:
    """A slip stays within its words: a name with another word, a number or in the plural is somebody else's."""
    words, wanted = name.split("_"), meant.split("_")
    if len(words) > len(wanted) or (_has_digit(name) and not _has_digit(meant)):
        return False
    changed = [pair for pair in zip(words, wanted, strict=False) if pair[0] != pair[1]]
    same_shape = len(words) == len(wanted)
    if same_shape and any(word == f"{right}S" or len(right) < _SHORT_WORD for word, right in changed):
        return False
    return _distance(name, meant) <= 1 + (len(meant) >= _LONG)


def _has_digit(name: str) -> bool:
    return any(letter.isdigit() for letter in name)


def _distance(one: str, other: str) -> int:
    """Letters left out, added, exchanged or swapped with their neighbour."""
    if abs(len(one) - len(other)) > 2:  # noqa: PLR2004 - more than is asked for
        return 3
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]
