"""On the real Claude Code: the dead are ended, the thinking and the computing are not, and nothing escapes."""

import contextlib
import json
import os
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.kit import Stage, finished, staged, working
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

IDLE = 3.0
LOADED = 4
"""Two tests share two cores here: what takes three seconds alone may take longer."""
SLEEPS = "python3 -c 'import time; time.sleep(1000)'"
ARGS = ("run", "live", "-m", "2", "--name", "liver", "--allowed-tools", "Bash")
DONE = Reply(text=finished())


def bash(command: str, **more: Any) -> Reply:
    return Reply(text="Working.", tools=(ToolCall("Bash", {"command": command, **more}),))


def story(*first: Reply) -> Scenario:
    return Scenario(name="liveness", iterations=(first, (DONE,), (DONE,)))


def eventually(holds: Callable[[], bool], timeout: float = 30) -> None:
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def failures(stage: Stage, run_id: str) -> list[str]:
    return [e["event_data"]["error_type"] for e in stage.events(run_id) if e["event_type"] == "iteration.failed"]


def sleeping(seconds: str) -> bool:
    """Does anybody sleep for this many seconds? The number is nobody else's."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                return True
    return False


@pytest.fixture
def number() -> str:
    return str(uuid.uuid4().int)[:9]


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


class Escapes:
    """A run whose tool leaves a process behind that called setsid, and then sleeps."""

    def __init__(self, stage: Stage, number: str, *more: str) -> None:
        self.number = number
        self.loop = stage.popen(*ARGS, *more)
        eventually(lambda: sleeping(number))

    def gone_within(self, seconds: float) -> None:
        eventually(lambda: not sleeping(self.number), timeout=seconds * LOADED)

    def leave(self) -> int:
        self.loop.communicate(timeout=30)
        return self.loop.returncode


def escaping(number: str) -> Scenario:
    return story(bash(f"setsid sleep {number} & {SLEEPS}"))


def test_what_escaped_is_gone_after_a_stop(tmp_path: Path, number: str) -> None:
    with staged(tmp_path, escaping(number)) as stage:
        run = Escapes(stage, number)
        stage.untildone("stop", "liver")
        run.gone_within(3)
        assert run.leave() == 130


def test_what_escaped_is_gone_after_a_timeout_although_the_run_goes_on(tmp_path: Path, number: str) -> None:
    slow = Reply(text=working("word " * 300), chunk_delay=0.3)
    with staged(tmp_path, Scenario(name="x", iterations=(escaping(number).iterations[0], (slow,)))) as stage:
        run = Escapes(stage, number, "--timeout", "5s")
        eventually(lambda: "timeout" in stage.untildone("log", "liver", "--json").stdout)
        run.gone_within(3)
        assert run.loop.poll() is None, "the next iteration is under way"
        run.loop.send_signal(signal.SIGINT)
        assert run.leave() == 130


def test_what_escaped_is_gone_after_kill_nine_and_a_restart(tmp_path: Path, number: str) -> None:
    with staged(tmp_path, escaping(number)) as stage:
        run = Escapes(stage, number)
        os.kill(run.loop.pid, signal.SIGKILL)
        run.leave()
        again = stage.popen(*ARGS)
        run.gone_within(3)
        again.communicate(timeout=60)
        assert again.returncode == 0


def test_ctrl_c_twice_leaves_nothing_behind(tmp_path: Path, number: str) -> None:
    with staged(tmp_path, escaping(number)) as stage:
        run = Escapes(stage, number)
        asked = time.monotonic()
        run.loop.send_signal(signal.SIGINT)
        time.sleep(0.2)  # two presses of a key are never one signal
        run.loop.send_signal(signal.SIGINT)
        run.gone_within(3)
        assert run.leave() == 130
        assert time.monotonic() - asked < 3 * LOADED
