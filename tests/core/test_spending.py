"""Who paid, and what trouble has cost."""

from dataclasses import replace

import pytest

from core.run_kit import after, completed, failed, started
from untildone.core import trace as tr
from untildone.core.outcome import Usage
from untildone.core.spending import filed, lane_name, lanes, lost_to_retries, paid_by
from untildone.core.state import LoopState


def session(lane: str | None, number: int = 1) -> tr.AgentSession:
    return tr.AgentSession(iteration_num=number, session_id=f"s{number}", lane=lane)


def reply(cost: float, number: int = 1) -> tr.AgentReply:
    return tr.AgentReply(iteration_num=number, message_id=f"m{cost}", model="m", usage=Usage(), cost_usd=cost)


@pytest.mark.parametrize(
    ("source", "lane"),
    [
        ("none", "subscription"), ("oauth", "subscription"), ("ANTHROPIC_API_KEY", "API key"),
        ("apiKeyHelper", "API key"), ("/login managed key", "API key"), ("project", "API key"),
        ("\x1b[2Jsomething new", "unknown"), ("", "unknown"), (None, "unknown"),
    ],
)  # fmt: skip
def test_a_purse_has_a_name(source: str | None, lane: str) -> None:
    assert lane_name(source) == lane


def test_each_purse_pays_for_its_own_iterations() -> None:
    state = after(
        started(1), session("none"), completed(1, cost_usd=2.0, estimated_usd=0.1),
        started(2), session("ANTHROPIC_API_KEY", 2), failed(2, "crash", cost_usd=0.4),
        started(3), session("none", 3), completed(3, cost_usd=1.0),
    )  # fmt: skip
    assert dict(state.spend_by_lane) == pytest.approx({"subscription": 3.1, "API key": 0.4})
    assert paid_by(state) == "subscription $3.10 (nominal), API key $0.40"


def test_the_purses_together_are_all_that_was_spent_while_an_iteration_runs_and_after_it_was_abandoned() -> None:
    running = (started(1), session("none"), completed(1, cost_usd=2.0), started(2), reply(0.5, 2))
    assert lanes(after(*running)) == (("subscription", 2.5),)
    left = after(*running, started(3))
    assert sum(usd for _, usd in left.spend_by_lane) == pytest.approx(left.spend.total_usd)
    assert left.spend_by_lane == (("subscription", 2.5),)


def test_a_purse_nobody_named_is_not_spoken_of() -> None:
    nameless = after(started(1), completed(1, cost_usd=2.0))
    assert (nameless.spend_by_lane, paid_by(nameless)) == ((("unknown", 2.0),), "")
    assert (paid_by(LoopState()), lost_to_retries(LoopState())) == ("", "")


def test_what_trouble_has_cost_is_told_by_fault_the_dearest_first() -> None:
    state = after(
        started(1), failed(1, "hang", cost_usd=0.12), started(2), failed(2, "overloaded", cost_usd=0.2),
        started(2, retry=1), failed(2, "overloaded", cost_usd=0.05, estimated_usd=0.05),
        started(2, retry=2), failed(2, "network", cost_usd=0.0),
    )  # fmt: skip
    assert lost_to_retries(state) == "$0.42 to retries: overloaded $0.30, hang $0.12"


def test_replies_of_a_try_that_booked_nothing_itself_are_lost_with_it() -> None:
    state = after(started(1), reply(0.25), failed(1, "crash", cost_usd=None))
    assert state.lost_usd == (("crash", 0.25),)


@pytest.mark.parametrize("fault", ["stopped", "paused", "steered", "limit_reached", "quota_kept"])
def test_what_was_cut_off_on_purpose_is_not_lost_to_trouble(fault: str) -> None:
    state = after(started(1), failed(1, fault, cost_usd=1.0))
    assert state.lost_usd == ((fault, 1.0),)
    assert lost_to_retries(state) == ""


def test_nothing_is_filed_for_nothing() -> None:
    assert filed((("a", 1.0),), "b", 0.0) == (("a", 1.0),)


def test_what_is_estimated_counts_against_a_budget_while_the_iteration_runs() -> None:
    state = after(
        started(1),
        tr.AgentPriceUnknown(iteration_num=1, model="m"),
        tr.AgentReply(iteration_num=1, message_id="a", model="m", usage=Usage(), estimated_usd=0.6),
        tr.AgentReplyStarted(iteration_num=1, message_id="b", model="m", usage=Usage(), estimated_usd=0.2),
    )
    assert (state.unpriced, state.spent_usd) == (("m",), 0.6)
    assert state.open is not None
    assert (state.open.spend.unknown_costs, state.open.reply_under_way_usd) == (0, 0.2)
    assert after(started(1), replace(reply(0), cost_usd=None)).open.spend.unknown_costs == 1  # type: ignore[union-attr]
