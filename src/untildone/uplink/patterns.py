"""Patterns of the user's own: what they match is hidden, and no text can make them take forever."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from re import _parser  # type: ignore[attr-defined] # how a pattern is understood: there is no public way to ask
from typing import Any

from untildone.errors import ConfigError
from untildone.uplink.reading import Span, without

PIECE = 600
"""Characters that a pattern is tried on at a time: what it matches must not be longer than half of that."""
MOST_WAYS = PIECE**2
"""Ways in which a pattern may be tried at one place: as with two parts of any length."""
PATIENCE = 2.0
"""Seconds for one text: what was not looked through by then is hidden."""
SAID = "[secret]"
NOT_LOOKED_THROUGH = "[hidden: looking through it took too long]"


class Patterns:
    """Regular expressions of what must not leave."""

    def __init__(self, patterns: Iterable[str], now: Callable[[], float] = time.monotonic) -> None:
        """ConfigError for one that cannot work."""
        self._patterns = tuple(map(_compiled, patterns))
        self._now = now

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def hidden(self, text: str) -> str:
        """A text without what they match."""
        if not self._patterns:
            return text
        ends = self._now() + PATIENCE
        return without(text, (span for pattern in self._patterns for span in self._spans(pattern, text, ends)))

    def _spans(self, pattern: re.Pattern[str], text: str, ends: float) -> Iterator[Span]:
        at = 0
        while at < len(text):
            if self._now() > ends:
                yield at, len(text), NOT_LOOKED_THROUGH
                return
            found = pattern.search(text, at, at + PIECE)
            if found is None or found.start() > at + PIECE // 2:
                # What begins near the end of a piece may go on behind it.
                at += PIECE // 2
                continue
            if found.end() > found.start():
                yield *found.span(), SAID
            at = max(found.end(), at + 1)


def _compiled(pattern: str) -> re.Pattern[str]:
    named = f"the pattern {pattern!r:.100} of what is to be masked"
    try:
        made = re.compile(pattern)
        ways = _ways(_parser.parse(pattern))
    except (re.error, RecursionError, OverflowError) as wrong:
        raise ConfigError(f"{named} cannot be read: {wrong}") from None
    if made.match(""):
        raise ConfigError(f"{named} matches everything")
    if ways > MOST_WAYS:
        raise ConfigError(f"{named} could take forever: no repetition inside a repetition, and at most two with * or +")
    return made


def _ways(parsed: Any) -> float:
    """In how many ways a pattern can be tried at one place, at most."""
    ways = 1.0
    for operation, given in parsed:
        ways = min(ways * _ways_of(str(operation), given), float(MOST_WAYS) * 2)
    return ways


def _ways_of(operation: str, given: Any) -> float:
    if operation in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        least, most, repeated = given
        most = min(int(most), PIECE)
        inner = _ways(repeated)
        return float(max(1, most - least + 1)) * (1.0 if inner == 1 else min(inner, 1e6) ** min(most, 40))
    if operation == "BRANCH":
        return sum(map(_ways, given[1]))
    inside = given if isinstance(given, tuple) else (given,)
    # Groups, conditions and looks around: whatever is in them.
    parts = [part for part in inside if isinstance(part, _parser.SubPattern)]
    return _ways([one for part in parts for one in part])
