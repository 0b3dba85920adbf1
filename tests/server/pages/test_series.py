"""Numbers over time."""

from core.run_kit import records
from server.pages.test_activity import stored
from untildone.core import events as ev
from untildone.core.history import IterationRow
from untildone.core.outcome import CheckResult
from untildone.server.pages.series import check_points, spend_points


def row(number: int, at: float, usd: float, outcome: str = "ok") -> IterationRow:
    return IterationRow(number=number, started_at=at, seconds=10.0, cost_usd=usd, outcome=outcome)


def test_spend_grows_from_what_older_iterations_cost() -> None:
    points = spend_points([row(3, 100.0, 0.5), row(4, 200.0, 0.25)], 2.0, 10.0, 999.0)
    assert points == [(10.0, 1.25), (110.0, 1.75), (210.0, 2.0)]


def test_an_iteration_under_way_has_spent_what_was_heard_of_it() -> None:
    points = spend_points([row(1, 100.0, 0.5), row(2, 200.0, 0.25, "running")], 0.75, 10.0, 900.0)
    assert points[1:] == [(110.0, 0.5), (900.0, 0.75)]


def test_moments_never_go_back() -> None:
    points = spend_points([row(1, 500.0, 1.0), row(2, 100.0, 1.0)], 2.0, 0.0, 999.0)
    assert [at for at, _ in points] == [510.0, 510.0]


def test_checks_passing_and_how_many_there_were() -> None:
    green, red = (CheckResult(name="a", command="a", passed=passed) for passed in (True, False))
    events = [
        ev.BaselineTaken(commit=None, room="clean", checks=(red, red)),
        ev.IterationValidation(iteration_num=1, passed=False, checks=(green, red)),
        ev.IterationValidation(iteration_num=2, passed=True),
    ]
    looks = [stored(record.event, record.seq) for record in records(events)]
    points, most = check_points(looks)
    assert ([value for _, value in points], most) == ([0.0, 1.0], 2)
