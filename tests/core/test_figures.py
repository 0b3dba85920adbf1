"""Figures for people."""

from datetime import UTC, timedelta, timezone

import pytest

from untildone.core.figures import cause_text, clock, count, dollars, stop_detail


@pytest.mark.parametrize(
    ("amount", "written"),
    [(0.0, "$0.00"), (0.0031, "$0.0031"), (0.05, "$0.05"), (0.42, "$0.42"), (5, "$5.00"), (1234.5, "$1,234.50")],
)
def test_small_amounts_keep_the_digits_that_matter(amount: float, written: str) -> None:
    assert dollars(amount) == written


def test_the_date_is_said_only_on_another_day() -> None:
    at = 1_760_000_000.0  # 2025-10-09 08:53 UTC
    assert clock(at, at - 60, UTC) == "08:53"
    assert clock(at, at - 86400, UTC) == "2025-10-09 08:53"
    assert clock(at, at, timezone(timedelta(hours=2))) == "10:53"


def test_a_moment_within_a_minute_is_told_to_the_second() -> None:
    at = 1_760_000_000.0  # 2025-10-09 08:53:20 UTC
    assert clock(at, at - 59, UTC) == "08:53:20"
    assert clock(at, at - 60, UTC) == clock(at, at + 1, UTC) == "08:53"


@pytest.mark.parametrize("broken", [1e300, -1e300, float("nan"), float("inf")])
def test_a_moment_no_calendar_holds_is_still_written(broken: float) -> None:
    assert clock(broken, 0.0, UTC) == "00:00"


def test_a_detail_that_only_repeats_the_reason_is_not_told() -> None:
    assert stop_detail("shutdown_signal", "by signal") == stop_detail("stop_requested", "by cli") == ""
    assert stop_detail("shutdown_signal", "asked twice") == "asked twice"
    assert stop_detail("stop_requested", "by dashboard") == "by dashboard"


def test_causes_in_words() -> None:
    assert cause_text("usage_limit") == "the usage limit"
    assert cause_text("disk_low") == "free disk space"
    assert cause_text("quota_kept") == "more quota than the share that is kept for you"
    assert cause_text("crash") == "a new try (the agent's process died)"
    assert cause_text("solar_<b>wind") == "solar b wind"
    assert (count(1, "file"), count(2, "process", "processes")) == ("1 file", "2 processes")
