"""The real Claude Code takes the scripted model for the Messages API, and both keep the same books."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from rehearsal.rehearsal_client import bundled_claude, run_claude
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.ledger import LedgerLine
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall, shipped_scenario

pytestmark = pytest.mark.claude


def total(lines: tuple[LedgerLine, ...], field: str) -> int:
    return sum(getattr(line, field) for line in lines)


def assert_books_agree(model: ScriptedModel, result: dict[str, object]) -> None:
    """Claude's result and the ledger of complete replies hold the same tokens."""
    usages = result["modelUsage"]
    assert isinstance(usages, dict)
    served = model.ledger.served()
    for ours, theirs in {
        "input_tokens": "inputTokens",
        "output_tokens": "outputTokens",
        "cache_read_tokens": "cacheReadInputTokens",
        "cache_write_tokens": "cacheCreationInputTokens",
    }.items():
        assert total(served, ours) == sum(usage[theirs] for usage in usages.values())


def test_tools_really_work_and_a_subagent_is_answered_by_its_condition(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n", encoding="utf-8")
    edit = {"file_path": "a.txt", "old_string": "one", "new_string": "two"}
    task = {"description": "d", "prompt": "count", "subagent_type": "general-purpose"}
    replies = (
        Reply(text="counted", when="cc_is_subagent"),
        Reply(tools=(ToolCall("Read", {"file_path": "a.txt"}),)),
        Reply(text="now", tools=(ToolCall("Edit", edit), ToolCall("Bash", {"command": "cp a.txt b-{i}.txt"}))),
        Reply(tools=(ToolCall("Agent", task),)),
        Reply(text="done {n}", thinking="hm", cache_read_tokens=50, cache_write_tokens=60),
    )
    with ScriptedModel(Scenario(name="t", replies=replies)) as model:
        run = run_claude(model, folder, "--settings", '{"env":{"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS":"1"}}')
        heard = json.dumps(model.requests[-1].body["messages"][-1])
        assert (run.code, run.result["result"], run.result["is_error"]) == (0, "done 5", False)
        assert len(model.ledger.served()) == 5
        assert_books_agree(model, run.result)
    assert (folder / "b-1.txt").read_text(encoding="utf-8") == "two\n"
    assert "counted" in heard


def test_a_rate_limit_is_waited_out_and_a_dropped_stream_is_asked_for_again(tmp_path: Path) -> None:
    limit = Reply(status=429, headers=(("retry-after", "1"),))
    # Claude books the input of a cut reply, and one token of output, if it had time to read the beginning.
    cut = Reply(text="never to be heard", cut_after=0.6, chunk_delay=1.0, input_tokens=700)
    with ScriptedModel(Scenario(name="t", iterations=((limit, cut, Reply(text="whole")),))) as model:
        run = run_claude(model, tmp_path / "work")
        assert run.result["result"] == "whole"
        waited = [(retry["error_status"], retry["retry_delay_ms"]) for retry in run.retries]
        assert waited[0] == (429, 1000)
        assert [(line.status, line.complete) for line in model.ledger.lines][1:] == [(200, False), (200, True)]
        assert model.ledger.lines[0].status == 429
        ((broken,), (whole,)) = model.ledger.cut(), model.ledger.served()
    (booked,) = run.result["modelUsage"].values()
    assert booked["inputTokens"] == broken.input_tokens + whole.input_tokens
    assert booked["outputTokens"] == 1 + whole.output_tokens


def test_a_killed_client_leaves_a_cut_reply(tmp_path: Path) -> None:
    slow = Reply(text="word " * 2000, chunk_delay=2.0)
    with ScriptedModel(Scenario(name="t", replies=(slow,))) as model:
        process = subprocess.Popen(
            [bundled_claude(), "-p", "go"],
            cwd=tmp_path, env=claude_environment(tmp_path, model.url), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            model.wait_for_request(1)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=240)
        assert [line.complete for line in model.ledger.wait_for(1)] == [False]


def test_a_cleared_conversation_begins_the_next_group(tmp_path: Path) -> None:
    prompts = ("first", "/clear", "second")
    said = [{"type": "user", "message": {"role": "user", "content": text}} for text in prompts]
    groups = ((Reply(text="in {i}"),), (Reply(text="now in {i}"),))
    with ScriptedModel(Scenario(name="t", iterations=groups)) as model:
        run = run_claude(model, tmp_path / "work", stdin="".join(f"{json.dumps(line)}\n" for line in said))
    results = [line["result"] for line in run.lines if line["type"] == "result" and line.get("result")]
    assert results == ["in 1", "now in 2"]


@pytest.mark.soak
def test_a_resumed_conversation_stays_in_its_group(tmp_path: Path) -> None:
    groups = ((Reply(text="one"), Reply(text="two")), (Reply(text="other"),))
    with ScriptedModel(Scenario(name="t", iterations=groups)) as model:
        first = run_claude(model, tmp_path / "work")
        second = run_claude(model, tmp_path / "work", "--resume", first.result["session_id"])
        third = run_claude(model, tmp_path / "work")
    assert [run.result["result"] for run in (first, second, third)] == ["one", "two", "other"]


@pytest.mark.soak
def test_the_expensive_scenario_costs_what_it_says(tmp_path: Path) -> None:
    with ScriptedModel(shipped_scenario("expensive")) as model:
        run = run_claude(model, tmp_path / "work", "--model", "claude-opus-5-5")
        assert run.result["total_cost_usd"] == pytest.approx(3 * 1.60)
        assert_books_agree(model, run.result)
