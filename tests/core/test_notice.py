"""Which facts a human far away hears of, and in which words."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.event_kit import values_of
from core.run_kit import START, completed, failed, opening, records, started
from untildone.core import events as ev
from untildone.core.claims import Claim, Report
from untildone.core.events import Event
from untildone.core.fold import apply, fold
from untildone.core.notice import Note, is_repetition, note_for, trial_note
from untildone.core.policy import Policy
from untildone.core.stopping import Reason

NOTED = (
    ev.ContinuousCompleted, ev.ContinuousSuspended, ev.ContinuousWaiting, ev.BudgetWarning, ev.ResourcesSeen,
    ev.IterationCompleted, ev.StoreTampered, ev.LandingHeld,
)  # fmt: skip


def note_after(*events: Event, policy: Policy | None = None) -> Note | None:
    """The note that the last of these events calls for."""
    told = records([*opening(policy), *events])
    before = fold(told[:-1])
    return note_for(before, told[-1], apply(before, told[-1]), told[-1].at)


def noted(*events: Event, policy: Policy | None = None) -> Note:
    note = note_after(*events, policy=policy)
    assert note is not None
    return note


def suspended(reason: str, detail: str = "") -> ev.ContinuousSuspended:
    return ev.ContinuousSuspended(stop_reason=reason, detail=detail)


def asking(*questions: str, number: int = 1) -> ev.IterationCompleted:
    return completed(number, claim=Claim(form="report", report=Report(status="IN_PROGRESS", questions=questions)))


DONE = ev.ContinuousCompleted(stop_reason="validation_passed", verified=True)
UNPROVEN = ev.ContinuousCompleted(stop_reason="completion_signal")
WAITING = ev.ContinuousWaiting(cause="usage_limit", until=START + 7200)
BUDGET = ev.BudgetWarning(limit_type="max_cost_usd", limit_value=5.0, current_value=4.1)
TAMPERED = ev.StoreTampered(detail="record 7 was forged", records=(7,))
HELD = ev.LandingHeld(cause="branch_switched", said="the folder is on branch main now")
DISK = ev.ResourcesSeen(disk_low=True, disk_free=100 << 20, detail="/w has 100 MiB left")


@pytest.mark.parametrize(
    ("events", "kind", "title", "body"),
    [
        ([DONE], "done", "it: done, every check passed", "untildone brief it"),
        ([HELD], "needs_you", "it: paused: waiting for its branch to be checked out again", "on branch main now"),
        ([UNPROVEN], "done", "it: done by the agent's word: no checks ran", "Nothing was verified"),
        ([suspended("max_cost_reached")], "stopped", "it: stopped: reached the limit of cost", "--max-cost"),
        ([suspended("circuit_open", "no progress")], "stopped", "it: stopped: the agent is stuck", "no progress"),
        ([suspended("outage", "529 overloaded")], "stopped", "it: stopped: rate limits", "529 overloaded"),
        ([suspended("blocked", "no database")], "needs_you", "it: needs you: the agent reported", "no database"),
        ([suspended("permission_denied", "denied: Bash(rm)")], "needs_you", "it: needs you", "denied: Bash(rm)"),
        ([suspended("authentication")], "needs_you", "it: needs you: the login or key was refused", "untildone login"),
        ([suspended("billing")], "needs_you", "it: needs you: the account has no credit", "Add credit"),
        ([WAITING], "waiting", "it: waiting for the usage limit until", "goes on by itself"),
        ([BUDGET], "budget", "it: 82 % of max_cost_usd is used", "$4.10 of $5.00."),
        ([DISK], "needs_you", "it: paused: the disk is nearly full", "/w has 100 MiB left"),
        ([TAMPERED], "needs_you", "it: its record was changed from outside", "record 7 was forged"),
        ([asking("CR or LF?")], "needs_you", "it: the agent asks: CR or LF?", "untildone message run1"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_told(events: list[Event], kind: str, title: str, body: str) -> None:
    note = noted(*events)
    assert (note.kind, note.run_id, note.name) == (kind, "run1", "it")
    assert note.title.startswith(title)
    assert body in note.body
    assert "so far, in /w" in note.body


@pytest.mark.parametrize(
    "events",
    [
        [ev.ContinuousWaiting(cause="network", until=START + 10)],
        [ev.ContinuousWaiting(cause="paused", until=None)],
        [ev.ContinuousWaiting(cause="disk_low", until=None)],
        [ev.ResourcesSeen(disk_low=False, disk_free=1 << 40)],
        [DISK, replace(DISK, disk_free=1)],
        [HELD, HELD],
        [HELD, ev.LandingHeld()],
        [HELD, ev.ContinuousWaiting(cause="git_locked", until=START + 300)],
        [TAMPERED, started(1), TAMPERED],
        [ev.SteeringRefused(command="stop")],
        [started(1)],
        [started(1), failed(1, "overloaded")],
        [started(1), completed(1)],
        [asking("CR or LF?"), asking("CR or LF?", number=2)],
        [asking(" ")],
    ],
    ids=[
        "a short wait", "a pause that was asked for", "the wait for the disk", "room again", "a worse disk",
        "held again", "held no more", "the wait for that", "more of the same meddling", "a refused command",
        "a start", "a fault that passes", "an iteration", "the same question", "no question at all",
    ],
)  # fmt: skip
def test_what_is_not_told(events: list[Event]) -> None:
    assert note_after(*events) is None


def test_an_agent_that_ends_with_a_question_is_heard_once() -> None:
    asks = completed(1, claim=Claim(question=True), output_preview="I looked.\nShall I delete it?")
    assert noted(asks).title == "it: the agent asks: Shall I delete it?"
    assert note_after(asks, replace(asks, iteration_num=2)) is None


def test_every_stop_reason_has_words_and_a_next_step() -> None:
    for reason in Reason:
        note = noted(suspended(reason))
        assert "`" in note.body, reason
        assert note.facts["reason"] == reason


def test_the_facts_are_for_programs() -> None:
    note = noted(started(1), completed(1, cost_usd=0.5), suspended("max_runs_reached", "x"))
    assert note.facts == {
        "event": "continuous.suspended", "reason": "max_runs_reached", "exit_code": 3, "detail": "x", "resumable": True,
        "folder": "/w", "attempts": 1, "successes": 1, "cost_usd": 0.5, "estimated_usd": 0.0,
        "elapsed_seconds": 3.0, "commits": 0, "commit": None,
    }  # fmt: skip
    assert (note.id, note.at) == ("run1-5", START + 5)


def test_a_raised_budget_is_one_command_away() -> None:
    note = noted(BUDGET, policy=Policy(max_cost_usd=5.0))
    assert "Raise it with `untildone limits it --max-cost 10`." in note.body


def test_hostile_text_is_made_safe_and_short() -> None:
    note = noted(suspended("blocked", "\x1b[2J\x1b]0;owned\x07 \u202egnp" + "x" * 10_000))
    assert "\x1b" not in note.body + note.title + str(note.facts)
    assert "\u202e" not in note.body
    assert len(note.body) <= 2000
    question = noted(asking("a\nb\x1b[31m" + "y" * 500))
    assert "\n" not in question.title
    assert len(question.title) <= 120


def test_one_outage_is_told_once_an_hour() -> None:
    first, other = noted(replace(WAITING, cause="overloaded")), noted(WAITING)
    told = {first.topic: first.at}
    assert is_repetition(replace(first, at=first.at + 3599), told)
    assert not is_repetition(replace(first, at=first.at + 3601), told)
    assert not is_repetition(other, told)


def test_a_stop_is_never_a_repetition() -> None:
    stop = noted(suspended("outage"))
    assert not is_repetition(stop, {stop.topic: stop.at})


def test_a_trial_says_that_it_is_one() -> None:
    note = trial_note(START)
    assert ("test" in note.title, note.facts, note.run_id) == (True, {"event": "test"}, "test")


@settings(max_examples=80, deadline=None)
@given(data=st.data(), now=st.floats(allow_nan=False, allow_infinity=False))
def test_no_event_however_strange_breaks_it(data: st.DataObject, now: float) -> None:
    kind: Any = data.draw(st.sampled_from(NOTED))
    record = ev.Record(seq=9, at=START, event=data.draw(values_of(kind)))
    before = fold(records(opening()))
    note = note_for(before, record, apply(before, record), now)
    assert note is None or (len(note.body) <= 2000 and "\n" not in note.title)
