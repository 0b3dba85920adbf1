"""What stands between work and done, on the whole way: checks, guard, review, landing."""

from typing import Any

import pytest

from core.run_kit import START, after, asked, completed, done_claim, started
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.decide import Baseline, Iterate, Land, Stop, Verify, decide
from untildone.core.policy import Landing, Policy
from untildone.core.state import LoopState
from untildone.core.stopping import Reason

NOW = START + 999
CLAIM = (started(1), completed(1, claim=done_claim()), ev.LandingCommitted(iteration_num=1, commit="c1"))
BASELINE = ev.BaselineTaken(commit="c0", room="clean")


def saw(commit: str, *, passed: bool = True) -> ev.IterationValidation:
    return ev.IterationValidation(iteration_num=1, passed=passed, commit=commit, feedback="" if passed else "red")


def state(*events: ev.Event, land: Any = "commit", guard: Any = "off", checks: bool = True, **more: Any) -> LoopState:
    contract = Contract(checks=commands("make") if checks else (), guard=guard)
    return after(*events, contract=contract, landing=Landing(land=land, **more), policy=Policy(completion_threshold=1))


def test_a_baseline_comes_first_and_a_claim_sends_the_witness_in() -> None:
    assert decide(state(), NOW) == Baseline()
    assert isinstance(decide(state(BASELINE), NOW), Iterate)
    assert decide(state(BASELINE, *CLAIM), NOW) == Verify(1)
    assert decide(state(BASELINE, *CLAIM, saw("c1")), NOW) == Stop(Reason.VALIDATION_PASSED)


def test_a_baseline_that_could_never_pass_stops_at_once() -> None:
    refused = ev.BaselineTaken(commit="c0", room="clean", refused="give a setup command")
    assert decide(state(refused), NOW) == Stop(Reason.CLEAN_ROOM, "give a setup command")


@pytest.mark.parametrize("land", ["merge", "pr"])
def test_what_is_proven_is_landed_before_it_is_done(land: str) -> None:
    proven = (BASELINE, *CLAIM, saw("c1"))
    assert decide(state(*proven, land=land), NOW) == Land("c1", "validation_passed")
    arrived = (*proven, ev.LandingBegun(commit="c1", because="validation_passed"))
    merged = ev.LandingMerged(commit="c1", base="main", merged="m1")
    assert decide(state(*arrived, merged, land=land), NOW) == Stop(Reason.VALIDATION_PASSED)
    assert decide(state(*arrived, ev.LandingGaveUp(reason="403"), land=land), NOW) == Stop(Reason.LANDING_FAILED, "403")


@pytest.mark.parametrize("checks", [True, False])
def test_a_commit_that_mends_a_landing_is_examined_and_goes_the_same_way(checks: bool) -> None:
    begun = ev.LandingBegun(commit="c1", because="validation_passed")
    sent_back = (BASELINE, *CLAIM, saw("c1"), begun, ev.LandingRejected(cause="ci", detail="red"))
    assert isinstance(decide(state(*sent_back, land="pr", checks=checks), NOW), Iterate)
    mended = (*sent_back, started(2), completed(2), ev.LandingCommitted(iteration_num=2, commit="c2"))
    assert decide(state(*mended, land="pr", checks=checks), NOW) == Verify(2)
    assert decide(state(*mended, saw("c2"), land="pr", checks=checks), NOW) == Land("c2", "validation_passed")


@pytest.mark.parametrize("checks", [True, False])
def test_nothing_lands_that_the_witness_has_not_seen(checks: bool) -> None:
    made = (BASELINE, started(1), completed(1), ev.LandingCommitted(iteration_num=1, commit="c1"))
    each = {"land": "merge", "every": "iteration", "checks": checks}
    assert decide(state(*made, **each), NOW) == Verify(1)
    assert decide(state(*made, saw("c1"), **each), NOW) == Land("c1", "")
    assert isinstance(decide(state(*made, saw("c1", passed=False), **each), NOW), Iterate)


def test_words_alone_are_looked_at_too_before_they_land() -> None:
    assert decide(state(*CLAIM, land="merge", checks=False), NOW) == Verify(1)
    seen = (*CLAIM, saw("c1"))
    assert decide(state(*seen, land="merge", checks=False), NOW) == Iterate(1, question=True)
    assert decide(state(*seen, *asked(1), land="merge", checks=False), NOW) == Land("c1", "completion_signal")
    assert decide(state(*CLAIM, *asked(1), checks=False), NOW) == Stop(Reason.COMPLETION_SIGNAL)


def test_a_merge_that_was_taken_back_has_not_arrived() -> None:
    landed = (BASELINE, *CLAIM, saw("c1"), ev.LandingBegun(commit="c1", because="validation_passed"))
    taken_back = ev.LandingReverted(merged="m1", revert="r1", base="main", reason="red base")
    assert isinstance(decide(state(*landed, taken_back, land="merge"), NOW), Iterate)
