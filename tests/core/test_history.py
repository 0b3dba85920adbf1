"""The table of iterations."""

import pytest

from core.night_kit import night
from core.run_kit import after, completed, failed, opening, records, started
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.fold import fold
from untildone.core.history import iteration_rows
from untildone.core.outcome import Evidence, Usage


def test_one_row_for_each_iteration_with_all_its_tries() -> None:
    first, second, third = iteration_rows(night())
    assert (first.number, first.tries, first.outcome, first.files_changed) == (1, 1, "ok", 2)
    assert first.commits == ("3f9ac21e77d1b2",)
    assert (first.claim, first.verdict, first.summary) == ("", "", "keep the last byte")
    assert (second.tries, second.faults, second.outcome) == (2, ("rate_limit",), "ok")
    assert second.cost_usd == pytest.approx(2.11)
    assert second.estimated_usd == pytest.approx(0.02)
    assert (second.claim, second.verdict) == ("done (report)", "failed")
    assert (third.claim, third.verdict) == ("done (report)", "passed")


def test_the_rows_add_up_to_the_ledger() -> None:
    for upto in range(1, len(night()) + 1):
        state, rows = fold(night(upto)), iteration_rows(night(upto))
        assert sum(row.cost_usd + row.estimated_usd for row in rows) == pytest.approx(state.spent_usd)


def test_an_iteration_left_behind_keeps_its_money_and_says_so() -> None:
    reply = tr.AgentReply(iteration_num=1, message_id="m", model="m", usage=Usage(), cost_usd=0.3)
    rows = iteration_rows(records([*opening(), started(1), reply, started(2), completed(2, cost_usd=None)]))
    assert [(row.outcome, row.cost_usd) for row in rows] == [("abandoned", 0.3), ("ok", 0.0)]
    assert rows[1].unknown_costs == 1


def test_the_running_iteration_is_a_row_too() -> None:
    reply = tr.AgentReply(iteration_num=1, message_id="m", model="m", usage=Usage(), cost_usd=0.3)
    (row,) = iteration_rows(records([*opening(), started(1), reply]))
    assert (row.outcome, row.cost_usd) == ("running", 0.3)


def test_facts_without_their_beginning_are_still_shown() -> None:
    rows = iteration_rows(records([failed(7, "crash"), ev.IterationValidation(iteration_num=8, passed=True)]))
    assert [(row.number, row.outcome, row.verdict) for row in rows] == [(7, "crash", ""), (8, "running", "passed")]


def test_files_are_those_of_the_commit_not_what_each_try_seemed_to_change() -> None:
    seemed = Evidence(changed=True, files_changed=2)
    one, two = (ev.LandingCommitted(iteration_num=n, commit=f"c{n}", files_changed=n + 1) for n in (1, 2))
    events = [
        started(1), failed(1, "overloaded", evidence=Evidence(changed=True, files_changed=1)),
        started(1, retry=1), completed(1, evidence=seemed), one,
        started(2), completed(2, evidence=seemed), two,
        started(3), completed(3, evidence=seemed),
    ]  # fmt: skip
    rows = iteration_rows(records([*opening(), *events]))
    assert [row.files_changed for row in rows] == [2, 3, 2]
    assert after(*events).files_modified == sum(row.files_changed for row in rows)
