"""Durations as people write them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from untildone.core.durations import DAY, HOUR, LONGEST, format_duration, next_clock, parse_duration

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h30m", 5400), ("90s", 90), ("2h", 7200), ("1d", 86400), ("30m2h", 9000), (" 1H 30M ", 5400), ("1.5h", 5400),
        ("1d1h1m1s", 90061), ("0.5s", 0.5), ("0h5m", 300), ("007m", 420),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "90", "h", "1x", "1h30", "-1h", "1h-5m", "1,5h", "1e3s", "0s", "0h0m", "1h1h", "inf", "nan", "٣h", "1 hour",
     "9" * 400 + "h", "1h" * 50, "999999d", "0.h", "1h\n2x"],
)  # fmt: skip
def test_nonsense_is_refused_in_one_clear_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration") as refused:
        parse_duration(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 150


def test_a_bare_number_needs_a_named_unit() -> None:
    assert parse_duration("15", bare="minutes") == 900
    assert parse_duration(" 15 ", bare="seconds") == 15
    assert parse_duration("1.5", bare="minutes") == 90
    assert parse_duration("15s", bare="minutes") == 15
    with pytest.raises(ValueError, match="longer than zero"):
        parse_duration("0", bare="minutes")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5400, "1h30m"), (45, "45s"), (0, "0s"), (-3, "0s"), (0.4, "0s"), (59.6, "1m"), (3605, "1h5s"), (90000, "1d1h"),
        (86400, "1d"),
    ],
)  # fmt: skip
def test_formatting(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@unhurried
@given(st.integers(1, LONGEST))
def test_what_is_written_is_read_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


NOON_UTC = 1_700_049_600.0  # 2023-11-15 12:00:00 UTC


@pytest.mark.parametrize(
    ("text", "offset", "after"),
    [
        ("13:00", 0, HOUR), ("11:00", 0, 23 * HOUR), ("12:00", 0, DAY), ("12:00:01", 0, 1), ("7:30", 0, 19.5 * HOUR),
        ("13:00", HOUR, DAY), ("13:30", HOUR, HOUR / 2), ("07:30", -5 * HOUR, HOUR / 2), ("00:00", 11 * HOUR, HOUR),
        ("01:00", 12 * HOUR + 1800, HOUR / 2),
    ],
)  # fmt: skip
def test_the_next_time_the_clock_shows_it(text: str, offset: int, after: float) -> None:
    assert next_clock(text, NOON_UTC, offset) == NOON_UTC + after


@pytest.mark.parametrize("text", ["24:00", "12:60", "12", "12:5", "noon", "", "-1:00", "12:00:60", "12:00 pm", "١٢:00"])
def test_no_time_of_day(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time of day: write it like 07:30"):
        next_clock(text, NOON_UTC, 0)


@unhurried
@given(st.integers(0, 23), st.integers(0, 59), st.integers(0, 4 * 10**9), st.integers(-14 * HOUR, 14 * HOUR))
def test_the_moment_is_within_a_day_and_shows_that_time(hour: int, minute: int, now: int, offset: int) -> None:
    moment = next_clock(f"{hour}:{minute:02}", now, offset)
    assert now < moment <= now + DAY
    assert (moment + offset) % DAY == hour * HOUR + minute * 60
