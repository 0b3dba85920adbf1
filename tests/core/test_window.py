"""The sliding hour."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from untildone.core.window import CAP, KEEP, next_free, record, remaining

NOW = 1_700_000_000.25
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_calls_are_kept_for_an_hour() -> None:
    calls = record(record((), NOW), NOW + 10)
    assert calls == (NOW, NOW + 10)
    assert record(calls, NOW + KEEP) == (NOW + 10, NOW + KEEP)
    assert record(calls, NOW + 10.5, keep=1.0) == (NOW + 10, NOW + 10.5)


@pytest.mark.parametrize("limit", [None, 0, -1])
def test_no_limit(limit: int | None) -> None:
    assert remaining((NOW,) * 50, limit, NOW) is None
    assert next_free((NOW,) * 50, limit, NOW) == NOW


def test_the_window_slides_call_by_call() -> None:
    calls = (NOW, NOW + 100, NOW + 200)
    assert remaining(calls, 3, NOW + 300) == 0
    assert next_free(calls, 3, NOW + 300) == NOW + KEEP
    assert remaining(calls, 3, NOW + KEEP) == 1
    assert next_free(calls, 3, NOW + KEEP) == NOW + KEEP
    assert remaining(calls, 5, NOW + 300) == 2
    assert next_free(calls, 5, NOW + 300) == NOW + 300
    assert remaining(calls, 3, NOW + 200 + KEEP) == 3


def test_a_lowered_limit_waits_for_enough_calls_to_leave() -> None:
    calls = (NOW, NOW + 100, NOW + 200)
    assert next_free(calls, 1, NOW + 300) == NOW + 200 + KEEP
    assert remaining(calls, 1, NOW + 300) == 0


def test_after_the_clock_was_set_back_a_call_counts_as_made_now_or_not_at_all() -> None:
    assert remaining((NOW + 60,), 1, NOW) == 0
    assert next_free((NOW + 60,), 1, NOW) == NOW + KEEP
    assert remaining((NOW + KEEP + 1,), 1, NOW) == 1
    assert record((NOW + 60, NOW + 10 * KEEP), NOW) == (NOW, NOW)


def test_the_window_is_bounded() -> None:
    assert len(record((NOW,) * (CAP + 5), NOW)) == CAP


moments = st.lists(st.floats(NOW - 3 * KEEP, NOW + 3 * KEEP), max_size=20).map(tuple)


@unhurried
@given(moments, st.integers(1, 5))
def test_the_next_free_moment_is_free_and_not_long_ahead(calls: tuple[float, ...], limit: int) -> None:
    known = record(calls, NOW)
    free = next_free(known, limit, NOW)
    assert NOW <= free <= NOW + KEEP
    left = remaining(known, limit, free)
    assert left is not None
    assert left >= 1


@unhurried
@given(st.lists(st.floats(0, 5 * KEEP), max_size=40).map(sorted), st.integers(1, 4))
def test_who_waits_as_told_never_exceeds_the_limit(wishes: list[float], limit: int) -> None:
    calls: tuple[float, ...] = ()
    made: list[float] = []
    now = 0.0
    for wish in wishes:
        now = next_free(calls, limit, max(wish, now))
        calls = record(calls, now)
        made.append(now)
    assert all(later >= earlier + KEEP for earlier, later in zip(made, made[limit:], strict=False))
