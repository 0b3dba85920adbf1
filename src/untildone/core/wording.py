"""When a limit ends, read from words: only for a Claude Code that names the moment in no field.

Pure but for one thing: a wording without a time zone means the machine's own.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo

DAY = 86_400.0
FARTHEST = 32 * DAY
"""No limit lasts longer: what lies beyond was misread."""
JUST_PASSED = 600.0
"""A moment named without a date that is gone for no longer than this means today, not tomorrow."""
_LONGEST = 2000
_MILLISECONDS = 1e11

_USAGE_LIMIT = re.compile(
    r"(?:claude (?:ai )?usage limit reached"
    r"|you(?:'|\u2019)ve (?:hit|reached) your (?:[\w-]+ ){0,3}limit\b"
    r"|(?:5-hour|session|weekly|opus weekly|sonnet weekly) limit reached)",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"limit reached\|(\d{10}|\d{13})\b", re.IGNORECASE)
_SPAN = re.compile(
    r"(?:try again|resets?|retry) (?:again )?(?:in|after) ((?:\d{1,5} ?[a-z]+,?(?: and)? ?)+)", re.IGNORECASE
)
_PART = re.compile(r"(\d{1,5}) ?([a-z]+)", re.IGNORECASE)
_UNITS = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hr": 3600,
    "hour": 3600,
    "d": DAY,
    "day": DAY,
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MOMENT = re.compile(
    r"(?:resets?|try again|available again|continue)(?: again)?(?: on| at)?\s+"
    r"(?:(?P<month>[a-z]{3})[a-z]* (?P<day>\d{1,2})(?:st|nd|rd|th)?(?:, (?P<year>\d{4}))?(?:,| at|, at)?\s+"
    r"|(?P<weekday>mon|tue|wed|thu|fri|sat|sun)[a-z]*(?:,| at|, at)?\s+"
    r"|(?P<tomorrow>tomorrow)(?:,| at|, at)?\s+)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>[ap]\.?m\b\.?)?"
    r"(?:\s*\((?P<zone>[^()]{1,40})\)|\s+(?P<utc>utc|gmt)\b)?",
    re.IGNORECASE,
)  # fmt: skip


def tells_usage_limit(text: str) -> bool:
    """Whether a message of Claude Code begins like those of a used-up subscription."""
    return _USAGE_LIMIT.match(text.strip()) is not None


def reset_moment(text: str, now: float, zone: tzinfo | None = None) -> float | None:
    """The moment (epoch seconds) a message names; None: none that can be understood.

    `zone` is where wordings without one are at home; None: this machine's own time.
    """
    text = text[:_LONGEST]
    moment = _epoch(text) or _after_span(text, now) or _on_the_clock(text, now, zone)
    return moment if moment is not None and now - JUST_PASSED <= moment <= now + FARTHEST else None


def _epoch(text: str) -> float | None:
    if (found := _EPOCH.search(text)) is None:
        return None
    stamp = float(found[1])
    return stamp / 1000 if stamp >= _MILLISECONDS else stamp


def _after_span(text: str, now: float) -> float | None:
    if (found := _SPAN.search(text)) is None:
        return None
    seconds = 0.0
    for number, unit in _PART.findall(found[1]):
        word = unit.lower()
        length = _UNITS.get(word) or _UNITS.get(word.removesuffix("s"))
        if length is None:
            break  # the sentence went on
        seconds += int(number) * length
    return now + seconds if seconds else None


def _on_the_clock(text: str, now: float, zone: tzinfo | None) -> float | None:
    found = _MOMENT.search(text)
    if found is None or (time := _time_of_day(found)) is None:
        return None
    from zoneinfo import ZoneInfo

    try:
        home = UTC if found["utc"] else ZoneInfo(found["zone"]) if found["zone"] else zone
        return _next(found, time, now, home)
    except (ValueError, KeyError, OSError, OverflowError):  # no such zone, no such date
        return None


def _time_of_day(found: re.Match[str]) -> tuple[int, int] | None:
    """Hour and minute; None for a bare number, which could mean anything."""
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if found["half"]:
        if not 1 <= hour <= 12:  # noqa: PLR2004 a clock face
            return None
        hour = hour % 12 + (12 if found["half"].lower().startswith("p") else 0)
    elif found["minute"] is None:
        return None
    return (hour, minute) if hour < 24 and minute < 60 else None  # noqa: PLR2004 a day, an hour


def _next(found: re.Match[str], time: tuple[int, int], now: float, zone: tzinfo | None) -> float:
    """The first such moment that is not long gone."""
    here = datetime.fromtimestamp(now, zone)
    moment = here.replace(hour=time[0], minute=time[1], second=0, microsecond=0, fold=0)
    if found["month"]:
        return _in_year(found, moment, now)
    if found["tomorrow"]:
        return (moment + timedelta(days=1)).timestamp()
    if found["weekday"]:
        ahead = (_WEEKDAYS.index(found["weekday"].lower()) - here.weekday()) % 7
        moment += timedelta(days=ahead)
        return moment.timestamp() if moment.timestamp() > now else (moment + timedelta(days=7)).timestamp()
    # An hour that the end of summer time repeats is meant the second time when the first is over.
    todays = (moment.timestamp(), moment.replace(fold=1).timestamp())
    passing = next((at for at in todays if at > now - JUST_PASSED), None)
    return passing if passing is not None else (moment + timedelta(days=1)).timestamp()


def _in_year(found: re.Match[str], moment: datetime, now: float) -> float:
    month = _MONTHS.index(found["month"].lower()) + 1
    year = int(found["year"] or moment.year)
    dated = moment.replace(year=year, month=month, day=int(found["day"]))
    if not found["year"] and dated.timestamp() < now - JUST_PASSED:
        dated = dated.replace(year=year + 1)  # said in December of a day in January
    return dated.timestamp()
