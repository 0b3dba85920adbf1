"""When the agent counts as stuck: every trip alone, at its exact threshold."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from untildone.core.breaker import RECENT, Breaker, Observation, claim_refused, observe, reset, rest
from untildone.core.policy import Policy

PUBLISHED = {
    "same_error_threshold": 5,
    "output_decline_threshold": 70,
    "max_test_loops": 3,
    "safety_completion_threshold": 5,
}
"""What the published profiles set. By default these rules are off."""
POLICY = Policy(**PUBLISHED)
NOW = 1000.0
COOLDOWN = POLICY.breaker_cooldown

WORK = Observation(changed=True, has_status=True, output_chars=100)
IDLE = Observation(has_status=True, output_chars=100)
ASKING = replace(IDLE, has_status=False, question=True)
CLAIM = replace(IDLE, claims_done=True)


def after(*seen: Observation, policy: Policy = POLICY, breaker: Breaker | None = None) -> Breaker:
    current = breaker or Breaker()
    for observation in seen:
        current = observe(current, observation, policy, NOW)
    return current


def looking(number: int, **more: Any) -> Observation:
    """An iteration that reads something nobody read before."""
    return replace(IDLE, **({"activity": (f"call-{number}",)} | more))


def opened() -> Breaker:
    return after(IDLE, IDLE, IDLE)


# --- each trip, one short of its threshold and at it ----------------------------------------------

TRIPS = {
    "stagnation: 3 iterations in a row without any evidence of work": [IDLE] * 3,
    "safety completion: 5 iterations in a row that sound finished, without a claim and without any change": [
        looking(n, indicators=1) for n in range(5)
    ],
    "same error: 5 iterations in a row with the same error and an unchanged tree": [
        looking(n, error_signature="abc") for n in range(5)
    ],
    "output decline: 2 iterations in a row with at least 70% less output and an unchanged tree": [
        looking(0, output_chars=10_000), looking(1, output_chars=3_000), looking(2, output_chars=900),
    ],
    "test loop: 3 iterations in a row that only tested and changed nothing": [
        looking(n, work_type="TESTING") for n in range(3)
    ],
}  # fmt: skip


@pytest.mark.parametrize("reason", TRIPS)
def test_each_trip_alone_at_its_exact_threshold(reason: str) -> None:
    *before, last = TRIPS[reason]
    assert after(*before).state != "open"
    tripped = after(*before, last)
    assert (tripped.state, tripped.reason, tripped.opened_at) == ("open", reason, NOW)


@pytest.mark.parametrize("reason", TRIPS)
def test_a_real_change_on_the_way_starts_every_count_anew(reason: str) -> None:
    *before, last = TRIPS[reason]
    assert after(*before, WORK, last).state == "closed"
    changing = [replace(seen, changed=True) for seen in TRIPS[reason]]
    assert after(*changing * 3).state == "closed"


@pytest.mark.parametrize("reason", TRIPS)
def test_a_claim_on_the_trip_iteration_is_no_trip(reason: str) -> None:
    *before, last = TRIPS[reason]
    claimed = after(*before, replace(last, claims_done=True))
    assert claimed.state != "open"
    assert claimed.no_progress <= after(*before).no_progress


@pytest.mark.parametrize("reason", TRIPS)
def test_reset_clears_all_counters_and_keeps_what_was_seen(reason: str) -> None:
    tripped = after(*TRIPS[reason])
    assert reset(tripped) == Breaker(recent_activity=tripped.recent_activity)
    assert after(TRIPS[reason][-1], breaker=reset(tripped)).state == "closed"


@pytest.mark.parametrize("reason", TRIPS)
def test_an_open_breaker_stays_as_it_is(reason: str) -> None:
    tripped = after(*TRIPS[reason])
    assert after(WORK, IDLE, CLAIM, breaker=tripped) == tripped


@pytest.mark.parametrize("reason", TRIPS)
def test_a_threshold_of_zero_switches_its_rule_off(reason: str) -> None:
    off = Policy(
        stagnation_threshold=0, same_error_threshold=0, output_decline_threshold=0, max_test_loops=0,
        safety_completion_threshold=0,
    )  # fmt: skip
    assert after(*TRIPS[reason] * 3, policy=off).state == "closed"


@pytest.mark.parametrize(
    ("policy", "seen"),
    [
        (Policy(stagnation_threshold=1), IDLE),
        (Policy(same_error_threshold=1), looking(1, error_signature="x")),
        (Policy(max_test_loops=1), looking(1, work_type="testing")),
        (Policy(safety_completion_threshold=1), looking(1, indicators=3)),
    ],
)
def test_a_threshold_of_one_trips_at_once(policy: Policy, seen: Observation) -> None:
    tripped = after(seen, policy=policy)
    assert tripped.state == "open"
    assert "1 iteration " in tripped.reason
    assert after(WORK, WORK, policy=policy).state == "closed"


def test_the_most_telling_reason_wins() -> None:
    error = replace(IDLE, error_signature="x")
    policy = Policy(same_error_threshold=3)
    assert after(error, error, error, policy=policy).reason.startswith("same error")


# --- evidence ------------------------------------------------------------------------------------


def test_reading_new_things_is_work_and_reading_them_again_is_not() -> None:
    assert after(*(looking(n) for n in range(50))).state == "closed"
    assert after(looking(1), looking(1), looking(1), looking(1)).state == "open"
    assert after(looking(1), looking(2), looking(1), looking(2), looking(1)).state == "open"


def test_a_completed_task_is_work_and_a_status_that_reports_nothing_is_not() -> None:
    assert after(*[replace(IDLE, tasks_completed=1)] * 9).state == "closed"
    assert after(*[replace(IDLE, work_type="IMPLEMENTATION")] * 3).state == "open"


def test_a_missing_status_counts_only_without_other_evidence() -> None:
    silent = replace(IDLE, has_status=False)
    assert after(silent, silent, silent).reason.endswith("evidence of work (the last one gave no status)")
    assert after(*(looking(n, has_status=False) for n in range(9))).state == "closed"
    assert after(*[replace(WORK, has_status=False)] * 9).state == "closed"


def test_modified_files_that_the_tree_does_not_show_are_no_evidence() -> None:
    boasting = replace(IDLE, files_modified=4)
    reason = after(boasting, boasting, boasting).reason
    assert reason.endswith("(the last one reported 4 modified files, but the tree is unchanged)")


def test_what_was_looked_at_is_bounded_and_the_newest_is_kept() -> None:
    many = after(looking(0, activity=tuple(f"call-{n}" for n in range(1000))))
    assert many.recent_activity == tuple(f"call-{n}" for n in range(1000 - RECENT, 1000))
    again = after(looking(1000 - RECENT), breaker=many)
    assert again.recent_activity[-1] == f"call-{1000 - RECENT}"
    assert len(again.recent_activity) == RECENT


# --- errors, output, tests, words -----------------------------------------------------------------


def test_only_the_same_error_in_a_row_counts() -> None:
    policy = Policy(same_error_threshold=3)
    for names in (("a", "b", "a", "b"), ("a", "a", "", "a", "a"), ("a", "a", "b", "b")):
        seen = [looking(n, error_signature=name) for n, name in enumerate(names)]
        assert after(*seen, policy=policy).state == "closed"


@pytest.mark.parametrize(
    "sizes",
    [
        (0, 0, 0, 0), (100, 0, 0), (0, 100, 10), (100, 100, 100), (1000, 301, 80), (1000, 300, 91),
        (1000, 300, 300, 80),
        (1000, 100, 2000, 100),
    ],
)  # fmt: skip
def test_no_decline_twice_running(sizes: tuple[int, ...]) -> None:
    assert after(*(looking(n, output_chars=size) for n, size in enumerate(sizes))).state == "closed"


@pytest.mark.parametrize("sizes", [(1000, 300, 90), (100, 10, 0), (5, 1000, 100, 10)])
def test_a_decline_twice_running(sizes: tuple[int, ...]) -> None:
    assert after(*(looking(n, output_chars=size) for n, size in enumerate(sizes))).reason.startswith("output decline")


def test_testing_counts_only_in_a_row_and_only_without_changes() -> None:
    testing = [looking(n, work_type="TESTING") for n in range(4)]
    assert after(testing[0], testing[1], looking(9), testing[2], testing[3]).state == "closed"
    assert after(*[replace(WORK, work_type="TESTING")] * 9).state == "closed"


def test_similar_words_with_real_changes_never_trip() -> None:
    same = replace(WORK, indicators=3, error_signature="x", work_type="TESTING")
    assert after(*[same] * 20).state == "closed"


def test_sounding_finished_counts_only_in_a_row_and_without_a_claim() -> None:
    sounds = [looking(n, indicators=2) for n in range(9)]
    assert after(*sounds[:4], looking(99), *sounds[4:8]).state == "closed"
    assert after(*sounds[:4], replace(sounds[4], claims_done=True), *sounds[5:9]).state == "closed"


# --- questions -----------------------------------------------------------------------------------


def test_two_questions_in_a_row_are_free_and_the_third_counts() -> None:
    assert [after(*[ASKING] * n).no_progress for n in range(1, 6)] == [0, 0, 1, 2, 3]
    assert after(*[ASKING] * 4).state == "half_open"
    assert after(*[ASKING] * 5).state == "open"


def test_a_question_keeps_the_count_of_idle_iterations_where_it_is() -> None:
    assert after(IDLE, ASKING, ASKING).no_progress == 1
    assert after(IDLE, ASKING, IDLE, ASKING, IDLE).state == "open"
    assert after(ASKING, ASKING, looking(1, question=True), ASKING, ASKING).no_progress == 0


# --- half-open, cooldown, claims -------------------------------------------------------------------


def test_one_step_before_stagnation_is_a_warning_that_work_takes_back() -> None:
    warned = after(IDLE, IDLE)
    assert (warned.state, warned.opened_at) == ("half_open", None)
    assert warned.reason == "warning: 2 iterations in a row without any evidence of work"
    closed = after(looking(1), breaker=warned)
    assert (closed.state, closed.reason, closed.no_progress) == ("closed", "", 0)
    assert after(IDLE, breaker=warned).state == "open"


def test_rest_waits_for_the_cooldown_and_a_clock_set_back_keeps_it_open() -> None:
    tripped = opened()
    assert rest(tripped, POLICY, NOW + COOLDOWN - 1) == tripped
    assert rest(tripped, POLICY, NOW - 10 * COOLDOWN) == tripped
    trial = rest(tripped, POLICY, NOW + COOLDOWN)
    assert (trial.state, trial.opened_at, trial.reason) == ("half_open", NOW, tripped.reason)
    assert rest(trial, POLICY, NOW + 9 * COOLDOWN) == trial


def test_rest_leaves_a_closed_or_warning_breaker_alone() -> None:
    for breaker in (Breaker(), after(IDLE, IDLE)):
        assert rest(breaker, POLICY, NOW + 9 * COOLDOWN) == breaker


@pytest.mark.parametrize("seen", [IDLE, ASKING, replace(IDLE, files_modified=2)])
def test_a_trial_without_evidence_opens_again_at_once(seen: Observation) -> None:
    trial = rest(opened(), POLICY, NOW + COOLDOWN)
    again = observe(trial, seen, POLICY, NOW + COOLDOWN + 5)
    assert (again.state, again.opened_at) == ("open", NOW + COOLDOWN + 5)
    assert again.reason.startswith("stagnation: no evidence of work in the trial iteration after the cooldown")


@pytest.mark.parametrize("seen", [WORK, looking(7), replace(IDLE, tasks_completed=1), looking(8, claims_done=True)])
def test_a_trial_with_evidence_closes(seen: Observation) -> None:
    trial = rest(opened(), POLICY, NOW + COOLDOWN)
    closed = after(seen, breaker=trial)
    assert (closed.state, closed.reason, closed.opened_at) == ("closed", "", None)
    assert after(IDLE, breaker=closed).state == "closed"


def test_a_trial_after_the_same_error_counts_it_anew() -> None:
    tripped = after(*(looking(n, error_signature="x") for n in range(5)))
    trial = rest(tripped, POLICY, NOW + COOLDOWN)
    assert after(looking(50, error_signature="x"), breaker=trial).state == "closed"


def test_a_claim_does_not_count_until_it_is_refused() -> None:
    assert after(*[CLAIM] * 20).no_progress == 0
    breaker = Breaker()
    for _ in range(3):
        assert breaker.state != "open"
        breaker = claim_refused(after(CLAIM, breaker=breaker), POLICY, NOW)
    assert breaker.reason == "stagnation: 3 iterations in a row without any evidence of work"


def test_a_refused_claim_after_real_work_is_no_stagnation() -> None:
    breaker = Breaker()
    for number in range(9):
        seen = looking(number, claims_done=True) if number % 2 else replace(WORK, claims_done=True)
        breaker = claim_refused(after(seen, breaker=breaker), POLICY, NOW)
    assert breaker.state == "closed"


def test_a_claim_is_refused_only_once_and_only_while_it_is_the_last_word() -> None:
    once = claim_refused(after(CLAIM), POLICY, NOW)
    assert once.no_progress == 1
    assert claim_refused(once, POLICY, NOW) == once
    assert claim_refused(opened(), POLICY, NOW) == opened()
    moved_on = after(CLAIM, looking(1))
    assert claim_refused(moved_on, POLICY, NOW) == moved_on


def test_an_idle_claim_in_a_trial_leaves_the_trial_going_until_it_is_refused() -> None:
    trial = rest(opened(), POLICY, NOW + COOLDOWN)
    claimed = after(CLAIM, breaker=trial)
    assert (claimed.state, claimed.opened_at) == ("half_open", NOW)
    assert claim_refused(claimed, POLICY, NOW + 1).state == "open"


# --- whatever comes ------------------------------------------------------------------------------

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
small = st.integers(0, 5)
observations = st.builds(
    Observation,
    changed=st.booleans(),
    activity=st.lists(st.sampled_from("abcdef"), max_size=4).map(tuple),
    tasks_completed=st.integers(-1, 2),
    has_status=st.booleans(),
    work_type=st.sampled_from([None, "TESTING", "IMPLEMENTATION", "?"]),
    error_signature=st.sampled_from(["", "x", "y"]),
    output_chars=st.integers(0, 1000),
    indicators=small,
    question=st.booleans(),
    claims_done=st.booleans(),
    files_modified=small,
)
policies = st.builds(
    Policy,
    stagnation_threshold=small,
    same_error_threshold=small,
    output_decline_threshold=st.integers(0, 100),
    max_test_loops=small,
    safety_completion_threshold=small,
)


@unhurried
@given(st.lists(observations, max_size=15), policies)
def test_real_changes_always_end_closed_and_open_stays_open(seen: list[Observation], policy: Policy) -> None:
    breaker = Breaker()
    for observation in seen:
        before, breaker = breaker, observe(breaker, observation, policy, NOW)
        if before.state == "open":
            assert breaker == before
        elif observation.changed:
            assert breaker == Breaker(last_output=observation.output_chars, recent_activity=breaker.recent_activity)
        assert (breaker.state == "closed") == (breaker.reason == "")
        assert breaker.state != "open" or breaker.opened_at == NOW
        assert breaker.state == "open" or not observation.claims_done or before.no_progress >= breaker.no_progress
    assert observe(rest(breaker, policy, NOW + policy.breaker_cooldown), WORK, policy, NOW).state == "closed"
    assert observe(reset(breaker), WORK, policy, NOW).state == "closed"


@unhurried
@given(st.lists(observations, max_size=15), policies)
def test_a_claim_never_opens_it(seen: list[Observation], policy: Policy) -> None:
    breaker = after(*seen, policy=policy)
    claimed = observe(breaker, CLAIM, policy, NOW)
    assert (claimed.state == "open") == (breaker.state == "open")
