"""On the real Claude Code: a budget holds inside an iteration, and a killed loop loses neither money nor work."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.kit import Stage, finished, price, staged, working
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall, shipped_scenario

pytestmark = pytest.mark.claude

LONG_TOOL = "python3 -c 'import time; time.sleep(1000)'"


def bash(command: str, **more: float) -> Reply:
    return Reply(text="Working.", tools=(ToolCall(name="Bash", input={"command": command}),), **more)  # type: ignore[arg-type]


def eventually(holds: Callable[[], bool], timeout: float = 30) -> None:
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def processes_of(run_id: str) -> list[int]:
    """Living processes that carry the mark of this run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if f"UNTILDONE_RUN={run_id}".encode() in environ.split(b"\0") and state != "Z":
                found.append(int(entry.name))
    return found


def test_a_budget_of_one_dollar_holds_inside_an_iteration_of_dear_replies(tmp_path: Path) -> None:
    with staged(tmp_path, shipped_scenario("expensive")) as stage:
        result = stage.result("run", "spend", "--max-cost", "1.00", "--allowed-tools", "Bash")
        served = stage.model.ledger.served()
        assert (result["exit_reason"], result["exit_code"]) == ("max_cost_reached", 3)
        assert len(served) == 1, "at most one reply over the budget"
        assert result["total_cost_usd"] == pytest.approx(1.60)
        assert stage.model.ledger.cut() == ()


def test_one_process_serves_iteration_after_iteration_under_a_budget(tmp_path: Path) -> None:
    cheap = Reply(text=working("One more.", tasks=1), input_tokens=100_000, output_tokens=10_000)  # 0.60 $
    with staged(tmp_path, Scenario(name="cheap", replies=(cheap,))) as stage:
        result = stage.result("run", "spend slowly", "-m", "3", "--max-cost", "3.00")
        assert result["total_cost_usd"] == pytest.approx(1.80)
        starts = [e["event_data"] for e in stage.events(result["run_id"]) if e["event_type"] == "agent.started"]
        assert len({start["pid"] for start in starts}) == 1
        assert [start["warm"] for start in starts] == [False, True, True]


@pytest.fixture
def killed(tmp_path: Path) -> "Killed":
    return Killed(tmp_path)


class Killed:
    """A run that is killed with -9 while a tool works and while a reply is being streamed."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp

    def story(self, last: Reply) -> Scenario:
        first = (bash("echo half > half.txt", input_tokens=3000), bash(LONG_TOOL, input_tokens=4000))
        if last.chunk_delay:
            first = (first[0], last)
        return Scenario(name="killed", iterations=(first, (Reply(text=finished()),), (Reply(text=finished()),)))


def replies_told(stage: Stage) -> int:
    return stage.untildone("log", "survivor", "--json").stdout.count('"agent.reply"')


def kill_loop(stage: Stage, when: Callable[[], bool]) -> str:
    """Start a run, kill the loop itself with -9 at the given moment; the run's id."""
    loop = stage.popen("run", "survive", "-m", "5", "--name", "survivor", "--allowed-tools", "Bash")
    try:
        eventually(when)
        (run,) = json.loads(stage.untildone("ls", "--json").stdout)
        os.kill(loop.pid, signal.SIGKILL)
    finally:
        loop.kill()
        loop.communicate()
    return str(run["run_id"])


def test_kill_nine_while_a_tool_runs(killed: Killed) -> None:
    with staged(killed.tmp, killed.story(Reply())) as stage:
        run_id = kill_loop(stage, lambda: len(stage.model.ledger.served()) == 2 and (stage.repo / "half.txt").exists())
        result = stage.result("run", "survive", "-m", "5", "--name", "survivor", "--allowed-tools", "Bash")
        assert (result["run_id"], result["exit_reason"]) == (run_id, "completion_signal")
        assert processes_of(run_id) == []
        assert result["attempts"] == 3
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=0.005)
        events = stage.events(run_id)
        types = [event["event_type"] for event in events]
        assert types.count("continuous.recovered") == 1
        (death,) = [e["event_data"] for e in events if e["event_type"] == "iteration.failed"]
        assert (death["error_type"], death["estimated_usd"]) == ("driver_died", 0.0)
        second = stage.model.requests[2].body["messages"]
        assert "HALF-DONE WORK" in str(second)
        assert "half.txt" in str(second)
        assert stage.git("show", "HEAD:half.txt") == "half\n"


def test_kill_nine_in_the_middle_of_a_reply_is_an_estimate(killed: Killed) -> None:
    slow = Reply(text="word " * 400, chunk_delay=0.2, input_tokens=50_000)
    with staged(killed.tmp, killed.story(slow)) as stage:

        def streaming() -> bool:
            log = stage.untildone("log", "survivor", "--json").stdout
            return log.count("agent.reply_started") == 2

        run_id = kill_loop(stage, streaming)
        eventually(lambda: len(stage.model.ledger.cut()) == 1)
        result = stage.result("run", "survive", "-m", "5", "--name", "survivor", "--allowed-tools", "Bash")
        assert result["exit_reason"] == "completion_signal"
        (death,) = [e["event_data"] for e in stage.events(run_id) if e["event_type"] == "iteration.failed"]
        (cut,) = stage.model.ledger.cut()
        assert death["estimated_usd"] > 0
        assert death["estimated_usd"] == pytest.approx(price(cut), rel=0.1)
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=0.005), "estimates stay apart"


def test_the_orphans_of_a_killed_loop_are_gone_soon(killed: Killed) -> None:
    with staged(killed.tmp, killed.story(Reply())) as stage:
        run_id = kill_loop(stage, lambda: len(stage.model.ledger.served()) == 2)
        eventually(lambda: processes_of(run_id) == [], timeout=5)


def test_ctrl_c_stops_books_and_keeps_the_half_done_work(killed: Killed) -> None:
    with staged(killed.tmp, killed.story(Reply())) as stage:
        loop = stage.popen("run", "survive", "-m", "5", "--name", "survivor", "--allowed-tools", "Bash", "--json")
        eventually(lambda: replies_told(stage) == 2)
        asked = time.monotonic()
        loop.send_signal(signal.SIGINT)
        out, _ = loop.communicate(timeout=20)
        assert time.monotonic() - asked < 3
        assert loop.returncode == 130
        result = json.loads(out)
        assert (result["exit_reason"], result["success"]) == ("shutdown_signal", False)
        assert result["total_cost_usd"] == pytest.approx(stage.ledger_usd(), abs=1e-9)
        assert (stage.repo / "half.txt").exists()
        assert f"refs/untildone/{result['run_id']}/1" in stage.git("for-each-ref")


def test_a_reply_that_was_served_but_never_seen_is_unknown_not_free(killed: Killed) -> None:
    """A machine under load: Claude gets no turn between the reply's arrival and its own end."""
    late = bash(LONG_TOOL, input_tokens=4000, latency=1.0)
    scenario = Scenario(name="late", iterations=((bash("echo half > half.txt"), late), (Reply(text=finished()),)))
    with staged(killed.tmp, scenario) as stage:
        loop = stage.popen("run", "survive", "-m", "5", "--name", "survivor", "--allowed-tools", "Bash", "--json")
        eventually(lambda: len(stage.model.requests) == 2)
        (run,) = json.loads(stage.untildone("ls", "--json").stdout)
        for pid in processes_of(run["run_id"]):
            if Path(f"/proc/{pid}/exe").resolve().name == "claude":
                os.kill(pid, signal.SIGSTOP)
        eventually(lambda: len(stage.model.ledger.served()) == 2)
        loop.send_signal(signal.SIGINT)
        loop.communicate(timeout=20)
        (failed,) = [e["event_data"] for e in stage.events(run["run_id"]) if e["event_type"] == "iteration.failed"]
        assert (failed["error_type"], failed["unseen_requests"]) == ("stopped", 1)
        assert "unknown" in stage.untildone("brief", "survivor").stdout
        assert processes_of(run["run_id"]) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["stopped", "killed"])
def test_subagents_are_paid_for_however_it_ends(tmp_path: Path, how: signal.Signals) -> None:
    """Their replies are in no result when the run is cut off; Claude's transcripts know them."""
    works = Reply(
        when="cc_is_subagent", text="Counting.", tools=(ToolCall("Bash", {"command": "echo {n}"}),),
        input_tokens=30_000, output_tokens=1000, repeat=4,
    )  # fmt: skip
    hangs = Reply(when="cc_is_subagent", text="Counted.", input_tokens=30_000, latency=20)
    asks = {"description": "count", "prompt": "Count.", "subagent_type": "general-purpose"}
    sends = Reply(text="Go.", tools=(ToolCall("Agent", asks),), input_tokens=10_000)
    first = (works, hangs, sends, Reply(text=working()))
    scenario = Scenario(name="sub", iterations=(first, (Reply(text=finished()),), (Reply(text=finished()),)))
    with staged(tmp_path, scenario) as stage:
        args = ("run", "count", "-m", "3", "--name", "counter", "--skip-permissions", "--json")
        loop = stage.popen(*args)
        eventually(lambda: len(stage.model.ledger.served()) >= 6)
        time.sleep(0.3)  # the transcript is written a moment after the reply was served
        loop.send_signal(how)
        loop.communicate(timeout=20)
        served = stage.ledger_usd()
        result = json.loads(stage.untildone("status", "counter", "--json").stdout)
        if how is signal.SIGKILL:
            stage.untildone(*args)
            result = json.loads(stage.untildone("status", "counter", "--json").stdout)
            served = stage.ledger_usd()
        assert result["total_cost_usd"] == pytest.approx(served, abs=1e-6)
