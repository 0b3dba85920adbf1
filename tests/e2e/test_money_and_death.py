"""On the real Claude Code: a budget holds inside an iteration, and a killed loop loses neither money nor work."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.kit import Stage, finished, price, staged, working
from e2e.liveness_kit import any_number, sleepers
from patience import eventually
from processes import living_of
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall, shipped_scenario

pytestmark = pytest.mark.claude

RUN = ("run", "survive", "-m", "5", "--name", "survivor", "--allowed-tools", "Bash")
DONE = (Reply(text=finished()),)


def bash(command: str, **more: float) -> Reply:
    return Reply(text="Working.", tools=(ToolCall(name="Bash", input={"command": command}),), **more)  # type: ignore[arg-type]


def stays(number: str) -> Reply:
    """A tool that leaves a process in a session of its own, and does not end."""
    return bash(f"setsid sleep {number} & sleep 1000", input_tokens=4000)


def told(stage: Stage, kind: str) -> list[dict[str, Any]]:
    """What the log of the run says, of one kind."""
    return [event["event_data"] for event in stage.events("survivor") if event["event_type"] == kind]


@contextmanager
def killed(stage: Stage, *more: str) -> Iterator[None]:
    """Start the run; kill the loop itself with -9 at the end of the block."""
    loop = stage.popen(*RUN, *more)
    try:
        yield
    finally:
        loop.kill()
        loop.communicate()


def test_a_budget_of_one_dollar_holds_inside_an_iteration_of_dear_replies(tmp_path: Path) -> None:
    with staged(tmp_path, shipped_scenario("expensive")) as stage:
        result = stage.result_here("run", "spend", "--max-cost", "1.00", "--allowed-tools", "Bash")
        served = stage.model.ledger.served()
        assert (result["exit_reason"], result["exit_code"]) == ("max_cost_reached", 3)
        assert len(served) == 1, "at most one reply over the budget"
        assert result["total_cost_usd"] == pytest.approx(1.60)
        assert stage.model.ledger.cut() == ()


@pytest.mark.parametrize("sandbox", ["bwrap", pytest.param("host", marks=pytest.mark.soak)])
def test_kill_nine_while_a_tool_runs_and_in_the_middle_of_a_reply(tmp_path: Path, sandbox: str) -> None:
    number = any_number()
    slow = Reply(text="word " * 400, chunk_delay=2.0, input_tokens=50_000)
    first = (bash("echo half > half.txt", input_tokens=3000), stays(number))
    with staged(tmp_path, Scenario(name="killed", iterations=(first, (slow,), DONE, DONE))) as stage:
        with killed(stage, "--sandbox", sandbox):
            eventually(lambda: len(told(stage, "agent.reply")) == 2 and len(sleepers(number)) == 1)
            (run,) = json.loads(stage.here("ls", "--json").stdout)
        eventually(lambda: living_of(run["run_id"]) == [] and not sleepers(number))
        with killed(stage, "--sandbox", sandbox):
            eventually(lambda: len(told(stage, "agent.reply_started")) == 3)
        eventually(lambda: len(stage.model.ledger.cut()) == 1)
        result = stage.result_here(*RUN, "--sandbox", sandbox)
        assert (result["run_id"], result["exit_reason"]) == (run["run_id"], "completion_signal")
        assert living_of(run["run_id"]) == []
        assert result["attempts"] == 4
        assert len(told(stage, "continuous.recovered")) == 2
        in_tool, in_reply = told(stage, "iteration.failed")
        (cut,) = stage.model.ledger.cut()
        assert (in_tool["error_type"], in_tool["estimated_usd"]) == ("driver_died", 0.0)
        assert in_reply["estimated_usd"] == pytest.approx(price(cut), rel=0.1)
        assert in_reply["estimated_usd"] > 0
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=0.005), "estimates stay apart"
        second = str(stage.model.requests[2].body["messages"])
        assert "HALF-DONE WORK" in second
        assert "half.txt" in second
        assert stage.git("show", "HEAD:half.txt") == "half\n"


@pytest.mark.soak
def test_a_reply_that_was_served_but_never_seen_is_unknown_not_free(tmp_path: Path) -> None:
    """A machine under load: Claude gets no turn between the reply's arrival and its own end."""
    late = bash("sleep 1000", input_tokens=4000, latency=5.0)
    scenario = Scenario(name="late", iterations=((bash("echo half > half.txt"), late), DONE))
    with staged(tmp_path, scenario) as stage:
        loop = stage.popen(*RUN, "--json")
        eventually(lambda: len(stage.model.requests) == 2)
        (run,) = json.loads(stage.here("ls", "--json").stdout)
        for pid in living_of(run["run_id"]):
            if Path(f"/proc/{pid}/exe").resolve().name == "claude":
                os.kill(pid, signal.SIGSTOP)
        eventually(lambda: len(stage.model.ledger.served()) == 2)
        loop.send_signal(signal.SIGINT)
        loop.communicate(timeout=400)
        (failed,) = told(stage, "iteration.failed")
        assert (failed["error_type"], failed["unseen_requests"]) == ("stopped", 1)
        assert "unknown" in stage.here("brief", "survivor").stdout
        assert living_of(run["run_id"]) == []


def written(transcripts: Path) -> set[str]:
    """The replies that are in Claude's transcripts: each gets there a moment after it was served."""
    return {
        found for path in transcripts.rglob("*.jsonl") for found in re.findall(r'"id":"(msg_[^"]*)"', path.read_text())
    }


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.soak)], ids=["stopped", "killed"]
)
def test_subagents_are_paid_for_and_half_done_work_is_kept_however_it_ends(tmp_path: Path, how: signal.Signals) -> None:
    """Their replies are in no result when the run is cut off; Claude's transcripts know them."""
    number = any_number()
    works = Reply(
        when="cc_is_subagent", text="Counting.", tools=(ToolCall("Bash", {"command": "echo {n}"}),),
        input_tokens=30_000, output_tokens=1000, repeat=2,
    )  # fmt: skip
    hangs = Reply(when="cc_is_subagent", text="Counted.", input_tokens=30_000, latency=300)
    asks = {"description": "count", "prompt": "Count.", "subagent_type": "general-purpose"}
    half = bash(f"echo half > half.txt; setsid sleep {number} & true", input_tokens=3000)
    sends = Reply(text="Go.", tools=(ToolCall("Agent", asks),), input_tokens=10_000)
    first = (works, hangs, half, sends, Reply(text=working()))
    scenario = Scenario(name="sub", iterations=(first, DONE, DONE))
    with staged(tmp_path, scenario) as stage:
        args = ("run", "count", "-m", "3", "--name", "counter", "--skip-permissions", "--json")
        loop = stage.popen(*args)
        transcripts = Path(stage.env["CLAUDE_CONFIG_DIR"]) / "projects"
        eventually(lambda: len(stage.model.ledger.served()) >= 5 and len(written(transcripts)) == 5)
        assert len(sleepers(number)) == 1
        loop.send_signal(how)
        out, _ = loop.communicate(timeout=400)
        if how is signal.SIGKILL:
            stage.untildone(*args)
        else:
            assert loop.returncode == 130
            ended = json.loads(out)
            assert (ended["exit_reason"], ended["success"]) == ("shutdown_signal", False)
            assert f"refs/untildone/{ended['run_id']}/1" in stage.git("for-each-ref")
        result = json.loads(stage.here("status", "counter", "--json").stdout)
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-6)
        assert (sleepers(number), living_of(result["run_id"])) == (set(), [])
        assert (stage.repo / "half.txt").exists()


def test_background_agents_that_wake_each_other_do_not_go_on_for_ever(tmp_path: Path) -> None:
    """Each result of a background agent wakes the main one, which starts the next: no turn is ever the last."""
    call = {"description": "look", "prompt": "SUBORDINATE: look", "subagent_type": "general-purpose"}
    starts = Reply(text="Next.", tools=(ToolCall("Agent", {**call, "run_in_background": True}),))
    subordinate = Reply(when="SUBORDINATE", text="nothing there", repeat=10_000)
    endless = (subordinate, *(starts, Reply(text=working("It looks around."))) * 200)
    bounds = ("--max-wakeups", "3", "--error-threshold", "1")
    with staged(tmp_path, Scenario(name="endless", iterations=(endless, endless))) as stage:
        result = stage.result_here("run", "look", "-m", "1", *bounds, "--name", "survivor")
        # Nothing was changed: an iteration that is cut in the middle of such a turn is a counted failure.
        assert result["exit_reason"] in {"max_runs_reached", "consecutive_errors"}
        assert (result["attempts"], len(told(stage, "agent.woken")) < 12) == (1, True)
        warnings = [warning["message"] for warning in told(stage, "continuous.warning")]
        assert any("start another one, 3 times (--max-wakeups 3)" in line for line in warnings)
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), rel=0.2)


@pytest.mark.soak
def test_a_budget_holds_for_a_model_whose_price_is_not_known(tmp_path: Path) -> None:
    dear = bash("true", input_tokens=60_000, repeat=50)
    with staged(tmp_path, Scenario(name="unknown", replies=(dear,))) as stage:
        run = ("run", "spend", "--max-cost", "1.00", "--model", "acme-large-1", "--allowed-tools", "Bash")
        result = stage.result_here(*run, "--name", "survivor")
        assert (result["exit_reason"], result["exit_code"]) == ("max_cost_reached", 3)
        assert len(stage.model.ledger.served()) == 2, "at the dearest known price, 60,000 tokens cost 0.60"
        assert [said["model"] for said in told(stage, "agent.price_unknown")] == ["acme-large-1"]
        status = json.loads(stage.here("status", "survivor", "--json").stdout)
        assert (status["total_cost_usd"], status["unknown_costs"]) == (None, 0)
        assert status["estimated_usd"] == pytest.approx(1.2, rel=0.05)
