"""What a closed iteration owes to git, and when the debt is paid."""

import pytest

from core.run_kit import START, after, completed, failed, started
from untildone.core import events as ev
from untildone.core.state import Unsettled

BEGUN = started(1, tree="t0", head="c0", branch="work")


def test_an_iteration_that_ended_well_owes_a_commit() -> None:
    assert after(BEGUN, completed(1)).unsettled == Unsettled(
        iteration_num=1, closed_after=3, tree="t0", head="c0", branch="work", fault=None
    )


@pytest.mark.parametrize("fault", ["driver_died", "crash", "authentication", "stopped"])
def test_one_that_failed_owes_a_snapshot(fault: str) -> None:
    owed = after(BEGUN, failed(1, fault)).unsettled
    assert owed is not None
    assert owed.fault == fault


def test_one_that_goes_on_in_the_same_session_owes_nothing() -> None:
    assert after(BEGUN, failed(1, "overloaded", retry_at=START + 9)).unsettled is None


@pytest.mark.parametrize(
    "paid",
    [
        ev.LandingCommitted(iteration_num=1, commit="c1"),
        ev.LandingFailed(iteration_num=1, reason="a hook said no"),
        ev.LandingSnapshot(iteration_num=1, ref="refs/x", commit="c1"),
        started(2),
        ev.ContinuousCompleted(stop_reason="completion_signal"),
    ],
)
def test_the_debt_is_paid_or_forgotten(paid: ev.Event) -> None:
    assert after(BEGUN, completed(1), paid).unsettled is None


def test_after_a_stop_the_folder_is_the_humans_again_and_the_debt_is_marked_so() -> None:
    owed = after(BEGUN, completed(1), ev.ContinuousSuspended(stop_reason="stop_requested")).unsettled
    assert owed is not None
    assert owed.after_stop


def test_a_request_nobody_saw_an_answer_to_is_an_unknown_cost() -> None:
    spend = after(BEGUN, failed(1, "driver_died", unseen_requests=1)).spend
    assert (spend.cost_usd, spend.unknown_costs) == (0.1, 1)
