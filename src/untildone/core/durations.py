"""Durations and times of day, as people write them."""

import math
import re
from typing import Literal

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LONGEST = 36_500 * DAY
"""A hundred years: beyond it, moments stop being dates."""

_UNITS = {"d": DAY, "h": HOUR, "m": MINUTE, "s": 1}
_BARE = {"minutes": MINUTE, "seconds": 1}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_PART = re.compile(rf"({_NUMBER})([dhms])")
_WHOLE = re.compile(rf"(?:{_NUMBER}[dhms]){{1,4}}")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")


def parse_duration(text: str, *, bare: Literal["minutes", "seconds"] | None = None) -> float:
    """Seconds of `1h30m`, `90s`, `1.5h` or `1d`; a number alone only where `bare` names its unit."""
    written = "".join(text.split()).lower()
    if bare is not None and re.fullmatch(_NUMBER, written):
        return _bounded(float(written) * _BARE[bare], text)
    parts = _PART.findall(written) if _WHOLE.fullmatch(written) else []
    if not parts or len({unit for _, unit in parts}) < len(parts):
        raise ValueError(f"{_shown(text)} is not a duration: write it like 1h30m, 90s, 2h or 1d")
    return _bounded(math.fsum(float(number) * _UNITS[unit] for number, unit in parts), text)


def _bounded(seconds: float, text: str) -> float:
    if seconds <= 0:
        raise ValueError(f"{_shown(text)} is no time at all: a duration must be longer than zero")
    if seconds > LONGEST:
        raise ValueError(f"{_shown(text)} is longer than a hundred years: give a shorter duration")
    return seconds


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")  # noqa: PLR2004 -- enough to recognise a typo


def format_duration(seconds: float) -> str:
    """`1d2h`, `1h30m`, `45s`, `0s`: rounded to whole seconds, empty parts left out."""
    left = max(0, round(seconds))
    written = ""
    for unit, size in _UNITS.items():
        count, left = divmod(left, size)
        written += f"{count}{unit}" if count else ""
    return written or "0s"


def next_clock(text: str, now: float, utc_offset_seconds: int) -> float:
    """The next moment after `now` at which a clock with that offset from UTC shows `text`, such as 07:30."""
    shown = _CLOCK.fullmatch(text.strip())
    hour, minute, second = (int(part or 0) for part in shown.groups()) if shown else (24, 0, 0)
    if hour >= 24 or minute >= 60 or second >= 60:  # noqa: PLR2004 -- the face of a clock
        raise ValueError(f"{_shown(text)} is not a time of day: write it like 07:30")
    local = now + utc_offset_seconds
    wanted = local - local % DAY + hour * HOUR + minute * MINUTE + second
    return (wanted if wanted > local else wanted + DAY) - utc_offset_seconds
