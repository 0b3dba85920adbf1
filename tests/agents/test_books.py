"""The money of one iteration: nothing lost, nothing counted twice, nothing unknown called free."""

import pytest

from agents.made_lines import STOPPED, books, end, fold, lines, of, parsed, result, said, start, text, tool
from untildone.agents.prices import PRICES, cost, dearest
from untildone.core.outcome import Usage
from untildone.core.trace import AgentPriceUnknown, AgentReply, AgentReplyStarted


def test_a_cut_reply_is_an_estimate_though_its_stream_was_closed_properly() -> None:
    aborted = result(
        subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming", **books(0.006)
    )
    conversation, events = fold(
        lines(start("m1"), end(), start("m2", 50_000), STOPPED, said("m2", text("cut off")), aborted)
    )
    outcome = conversation.outcome(interrupted=True)
    assert outcome.interrupted
    assert outcome.failure is None
    assert outcome.cost_usd == pytest.approx(0.006)
    assert outcome.estimated_usd == pytest.approx(0.20002)
    assert [event.message_id for event in of(events, AgentReply)] == ["m1"]


def test_replies_no_result_accounts_for_are_booked_from_the_stream() -> None:
    late = (start("m2"), end(50))
    outcome = fold(lines(start("m1"), end(), result(**books(0.006, 1000)), *late))[0].outcome()
    assert outcome.cost_usd == pytest.approx(0.006 + 0.005)
    assert outcome.usage == Usage(2000, 50)
    alone = fold(lines(*late))[0].outcome(exit_code=-9)
    assert alone.cost_usd == pytest.approx(0.005)
    assert alone.failure is not None
    assert alone.failure.signal == 9
    assert not alone.failure.has_result


def test_a_model_without_a_price_is_counted_at_the_dearest_one_and_said_once() -> None:
    unknown = (start("m1", model="other-model"), end(), start("m2", model="other-model"), end())
    conversation, events = fold(lines(*unknown))
    assert [event.model for event in of(events, AgentPriceUnknown)] == ["other-model"]
    dear = dearest(Usage(1000, 100))
    assert dear >= max(cost(model, Usage(1000, 100)) or 0.0 for model in PRICES)
    assert [(reply.cost_usd, reply.estimated_usd) for reply in of(events, AgentReply)] == [(None, dear)] * 2
    outcome = conversation.outcome()
    assert (outcome.cost_usd, outcome.estimated_usd) == (0.0, pytest.approx(2 * dear))


def test_what_claude_says_a_model_without_a_price_costs_is_not_believed() -> None:
    guess = {"model_usage_since_last_result": {"other-model": {"costUSD": 0.001, "inputTokens": 1000}}}
    for claims in (guess, {"total_cost_usd": 0.001}):
        outcome = fold(lines(start("m1", model="other-model"), end(0), result(**claims)))[0].outcome()
        assert outcome.cost_usd == 0.0
        assert outcome.estimated_usd == pytest.approx(dearest(Usage(1000, 0)), rel=0.01)


def test_totals_are_used_when_a_result_has_nothing_better() -> None:
    results = (
        result(total_cost_usd=1.5, usage={"input_tokens": 10}),
        result(total_cost_usd=1.75),
        result(total_cost_usd=0.1),
    )
    outcome = fold(lines(*results), baseline_usd=1.0)[0].outcome()
    assert outcome.cost_usd == pytest.approx(0.5 + 0.25 + 0.1)  # the last one began anew
    assert outcome.usage.input_tokens == 10


def test_a_result_without_books_leaves_the_replies_to_be_counted() -> None:
    assert fold(lines(start("m1"), end(), result()))[0].outcome().cost_usd == pytest.approx(0.006)


def test_without_partial_messages_replies_are_seen_begin_and_the_result_books_them() -> None:
    conversation, events = fold(lines(said("m1", text("a")), said("m1", tool("Bash", {})), said("m2", text("b"))))
    assert [event.message_id for event in of(events, AgentReplyStarted)] == ["m1", "m2"]
    assert of(events, AgentReply) == []
    assert conversation.outcome().estimated_usd == pytest.approx(2 * 0.00402)
    [line] = parsed(lines(result(**books(0.02))))
    conversation.feed(line)
    assert conversation.outcome().cost_usd == 0.02
    assert conversation.outcome().estimated_usd == 0


def test_a_delta_names_its_message_or_means_the_last_one() -> None:
    _, events = fold(lines(start("m1"), start("m2"), end(5, api_message_id="m1"), end(6), end(7)))
    assert [(event.message_id, event.usage.output_tokens) for event in of(events, AgentReply)] == [("m1", 5), ("m2", 6)]


def test_a_reply_that_came_whole_after_broken_streams_is_served_and_the_broken_ones_are_estimates() -> None:
    whole = said("m3", text("at last"))
    whole["message"] |= {"stop_reason": "end_turn", "usage": {"input_tokens": 1000, "output_tokens": 100}}
    broken = (start("m1"), STOPPED, start("m2"), STOPPED)
    conversation, events = fold(lines(*broken, whole, whole, result(**books(0.006 + 2 * 0.00402))))
    outcome = conversation.outcome()
    assert [event.message_id for event in of(events, AgentReply)] == ["m3"]
    assert outcome.cost_usd == pytest.approx(0.006)
    assert outcome.estimated_usd == pytest.approx(2 * 0.00402)
