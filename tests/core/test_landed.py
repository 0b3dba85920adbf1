"""What a closed iteration owes to git, and when the debt is paid."""

from typing import Any

import pytest

from core.run_kit import START, after, completed, done_claim, failed, now_of, started
from untildone.core import events as ev
from untildone.core.decide import Decision, Iterate, Land, Stop, Verify, decide
from untildone.core.policy import Landing
from untildone.core.state import Unsettled
from untildone.core.stopping import Reason

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
        ev.LandingSnapshot(iteration_num=1, ref="refs/x", commit="c1"),
        started(2),
        ev.ContinuousCompleted(stop_reason="completion_signal"),
    ],
)
def test_the_debt_is_paid_or_forgotten(paid: ev.Event) -> None:
    assert after(BEGUN, completed(1), paid).unsettled is None


def test_work_that_could_not_be_committed_is_owed_until_it_is() -> None:
    no = ev.LandingFailed(iteration_num=1, reason="git was killed")
    kept = ev.LandingSnapshot(iteration_num=1, ref="refs/x", commit="k1")
    assert after(BEGUN, completed(1), no).unsettled is not None
    assert after(BEGUN, completed(1), no, kept).unsettled is not None
    assert after(BEGUN, completed(1), no, kept, ev.LandingCommitted(iteration_num=1, commit="c1")).unsettled is None


def test_after_a_stop_the_folder_is_the_humans_again_and_the_debt_is_marked_so() -> None:
    owed = after(BEGUN, completed(1), ev.ContinuousSuspended(stop_reason="stop_requested")).unsettled
    assert owed is not None
    assert owed.after_stop


def test_a_request_nobody_saw_an_answer_to_is_an_unknown_cost() -> None:
    spend = after(BEGUN, failed(1, "driver_died", unseen_requests=1)).spend
    assert (spend.cost_usd, spend.unknown_costs) == (0.1, 1)


BEGAN = ev.LandingPrepared(branch="untildone/it", base="main", start="s", remote="/r")
MERGED_HERE = Landing(land="merge")


def looked(commit: str, branch: str | None = "untildone/it", **changes: Any) -> ev.IterationValidation:
    told = {
        "iteration_num": 1,
        "passed": True,
        "commit": commit,
        "git_status": {"branch_name": branch},
        "room": "clean",
    }
    return ev.IterationValidation(**{**told, **changes})


def claimed(number: int, commit: str) -> tuple[ev.Event, ...]:
    made = ev.LandingCommitted(iteration_num=number, commit=commit, branch="untildone/it")
    return started(number), completed(number, claim=done_claim()), made


def wants(*events: ev.Event, **landing: Any) -> Decision:
    chosen = Landing(**{"land": "merge", **landing})
    state = after(BEGAN, ev.BaselineTaken(commit="s", room="clean"), *events, checks=("make",), landing=chosen)
    return decide(state, now_of(state))


def test_what_lands_is_what_was_verified_also_when_commits_were_taken_back() -> None:
    assert wants(*claimed(1, "c1"), looked("c1")) == Land("c1", "validation_passed")
    assert wants(*claimed(1, "c1"), *claimed(2, "c2"), looked("c1")) == Land("c1", "validation_passed")


def test_where_all_was_taken_back_nothing_is_left_to_land() -> None:
    assert wants(*claimed(1, "c1"), looked("s")) == Stop(Reason.VALIDATION_PASSED)


def test_what_was_seen_on_another_branch_lands_nothing() -> None:
    assert isinstance(wants(*claimed(1, "c1"), looked("x", "users")), Iterate)


def test_what_is_landed_for_one_iteration_is_looked_at_once_not_for_ever() -> None:
    one = (started(1), completed(1), ev.LandingCommitted(iteration_num=1, commit="c1", branch="untildone/it"))
    assert wants(*one, every="iteration") == Verify(1)
    assert wants(*one, looked("hook"), every="iteration") == Land("hook", "")
    assert isinstance(wants(*one, looked("x", "users"), every="iteration"), Iterate)


def test_a_branch_that_only_learned_of_its_landing_lands_nothing_again() -> None:
    landed = ev.LandingMerged(commit="c1", base="main", merged="m1")
    assert wants(*claimed(1, "c1"), looked("c1"), landed, looked("joined")) == Stop(Reason.VALIDATION_PASSED)


def test_what_was_rewound_does_not_land() -> None:
    back = ev.Rewound(by="me", iteration_num=1, commit="t1", saved="refs/x", head="c1")
    work = (*claimed(1, "c1"), *claimed(2, "c2"), looked("c2"), back)
    assert after(BEGAN, *work, landing=MERGED_HERE).last_commit == "c1"
    assert wants(*work, started(3), completed(3, claim=done_claim()), looked("c1")) == Land("c1", "validation_passed")
    start = ev.Rewound(by="me", iteration_num=0, commit="s", saved="refs/x", head="s")
    assert after(BEGAN, *claimed(1, "c1"), start, landing=MERGED_HERE).last_commit is None


def test_what_the_log_says_holds_against_what_a_later_driver_finds_in_git() -> None:
    forged = ev.LandingPrepared(branch="untildone/it", base="production", start="later", remote="/elsewhere")
    arrival = after(BEGAN, forged).arrival
    assert (arrival.base, arrival.start, arrival.remote) == ("main", "s", "/r")
    named = after(BEGAN, forged, landing=Landing(land="merge", base="develop")).arrival
    assert named.base == "develop", "a human may name another"


def test_the_base_never_becomes_the_runs_branch() -> None:
    moved = ev.LandingCommitted(iteration_num=1, commit="c1", branch="main")
    assert after(BEGAN, moved).arrival.branch == "untildone/it"
    each = ev.LandingCommitted(iteration_num=1, commit="c1", branch="untildone/iteration-1/x")
    assert after(BEGAN, each).arrival.branch == "untildone/iteration-1/x"


def test_a_branch_on_the_remote_is_the_runs_if_it_was_not_there_before() -> None:
    begun, makes = ev.LandingBegun(commit="c"), ev.LandingBegun(commit="c", makes="untildone/it")
    pushed = ev.LandingPushed(commit="c", branch="untildone/it", remote="origin")
    assert after(BEGAN, begun, pushed).arrival.made is None
    assert after(BEGAN, begun, makes, pushed, begun).arrival.made == "untildone/it"
    assert after(BEGAN, makes, pushed, ev.LandingMerged(commit="c", base="main")).arrival.made is None
