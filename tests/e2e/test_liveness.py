"""On the real Claude Code: an agent that hangs is ended, one that thinks or computes is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.kit import Stage, finished, staged
from e2e.liveness_kit import ARGS, DONE, SLEEPS, any_number, bash, sleepers, story
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

IDLE = 6.0
"""Seconds. In such a silence a tool must get a ninth of a core to be seen to compute, however busy the machine is."""
PATIENT = (*ARGS, "--idle-timeout", f"{IDLE:g}s", "--completion-threshold", "1")
# A third of a core: much more than an agent that waits, and not all that this machine has.
COMPUTES = f"""python3 -c '
import time
end = time.time() + {1.5 * IDLE}
while time.time() < end:
    burnt = time.process_time() + 0.1
    while time.process_time() < burnt: pass
    time.sleep(0.2)
'; touch computed"""
ONE_AGENT = ["claude_sdk", pytest.param("claude_cli", marks=pytest.mark.soak)]


def of_kind(stage: Stage, kind: str) -> list[dict[str, Any]]:
    return [event for event in stage.events("liver") if event["event_type"] == kind]


def check_hang(stage: Stage, result: dict[str, Any], last_sign: str) -> None:
    """The first iteration was ended after the timeout and not before, and the second one reached the goal."""
    assert (result["exit_reason"], result["attempts"]) == ("completion_signal", 2)
    (failed,) = of_kind(stage, "iteration.failed")
    assert failed["event_data"]["error_type"] == "hang"
    assert failed["at"] - of_kind(stage, last_sign)[0]["at"] >= 0.8 * IDLE, "it was left alone until then"
    pids = [event["event_data"]["pid"] for event in of_kind(stage, "agent.started")]
    assert len(set(pids[:2])) == 2, "a process that hung gets no other prompt"


@pytest.mark.soak
@pytest.mark.parametrize("agent", ["claude_sdk", "claude_cli"])
def test_a_tool_that_computes_in_silence_is_life_and_a_background_command_is_no_hang(
    tmp_path: Path, agent: str
) -> None:
    """Outside the soak: tests/sandbox/test_vitals.py, tests/core/test_liveness.py and tests/engine/test_liveness.py."""
    waits = bash("sleep 1000", run_in_background=True)
    with staged(tmp_path, story(bash(COMPUTES), waits, DONE)) as stage:
        result = stage.result_here(*PATIENT, "--background-grace", f"{IDLE + 2:g}s", "--agent", agent)
        assert (result["exit_reason"], result["attempts"]) == ("completion_signal", 1)
        assert (stage.repo / "computed").exists()


@pytest.mark.soak
def test_thinking_in_slow_deltas_is_life(tmp_path: Path) -> None:
    slow = Reply(thinking="hm " * 100, text=finished(), chunk_delay=IDLE / 4)
    with staged(tmp_path, Scenario(name="slow", replies=(slow,))) as stage:
        result = stage.result_here(*PATIENT)
        assert result["elapsed_seconds"] > 2 * IDLE
        assert (result["exit_reason"], result["attempts"]) == ("completion_signal", 1)


@pytest.mark.soak
def test_a_subagent_that_thinks_is_life_although_claude_says_nothing_of_it(tmp_path: Path) -> None:
    """Its deltas are not passed on: only the bytes of its connection tell."""
    thinks = Reply(when="cc_is_subagent", thinking="hm " * 12_000, text="Thought.", chunk_delay=0.02)
    asks = {"description": "think", "prompt": "Think.", "subagent_type": "general-purpose", "run_in_background": False}
    sends = Reply(text="Go.", tools=(ToolCall("Agent", asks),))
    with staged(tmp_path, story(thinks, sends, DONE)) as stage:
        result = stage.result_here(*PATIENT)
        assert result["elapsed_seconds"] > 2 * IDLE
        assert (result["exit_reason"], result["attempts"]) == ("completion_signal", 1)


@pytest.mark.parametrize("agent", ONE_AGENT)
def test_a_tool_that_sleeps_for_ever_is_ended_and_counted(tmp_path: Path, agent: str) -> None:
    number = any_number()
    escapes = f"echo half > half.txt; setsid sleep {number} & {SLEEPS}"
    with staged(tmp_path, story(bash(escapes))) as stage:
        result = stage.result_here(*PATIENT, "--agent", agent)
        check_hang(stage, result, "agent.tool_use")
        assert sleepers(number) == set()
        second = json.dumps(stage.model.requests[-1].body["messages"])
        assert "HALF-DONE WORK" in second
        assert "no sign of life" in second
        assert "half.txt" in second
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)


@pytest.mark.soak
@pytest.mark.parametrize("agent", ["claude_sdk", "claude_cli"])
def test_a_model_that_never_answers_is_ended_and_counted(tmp_path: Path, agent: str) -> None:
    """Outside the soak, a tool that sleeps stands for it, and tests/engine/test_liveness.py."""
    with staged(tmp_path, story(Reply(text="never", latency=500))) as stage:
        result = stage.result_here(*PATIENT, "--agent", agent)
        check_hang(stage, result, "agent.session")
