"""The price list, against what Claude Code itself booked."""

import json
import math
from pathlib import Path

import pytest

from agents.conformance import Stage, order
from untildone.agents.claude_cli import ClaudeCli
from untildone.agents.environment import agent_environment
from untildone.agents.prices import PRICES, cost, cost_from, price_of, usage_from
from untildone.core.outcome import Usage
from untildone.core.policy import AgentOptions
from untildone.core.trace import AgentReply
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall
from untildone.sandbox.host import HostSpawner

CAPTURES = sorted((Path(__file__).parent.parent / "fixtures" / "claude-stream").glob("*.jsonl"))


def booked() -> list[tuple[str, Usage, float]]:
    lines = (json.loads(line) for path in CAPTURES for line in path.read_bytes().splitlines())
    return [
        (name, Usage(m["inputTokens"], m["outputTokens"], m["cacheReadInputTokens"], m["cacheCreationInputTokens"]),
         m["costUSD"])
        for line in lines if line["type"] == "result"
        for name, m in line.get("modelUsage", {}).items()
    ]  # fmt: skip


def test_the_captures_book_what_the_list_says() -> None:
    cases = booked()
    assert len(cases) > 30
    assert {name for name, _, _ in cases} >= {"claude-opus-5-5", "claude-sonnet-5-5"}
    for name, usage, dollars in cases:
        assert cost(name, usage) == pytest.approx(dollars, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("claude-opus-5", "claude-opus-5"),
        ("claude-opus-5-5[1m]", "claude-opus-5-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("anthropic/claude-opus-4-6", "claude-opus-4-6"),
    ],
)
def test_a_model_is_known_by_its_family(model: str, family: str) -> None:
    assert price_of(model) is PRICES[family]


@pytest.mark.parametrize(
    "model", ["", "gpt-9", "claude-opus-5-9", "claude-opus-4-1", "claude-", "x" * 10_000, "<synthetic>"]
)
def test_a_model_without_a_price_is_unknown_and_never_free(model: str) -> None:
    assert cost(model, Usage(1000, 1000)) is None
    assert cost_from(model, {"input_tokens": 5}) is None


def test_each_kind_of_token_has_its_price() -> None:
    million = 1_000_000
    assert cost("claude-sonnet-4-5", Usage(million)) == pytest.approx(3)
    assert cost("claude-sonnet-4-5", Usage(0, million)) == pytest.approx(15)
    assert cost("claude-sonnet-4-5", Usage(0, 0, million)) == pytest.approx(0.3)
    assert cost("claude-sonnet-4-5", Usage(0, 0, 0, million)) == pytest.approx(3.75)
    assert cost("claude-sonnet-4-5", Usage(0, 0, 0, million), hour_cache_writes=million) == pytest.approx(6)


def test_a_long_prompt_costs_more_where_the_list_says_so() -> None:
    assert cost("claude-haiku-5-5", Usage(100_000, 100)) == pytest.approx((100_000 * 0.1 + 100 * 0.5) / 1e6)
    assert cost("claude-haiku-5-5", Usage(50_000, 100, 50_001)) == pytest.approx(
        (50_000 * 0.5 + 100 * 2.5 + 50_001 * 0.05) / 1e6
    )


def test_the_usage_object_is_read_with_cache_lifetimes_and_searches() -> None:
    raw = {
        "input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 100,
        "cache_creation": {"ephemeral_1h_input_tokens": 40, "ephemeral_5m_input_tokens": 60},
        "server_tool_use": {"web_search_requests": 2},
    }  # fmt: skip
    assert usage_from(raw) == Usage(10, 20, 30, 100)
    tokens = (10 * 4 + 20 * 20 + 30 * 0.2 + 60 * 5 + 40 * 8) / 1e6
    assert cost_from("claude-opus-5-5", raw) == pytest.approx(tokens + 0.02)


@pytest.mark.parametrize(
    "raw", [None, 3, [], {"input_tokens": "9", "output_tokens": -1, "cache_creation": 7}, {"input_tokens": True}]
)
def test_nonsense_counts_nothing(raw: object) -> None:
    assert usage_from(raw) == Usage()
    assert cost_from("claude-opus-5-5", raw) == 0


@pytest.mark.claude
@pytest.mark.anyio
@pytest.mark.parametrize("model", ["haiku", pytest.param("sonnet", marks=pytest.mark.soak)])
async def test_the_real_program_books_what_the_list_says(tmp_path: Path, model: str) -> None:
    goes_on = (ToolCall("Bash", {"command": "true"}),)
    replies = (
        Reply(tools=goes_on, input_tokens=100_000, output_tokens=900),
        Reply(tools=goes_on, cache_write_tokens=4_000, cache_write_1h_tokens=30_000, cache_read_tokens=50_000),
        Reply(text="hi", input_tokens=60_000, cache_read_tokens=40_001, cache_write_tokens=100, output_tokens=9),
    )
    with ScriptedModel(Scenario(name="prices", replies=replies)) as api:
        env = agent_environment(claude_environment(tmp_path, api.url), run_id="r")
        stage = Stage(api, tmp_path, env)
        agent = ClaudeCli(AgentOptions(model=model), HostSpawner(), cwd=str(tmp_path), env=env)
        outcome = await stage.run(agent, order())
    told = stage.of(AgentReply)
    assert len(told) >= len(replies)
    assert math.fsum(event.cost_usd for event in told) == pytest.approx(outcome.cost_usd, rel=1e-9)
