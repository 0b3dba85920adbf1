"""On the real Claude Code: the dead are ended, the thinking and the computing are not."""

import json
import time
from pathlib import Path

import pytest

from e2e.kit import Stage, finished, staged
from e2e.liveness_kit import ARGS, DONE, SLEEPS, any_number, bash, eventually, sleeping, story
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

IDLE = 3.0


def failures(stage: Stage, run_id: str) -> list[str]:
    return [e["event_data"]["error_type"] for e in stage.events(run_id) if e["event_type"] == "iteration.failed"]


@pytest.fixture
def number() -> str:
    return any_number()


def test_thinking_in_slow_deltas_is_life(tmp_path: Path) -> None:
    slow = Reply(thinking="hm " * 100, text=finished(), chunk_delay=0.6)
    with staged(tmp_path, Scenario(name="slow", replies=(slow,))) as stage:
        began = time.monotonic()
        result = stage.result(*ARGS, "--idle-timeout", f"{IDLE:g}s", "--completion-threshold", "1")
        assert time.monotonic() - began > 3 * IDLE
        assert (result["exit_reason"], result["attempts"]) == ("completion_signal", 1)


def test_a_tool_that_computes_in_silence_is_life(tmp_path: Path) -> None:
    computes = (
        f"python3 -c 'import time; end = time.time() + {3 * IDLE}\nwhile time.time() < end: pass'; touch computed"
    )
    with staged(tmp_path, story(bash(computes), DONE)) as stage:
        result = stage.result(*ARGS, "--idle-timeout", f"{IDLE:g}s", "--completion-threshold", "1")
        assert (result["exit_reason"], result["attempts"]) == ("completion_signal", 1)
        assert (stage.repo / "computed").exists()


def test_a_subagent_that_thinks_is_life_although_claude_says_nothing_of_it(tmp_path: Path) -> None:
    """Its deltas are not passed on: only the bytes of its connection tell."""
    thinks = Reply(when="cc_is_subagent", thinking="hm " * 6000, text="Thought.", chunk_delay=0.02)
    asks = {"description": "think", "prompt": "Think.", "subagent_type": "general-purpose", "run_in_background": False}
    sends = Reply(text="Go.", tools=(ToolCall("Agent", asks),))
    with staged(tmp_path, story(thinks, sends, DONE)) as stage:
        began = time.monotonic()
        result = stage.result(*ARGS, "--idle-timeout", f"{IDLE:g}s", "--completion-threshold", "1")
        assert time.monotonic() - began > 2 * IDLE
        assert (result["exit_reason"], result["attempts"]) == ("completion_signal", 1)


@pytest.mark.parametrize("agent", ["claude_sdk", "claude_cli"])
def test_a_tool_that_sleeps_for_ever_is_ended_and_counted(tmp_path: Path, agent: str, number: str) -> None:
    escapes = f"echo half > half.txt; setsid sleep {number} & {SLEEPS}"
    with staged(tmp_path, story(bash(escapes))) as stage:
        loop = stage.popen(
            *ARGS, "--idle-timeout", f"{IDLE:g}s", "--completion-threshold", "1", "--agent", agent, "--json"
        )
        eventually(lambda: sleeping(number))
        began = time.monotonic()
        eventually(lambda: not sleeping(number), timeout=10 * IDLE)
        assert time.monotonic() - began >= 0.8 * IDLE, "it was left alone until then"
        out, _ = loop.communicate(timeout=60)
        result = json.loads(out)
        assert (result["exit_reason"], result["attempts"]) == ("completion_signal", 2)
        assert failures(stage, result["run_id"]) == ["hang"]
        second = json.dumps(stage.model.requests[-1].body["messages"])
        assert "HALF-DONE WORK" in second
        assert "no sign of life" in second
        assert "half.txt" in second
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)


def test_a_model_that_never_answers_is_ended_and_counted(tmp_path: Path) -> None:
    with staged(tmp_path, story(Reply(text="never", latency=500))) as stage:
        result = stage.result(*ARGS, "--idle-timeout", f"{IDLE:g}s", "--completion-threshold", "1")
        assert (result["exit_reason"], result["attempts"]) == ("completion_signal", 2)
        assert failures(stage, result["run_id"]) == ["hang"]
        pids = [e["event_data"]["pid"] for e in stage.events(result["run_id"]) if e["event_type"] == "agent.started"]
        assert len(set(pids)) == 2, "whatever hung is not given another prompt"


@pytest.mark.parametrize("agent", ["claude_sdk", "claude_cli"])
def test_a_background_command_after_the_last_word_is_no_hang(tmp_path: Path, agent: str) -> None:
    waits = bash("sleep 1000", run_in_background=True)
    with staged(tmp_path, story(waits, DONE)) as stage:
        grace = ("--background-grace", "6s", "--idle-timeout", "2s", "--completion-threshold", "1", "--agent", agent)
        result = stage.result(*ARGS, *grace)
        assert (result["exit_reason"], result["attempts"]) == ("completion_signal", 1)
