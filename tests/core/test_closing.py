"""How an iteration ends: when the next try is made, and in which session."""

from typing import Any

import pytest

from core.run_kit import START, after, failed, started
from untildone.core import events as ev
from untildone.core.closing import BACKOFF_CAP, RESET_MARGIN, Change, close_iteration
from untildone.core.decide import Iterate, Stop, Wait, decide
from untildone.core.fold import fold
from untildone.core.limits import LONGEST_PROBE
from untildone.core.outcome import FaultEvidence, Outcome
from untildone.core.policy import Policy
from untildone.core.state import LoopState

NOW = START + 100
API: dict[str, Any] = {"subtype": "success", "terminal_reason": "api_error"}


def close(state: LoopState, *, jitter: float = 1.0, session: str | None = "s1", **evidence: Any) -> ev.IterationFailed:
    outcome = Outcome(session_id=session, failure=FaultEvidence(**{**API, **evidence}))
    closed = close_iteration(state, outcome, Change(), None, prompt="", now=NOW, jitter=jitter)
    assert isinstance(closed, ev.IterationFailed)
    return closed


def in_outage(tries: int, fault: str = "overloaded") -> LoopState:
    past = [event for retry in range(tries) for event in (started(1, retry=retry), failed(1, fault, session_id="s1"))]
    return after(*past, started(1, retry=tries))


def test_a_usage_limit_is_waited_out_until_its_reset_and_a_moment_longer() -> None:
    closed = close(after(started(1)), api_error="usage_limit_reached", resets_at=NOW + 500)
    assert (closed.error_type, closed.retry_at) == ("usage_limit", NOW + 500 + RESET_MARGIN)
    assert 0 < RESET_MARGIN <= 2


def test_words_are_read_only_where_no_number_was_given() -> None:
    text = "You've hit your limit · try again in 5 minutes"
    named = close(after(started(1)), api_error="usage_limit_reached", resets_at=NOW + 500, text=text)
    assert named.retry_at == NOW + 500 + RESET_MARGIN
    worded = close(after(started(1)), api_error="usage_limit_reached", text=text)
    assert worded.retry_at == NOW + 300 + RESET_MARGIN
    retried = close(after(started(1)), api_error_status=429, retry_after=7.0, text=text)
    assert retried.retry_at == NOW + 7


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Done.\n\nShould I use SQLite or files?", "Should I use SQLite or files?"),
        ("**Which one?**\n\n---LOOP_STATUS---\nSTATUS: IN_PROGRESS\n---END_LOOP_STATUS---\n", "**Which one?**"),
        ("Is it done? Yes.", ""),
        ("", ""),
    ],
)
def test_the_question_that_a_message_ends_with_is_evidence(text: str, question: str) -> None:
    outcome = Outcome(final_text=text, cost_usd=0.1)
    closed = close_iteration(after(started(1)), outcome, Change(), None, prompt="", now=START, jitter=0.0)
    assert closed.evidence.question == question


def test_a_reset_nobody_can_read_backs_off() -> None:
    pauses = [
        (close(in_outage(n, "usage_limit"), api_error="usage_limit_reached", text="later").retry_at or 0) - NOW
        for n in range(6)
    ]
    assert pauses == sorted(set(pauses))
    late = close(in_outage(50, "usage_limit"), api_error="usage_limit_reached", text="later")
    assert late.retry_at == NOW + LONGEST_PROBE


def test_a_reset_that_is_over_and_did_not_help_does_not_make_the_loop_spin() -> None:
    gone = {"api_error": "usage_limit_reached", "resets_at": NOW - 60}
    first, later = close(in_outage(0, "usage_limit"), **gone), close(in_outage(9, "usage_limit"), **gone)
    assert first.retry_at is not None
    assert later.retry_at is not None
    assert NOW < first.retry_at < later.retry_at


def test_pauses_grow_up_to_a_cap_and_jitter_spreads_them() -> None:
    states = [in_outage(tries) for tries in (0, 5, 10, 40)]
    longest = [(close(state, api_error_status=529).retry_at or 0) - NOW for state in states]
    assert longest == sorted(longest)
    assert longest[-1] == BACKOFF_CAP
    shortest = [(close(state, api_error_status=529, jitter=0.0).retry_at or 0) - NOW for state in states]
    assert shortest == [pause / 2 for pause in longest]


@pytest.mark.parametrize("outage", [20.0, 300.0])
def test_after_an_outage_of_any_length_work_goes_on_within_a_third_of_it(outage: float) -> None:
    at, tries = 0.0, 0
    while at < outage:
        at += (close(in_outage(tries), api_error_status=529).retry_at or 0) - NOW
        tries += 1
    assert at <= outage * 4 / 3


def test_retry_after_is_never_undercut() -> None:
    for tries in (0, 20):
        closed = close(in_outage(tries), api_error_status=429, retry_after=20.0, jitter=0.0)
        assert (closed.retry_at or 0) >= NOW + 20


def test_six_failures_in_an_outage_cost_no_attempt() -> None:
    state = after(started(1))
    for n in range(6):
        closed = close(state, api_error_status=529)
        state = fold([ev.Record(seq=state.last_seq + 1, at=NOW, event=closed)], state)
        assert isinstance(decide(state, NOW), Wait)
        assert decide(state, closed.retry_at or 0) == Iterate(1, n + 1, "s1")
        state = fold([ev.Record(seq=state.last_seq + 1, at=NOW, event=started(1, retry=n + 1))], state)
    assert (state.attempts, state.failures_in_a_row) == (1, 0)


def test_the_session_survives_a_process_that_never_said_which_it_was() -> None:
    state = after(started(1), failed(1, "overloaded", session_id="s1"), started(1, retry=1, resume_session="s1"))
    assert close(state, session=None, api_error_status=529).session_id == "s1"


def test_a_session_that_is_gone_is_replaced_by_a_fresh_one_at_no_cost() -> None:
    state = after(started(1), failed(1, "overloaded", session_id="s1"), started(1, retry=1, resume_session="s1"))
    lost = {
        "subtype": "error_during_execution",
        "terminal_reason": None,
        "text": "No conversation found with session ID",
    }
    closed = close(state, session=None, **lost)
    assert (closed.error_type, closed.session_id) == ("session_lost", None)
    state = fold([ev.Record(seq=state.last_seq + 1, at=NOW, event=closed)], state)
    assert decide(state, NOW + 10) == Iterate(1, 2, None)


def test_an_outage_that_outlasts_its_budget_stops_the_run() -> None:
    trouble = (started(1), failed(1, "network", session_id="s"), started(1, retry=1), failed(1, "network"))
    state = after(*trouble, every=Policy().outage_budget / 2 + 1)
    assert isinstance(decide(state, START), Stop)


def test_a_machine_that_slept_through_the_budget_tries_again_first() -> None:
    state = after(started(1), failed(1, "network", session_id="s"))
    assert decide(state, START + state.policy.outage_budget * 2) == Iterate(1, 1, "s")


def test_a_reset_farther_away_than_any_limit_lasts_is_not_waited_for() -> None:
    closed = close(after(started(1)), api_error="usage_limit_reached", resets_at=NOW + 400 * 86_400)
    assert closed.error_type == "usage_limit"
    assert NOW < (closed.retry_at or 0) < NOW + 10
