"""On the real Claude Code: limits and outages cost time, never an attempt and never the same work twice."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.kit import PATIENCE, Stage, finished, staged, working
from e2e.trouble_kit import RefusingModel
from patience import eventually
from processes import is_alive, state_of
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall
from untildone.sandbox import guard

pytestmark = pytest.mark.claude

TESTS = Path(__file__).parent.parent
LOOPBACK_ONLY = 'ip link set lo up && exec "$@"'


def failures(events: list[dict[str, Any]]) -> list[str]:
    return [event["event_data"]["error_type"] for event in events if event["event_type"] == "iteration.failed"]


def starts(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["event_data"] for event in events if event["event_type"] == "iteration.started"]


@pytest.mark.soak
def test_a_window_of_rate_limits_costs_little_more_than_itself(tmp_path: Path) -> None:
    refusal = Reply(status=429, message="Number of requests exceeded", headers=(("retry-after", "1"),))
    script = Scenario(name="window", replies=(Reply(text=working(tasks=1)),))
    with RefusingModel(script, seconds=20, refusal=refusal) as model:
        stage = Stage(tmp_path, model)
        result = stage.result("run", "wait it out", "-m", "1")
        assert (result["exit_reason"], result["attempts"], result["loops_completed"]) == ("max_runs_reached", 1, 1)
        assert model.answered is not None
        assert model.began is not None
        assert (model.answered - model.began) / (model.over - model.began) <= 1.25
        tries = starts(stage.events(result["run_id"]))
        assert len(tries) > 2
        assert [start["iteration_num"] for start in tries] == [1] * len(tries)


@pytest.mark.soak
def test_six_failures_in_an_outage_cost_no_attempt(tmp_path: Path) -> None:
    down = Reply(status=529, repeat=6)
    script = Scenario(name="outage", replies=(down, Reply(text=working(tasks=1))))
    with staged(tmp_path, script) as stage:
        stage.env["CLAUDE_CODE_MAX_RETRIES"] = "0"
        result = stage.result_here("run", "go on", "-m", "1")
        assert (result["exit_reason"], result["attempts"]) == ("max_runs_reached", 1)
        assert failures(stage.events(result["run_id"])) == ["overloaded"] * 6


def calls(number: int) -> tuple[Reply, ...]:
    """Tool calls that leave a trace each."""
    return tuple(
        Reply(text=f"Call {n}.", tools=(ToolCall("Bash", {"command": f"echo {n} >> calls.txt"}),))
        for n in range(number)
    )


def check_calls(stage: Stage, result: dict[str, Any], number: int, last: int = 1) -> list[dict[str, Any]]:
    """Each call was made and paid once, and `last` replies after them, in one session and one attempt."""
    assert (result["exit_reason"], result["attempts"]) == ("validation_passed", 1)
    assert (stage.repo / "calls.txt").read_text().split() == [str(n) for n in range(number)]
    served = [line for line in stage.model.ledger.served() if line.kind == "main"]
    assert len(served) == number + last
    assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=0.005)
    events = stage.events(result["run_id"])
    sessions = {event["event_data"]["session_id"] for event in events if event["event_type"] == "agent.session"}
    assert len(sessions) == 1
    assert [start["resume_session"] for start in starts(events)][1:] == [*sessions] * len(failures(events))
    return events


def test_in_an_outage_another_model_takes_over_then_another_agent_and_no_call_is_made_or_paid_twice(
    tmp_path: Path,
) -> None:
    dropped = Reply(text="word " * 200, cut_after=0.5)
    script = Scenario(name="outage", replies=(*calls(5), Reply(status=529, repeat=3), dropped, Reply(text=finished())))
    with staged(tmp_path, script) as stage:
        stage.env["CLAUDE_CODE_MAX_RETRIES"] = "0"
        fallbacks = ("--model", "claude-opus-5-5", "--fallback", "claude-haiku-5-5", "--fallback", "agent:claude_cli")
        check = 'test "$(wc -l < calls.txt)" -eq 5'
        result = stage.result_here("run", "call", "-m", "3", "--check", check, "--allowed-tools", "Bash", *fallbacks)
        events = check_calls(stage, result, 5, last=2)  # the other agent asks for a report in a reply of its own
        assert failures(events) == ["overloaded"] * 3
        assert [start["model"] for start in starts(events)] == [None, None, "claude-haiku-5-5", "agent:claude_cli"]
        asked = [request.body["model"] for request in stage.model.requests][5:9]
        assert asked == ["claude-opus-5-5", "claude-opus-5-5", "claude-haiku-5-5", "claude-opus-5-5"]


@pytest.mark.soak
def test_forty_tool_calls_are_neither_made_nor_paid_twice(tmp_path: Path) -> None:
    """Claude tries again by itself before it gives up."""
    dropped = Reply(text="word " * 200, cut_after=0.5, repeat=4)
    script = Scenario(name="forty", replies=(*calls(40), Reply(status=529, repeat=3), dropped, Reply(text=finished())))
    with staged(tmp_path, script) as stage:
        check = 'test "$(wc -l < calls.txt)" -eq 40'
        result = stage.result("run", "call", "-m", "3", "--check", check, "--allowed-tools", "Bash", timeout=240)
        events = check_calls(stage, result, 40)
        assert set(failures(events)) <= {"overloaded", "network", "server_error"}
        assert len(failures(events)) >= 2


@pytest.mark.soak
def test_a_lost_session_is_replaced_by_a_fresh_one(tmp_path: Path) -> None:
    script = Scenario(name="lost", replies=(Reply(status=529, repeat=3), Reply(text=finished())))
    with staged(tmp_path, script) as stage:
        forget = f"rm -rf '{stage.env['CLAUDE_CONFIG_DIR']}/projects'"
        more = ("--agent", "claude_cli", "--after-iteration", forget)
        result = stage.result_here("run", "go on", "-m", "3", "--check", "true", *more)
        assert (result["exit_reason"], result["attempts"]) == ("validation_passed", 1)
        events = stage.events(result["run_id"])
        assert failures(events) == ["overloaded", "session_lost"]
        assert [start["resume_session"] is None for start in starts(events)] == [True, False, True]


def in_a_subscription(tmp: Path, seconds: float, *args: str) -> dict[str, Any]:
    """Meet a usage limit, with a made-up login, where nothing but loopback can be reached."""
    flags = ["-n"] if os.geteuid() == 0 else ["-r", "-n"]
    driver = [sys.executable, "-m", "e2e.usage_limit_driver", str(tmp), str(seconds), *args]
    done = subprocess.run(
        ["unshare", *flags, "sh", "-c", LOOPBACK_ONLY, "sh", *driver],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def test_a_usage_limit_is_waited_out_and_no_longer(tmp_path: Path) -> None:
    facts = in_a_subscription(tmp_path, 6, "--agent", "claude_cli")
    assert (facts["result"]["exit_reason"], facts["result"]["attempts"]) == ("validation_passed", 1)
    assert facts["refused"] == 1, "the model is not asked before the reset"
    assert failures(facts["events"]) == ["usage_limit"]
    (wait,) = [e["event_data"] for e in facts["events"] if e["event_type"] == "continuous.waiting"]
    assert 0 <= wait["until"] - facts["over"] <= 2
    assert facts["answered"] >= facts["over"]
    (quota,) = [e["event_data"] for e in facts["events"] if e["event_type"] == "agent.quota"]
    assert [(window["name"], window["utilization"]) for window in quota["windows"]] == [
        ("five_hour", 1.0), ("seven_day", 0.4),
    ]  # fmt: skip


@pytest.mark.soak
def test_a_usage_limit_stops_a_run_that_will_not_wait(tmp_path: Path) -> None:
    facts = in_a_subscription(tmp_path, 600, "--no-wait")
    assert (facts["result"]["exit_reason"], facts["result"]["exit_code"], facts["refused"]) == ("usage_limit", 6, 1)


@pytest.mark.soak
def test_a_stopped_loop_does_not_let_its_agent_work_on(tmp_path: Path) -> None:
    """`kill -STOP`: the guard ends the agent after a while; the loop goes on in the same session, and loses nothing."""
    waits = Reply(text="Waiting.", tools=(ToolCall("Bash", {"command": "tail -f /dev/null", "timeout": 600000}),))
    script = Scenario(name="stopped", replies=(waits, Reply(text=finished())))
    with staged(tmp_path, script) as stage:
        driver = stage.popen("run", "go", "-m", "3", "--check", "true", "--allowed-tools", "Bash", "--json")
        stage.model.ledger.wait_for(1, timeout=PATIENCE)
        driver.send_signal(signal.SIGSTOP)
        eventually(lambda: not [pid for pid in guard.descendants(driver.pid) if is_alive(pid)])
        assert state_of(driver.pid) == "T"
        driver.send_signal(signal.SIGCONT)
        out, err = driver.communicate(timeout=PATIENCE)
        result = json.loads(out)
        assert (result["exit_reason"], result["attempts"]) == ("validation_passed", 1), err
        events = stage.events(result["run_id"])
        assert failures(events) == ["loop_stopped"]
        assert [start["resume_session"] is not None for start in starts(events)] == [False, True]
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=0.005)
