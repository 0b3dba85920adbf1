"""When a limit ends, read from words: every phrasing seen, in every corner of the calendar."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core.wording import FARTHEST, JUST_PASSED, reset_moment, tells_usage_limit

NEW_YORK, BERLIN = ZoneInfo("America/New_York"), ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo | None = None) -> float:
    """Epoch seconds of an ISO moment."""
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


NOON = at("2026-11-15T12:00")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("You've hit your 5-hour limit · resets 9:19pm (UTC)", "2026-11-15T21:19"),
        ("You've hit your limit · resets 9pm (UTC)", "2026-11-15T21:00"),
        ("You've hit your limit · resets at 9pm (UTC)", "2026-11-15T21:00"),
        ("5-hour limit reached ∙ resets 9pm", "2026-11-15T21:00"),
        ("Claude usage limit reached. Your limit will reset at 9pm (UTC).", "2026-11-15T21:00"),
        ("Claude usage limit reached. Your limit will reset at 21:30 UTC.", "2026-11-15T21:30"),
        ("resets 12am (UTC)", "2026-11-16T00:00"),
        ("resets 12:30 PM (UTC)", "2026-11-15T12:30"),
        ("resets 9 p.m. (UTC)", "2026-11-15T21:00"),
        ("resets 00:15", "2026-11-16T00:15"),
        ("weekly limit reached · resets Nov 20, 9am (UTC)", "2026-11-20T09:00"),
        ("weekly limit reached · resets Nov 20 at 9:05am (UTC)", "2026-11-20T09:05"),
        ("resets November 20th, 2026, at 9am (UTC)", "2026-11-20T09:00"),
        ("resets Mon 12:00am (UTC)", "2026-11-16T00:00"),
        ("resets Sunday at 11am (UTC)", "2026-11-22T11:00"),
        ("resets tomorrow at 7am (UTC)", "2026-11-16T07:00"),
    ],
)
def test_a_time_of_day(text: str, moment: str) -> None:
    assert reset_moment(text, NOON, UTC) == at(moment)


def test_a_named_zone_wins_over_the_one_at_home() -> None:
    text = "You've hit your limit · resets at 9pm (America/New_York)"
    assert reset_moment(text, NOON, BERLIN) == at("2026-11-15T21:00", NEW_YORK)
    assert reset_moment("resets 9pm", NOON, BERLIN) == at("2026-11-15T21:00", BERLIN)


def test_without_any_zone_the_machine_is_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert reset_moment("resets 11pm", NOON) == at("2026-11-15T23:00", ZoneInfo("Asia/Tokyo"))
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("Claude AI usage limit reached|1794777584", 1794777584.0),
        ("Claude AI usage limit reached|1794777584000", 1794777584.0),
    ],
)
def test_a_stamp_behind_a_bar(text: str, moment: float) -> None:
    assert reset_moment(text, moment - 3600, UTC) == moment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("try again in 5 minutes", 300),
        ("Please try again in 30 seconds.", 30),
        ("try again in 2h 5m", 7500),
        ("try again in 1 hour and 10 minutes.", 4200),
        ("resets in 3 days", 3 * 86400),
        ("Retry after 90s", 90),
        ("try again in 5 minutes or 3 wishes", 300),
    ],
)
def test_a_span(text: str, seconds: float) -> None:
    assert reset_moment(text, NOON, UTC) == NOON + seconds


def test_across_midnight() -> None:
    late = at("2026-11-15T23:50")
    assert reset_moment("resets 1am (UTC)", late, UTC) == at("2026-11-16T01:00")


def test_across_the_turn_of_the_year() -> None:
    late = at("2026-12-30T12:00")
    assert reset_moment("resets Jan 2, 9am (UTC)", late, UTC) == at("2027-01-02T09:00")


def test_a_moment_just_passed_is_not_tomorrow() -> None:
    now = at("2026-11-15T21:00") + 40
    assert reset_moment("resets 9pm (UTC)", now, UTC) == at("2026-11-15T21:00")
    assert reset_moment("resets 9pm (UTC)", now + JUST_PASSED, UTC) == at("2026-11-16T21:00")


def test_the_night_summer_time_begins() -> None:
    now = at("2026-03-28T23:00", BERLIN)
    moment = reset_moment("resets 3:30am (Europe/Berlin)", now, UTC)
    assert moment is not None
    assert moment - now == pytest.approx(3.5 * 3600), "the night is one hour shorter"


def test_the_night_summer_time_ends() -> None:
    now = at("2026-10-24T23:00", BERLIN)
    moment = reset_moment("resets 4am (Europe/Berlin)", now, UTC)
    assert moment is not None
    assert moment - now == pytest.approx(6 * 3600), "the night is one hour longer"


def test_an_hour_that_comes_twice_means_the_one_still_to_come() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=0).timestamp()
    assert reset_moment("resets 2:30am (Europe/Berlin)", first - 60, UTC) == first
    assert reset_moment("resets 2:30am (Europe/Berlin)", first + 1800, UTC) == first + 3600


@pytest.mark.parametrize(
    "text",
    [
        "", "the limit resets soon", "resets 9", "resets 13pm (UTC)", "resets 25:00", "resets 9:75pm (UTC)",
        "resets 9pm (Mars/Olympus)", "resets 9pm (../../etc/passwd)", "resets Feb 31, 9am (UTC)",
        "resets 9pm (America)",
        "resets Nov 20, 2031, 9am (UTC)", "Claude AI usage limit reached|9999999999", "try again in 0 minutes",
        "try again in 99999 days", "Claude AI usage limit reached|1000000000", "try again in a moment",
        "PR 4290 resets the counter", "resets Foo 3, 9am (UTC)",
    ],
)  # fmt: skip
def test_what_cannot_be_understood_is_left_alone(text: str) -> None:
    assert reset_moment(text, NOON, UTC) is None


words = st.sampled_from(
    ["resets", "reset at", "try again in", "9:30", "pm", "(UTC)", "(Europe/Berlin)", "Nov", "31", "99999", "hours",
     "Mon,",
     "Claude AI usage limit reached|", "1794777584", "·", "\0", "(//)", "0"]
)  # fmt: skip


@given(st.lists(words | st.text(max_size=5), max_size=12).map(" ".join), st.floats(0, 4e9))
def test_no_words_can_break_it(text: str, now: float) -> None:
    moment = reset_moment(text, now, UTC)
    assert moment is None or now - JUST_PASSED <= moment <= now + FARTHEST


@pytest.mark.parametrize(
    ("text", "is_limit"),
    [
        ("You've hit your 5-hour limit · resets 9:19pm (UTC)", True),
        ("You've hit your limit · resets 9pm", True),
        ("You\u2019ve reached your weekly limit", True),
        ("5-hour limit reached ∙ resets 9pm", True),
        ("Claude AI usage limit reached|1794777584", True),
        ("Claude usage limit reached. Your limit will reset at 9pm.", True),
        ("I fixed the text that says: 5-hour limit reached", False),
        ("429 rate limit in PR 4290", False),
        ("API Error: Request rejected (429) · rate limit", False),
    ],
)
def test_only_claude_codes_own_sentence_tells_of_a_usage_limit(text: str, is_limit: bool) -> None:
    assert tells_usage_limit(text) is is_limit
