"""How people write durations, counts, money and lists, as pure functions from text to values.

Every parser takes what was typed, or what TOML gave, and raises ValueError with the end of a sentence that
begins with the setting's name: "must be a whole number, not 'ten'".
"""

import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from untildone.core.durations import next_clock, parse_duration

MOST = 10**12
"""No count that people mean is larger: it would not fit into a report, a database or a browser's numbers."""
MOST_USD = 1e9

Bare = Literal["minutes", "seconds"] | None

_NOTHING = re.compile(r"0+[hms]?")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:\d{2})?")
_WORDS: Mapping[str, bool] = {
    "true": True, "yes": True, "on": True, "1": True,
    "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip


def duration(raw: object, *, bare: Bare = None) -> float:
    """Seconds of `1h30m` or `90s`; zero is allowed here, and `bare` names the unit of a number alone."""
    written = str(raw).strip()
    if _NOTHING.fullmatch(written):
        return 0.0
    try:
        return parse_duration(written, bare=bare)
    except ValueError as wrong:
        raise ValueError(f"cannot be read: {wrong}") from wrong


def limit_duration(raw: object, *, bare: Bare = None) -> float | None:
    """A duration where 0 means "no limit"."""
    return duration(raw, bare=bare) or None


def timeout(raw: object) -> float:
    """A duration longer than zero; a number alone is seconds."""
    seconds = duration(raw, bare="seconds")
    if not seconds:
        raise ValueError(f"must be longer than zero, not {raw!r}")
    return seconds


def whole(raw: object, *, least: int = 1, most: int = MOST) -> int:
    """A whole number within bounds."""
    try:
        number = int(str(raw).strip()) if not isinstance(raw, bool | float) else None
    except ValueError:
        number = None
    if number is None:
        raise ValueError(f"must be a whole number, not {raw!r}")
    if not least <= number <= most:
        bounds = f"at least {least}" if number < least and most == MOST else f"between {least} and {most}"
        raise ValueError(f"must be {bounds}, not {number}")
    return number


def limit(raw: object) -> int | None:
    """A whole number where 0 means "no limit"."""
    return whole(raw, least=0) or None


def money(raw: object) -> float | None:
    """US dollars, with or without `$`; 0 means "no limit"."""
    try:
        amount = float(str(raw).strip().removeprefix("$")) if not isinstance(raw, bool) else -1.0
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= MOST_USD:
        raise ValueError(f"must be an amount in US dollars such as 5 or 2.50, not {raw!r}")
    return amount or None


def switch(raw: object) -> bool:
    """True or false, in the words people use."""
    if isinstance(raw, bool):
        return raw
    word = _WORDS.get(str(raw).strip().lower())
    if word is None:
        raise ValueError(f"must be true or false, not {raw!r}")
    return word


def text(raw: object) -> str:
    """Text as it is."""
    if not isinstance(raw, str):
        raise ValueError(f"must be text in quotes, not {raw!r}")  # noqa: TRY004 -- one error kind for all parsers
    if "\0" in raw:
        raise ValueError("must not hold the character NUL: no program takes it")
    return raw


def name_text(raw: object) -> str:
    """Text that says something."""
    if not text(raw).strip():
        raise ValueError("must not be empty")
    return text(raw)


def lines(raw: object) -> tuple[str, ...]:
    """Several texts: a list, or one text with a line for each; an empty one is a mistake, not a wish."""
    if isinstance(raw, list | tuple):
        return tuple(name_text(item) for item in raw)
    return tuple(line for line in name_text(raw).splitlines() if line.strip())


def tools(raw: object) -> tuple[str, ...]:
    """Tool rules in Claude Code's syntax, split at commas outside parentheses."""
    found: list[str] = []
    for item in raw if isinstance(raw, list | tuple) else text(raw).splitlines():
        found += [rule.strip() for rule in re.findall(r"(?:[^,(]|\([^)]*\)?)+", text(item)) if rule.strip()]
    return tuple(found)


def words(raw: object) -> tuple[str, ...]:
    """Program arguments: a list as it is, or one text split as a shell would."""
    if isinstance(raw, list | tuple):
        return tuple(text(item) for item in raw)
    try:
        return tuple(shlex.split(text(raw)))
    except ValueError as broken:
        raise ValueError(f"cannot be split into arguments ({broken}): {raw!r}") from broken


def moment(raw: object) -> str:
    """A time of day (07:30) or a date with time; which epoch second that is depends on the clock."""
    written = str(raw).strip()
    try:
        if _MOMENT.fullmatch(written):
            return datetime.fromisoformat(written).isoformat()
        next_clock(written, 0, 0)
    except ValueError:
        raise ValueError(f"must be a time such as 07:30 or 2026-01-31T07:30, not {written!r}") from None
    return written


def share(raw: object) -> float | None:
    """A percentage such as `30%` or 30, as a share from 0 to 1; 0 means "none"."""
    try:
        percent = float(str(raw).strip().removesuffix("%")) if not isinstance(raw, bool) else -1.0
    except ValueError:
        percent = -1.0
    if not 0 <= percent < 100:  # noqa: PLR2004 - per cent
        raise ValueError(f"must be a percentage from 0 to below 100, such as 30%, not {raw!r}")
    return percent / 100 or None


_SIZES: Mapping[str, int] = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(raw: object, *, least: int = 0) -> int:
    """Bytes of `512M` or `2G`."""
    written = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmgt]?)i?b?", str(raw).strip(), re.IGNORECASE)
    if written is None:
        raise ValueError(f"must be a size such as 512M or 2G, not {raw!r}")
    number = int(float(written[1]) * _SIZES[written[2].lower()])
    if number < least:
        raise ValueError(f"must be at least {size_text(least)}, not {raw!r}")
    return number


def size_text(number: int) -> str:
    """A size as `size` reads it: `512M`, or plain bytes when no unit fits."""
    units = [(unit, worth) for unit, worth in _SIZES.items() if number and number % worth == 0]
    unit, worth = units[-1] if units else ("", 1)
    return f"{number // worth}{unit.upper()}"
