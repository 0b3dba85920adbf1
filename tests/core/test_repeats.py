"""Failures in a row at the same point."""

from untildone.core.breaker import Breaker, Observation, observe
from untildone.core.policy import Policy
from untildone.core.repeats import MOST_FAILURES, failures_in_a_row


def count(points: list[str]) -> int:
    failures, last = 0, ""
    for point in points:
        failures, last = failures_in_a_row(failures, last, point), point
    return failures


def test_only_the_same_point_in_a_row_counts() -> None:
    assert count(["a", "a", "a"]) == 3
    assert count(["a", "a", "b"]) == 1
    assert count(["a", "b", "a"]) == 1
    assert count(["a", "a", ""]) == 0
    assert count(["a", "", "a"]) == 1


def test_the_breaker_of_the_outer_loop_counts_by_the_same_rule() -> None:
    policy = Policy(same_error_threshold=MOST_FAILURES, stagnation_threshold=0)
    points = ["x", "x", "y", "y", "y", "y", "y"]
    breaker = Breaker()
    for number, point in enumerate(points, start=1):
        breaker = observe(breaker, Observation(error_signature=point, activity=(str(number),)), policy, 0.0)
        assert breaker.same_error == count(points[:number])
    assert breaker.state == "open"
