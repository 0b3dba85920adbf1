"""On the real Claude Code: a run outlives its terminal and its own death, and one goal follows the other."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.kit import Stage, finished, price, staged, working
from untildone.core.chain import next_run_id
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

ONE_CLAIM = ("--completion-threshold", "1")


def eventually(holds: Callable[[], bool], timeout: float = 60) -> None:
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def status(stage: Stage, run_id: str) -> str:
    told: str = json.loads(stage.untildone("status", run_id, "--json").stdout)["status"]
    return told


def at_work(gate: Path) -> Path:
    return gate.with_suffix(".waiting")


def waits_for(gate: Path) -> Reply:
    """The agent works until the gate is open; a sign beside it says that it does."""
    command = f"touch '{at_work(gate)}'; until [ -e '{gate}' ]; do sleep 0.1; done; echo go"
    return Reply(text="Working.", tools=(ToolCall(name="Bash", input={"command": command}),))


def read_until(terminal: int, mark: str) -> str:
    """What the terminal shows, up to a word."""
    shown = b""
    end = time.monotonic() + 60
    while mark.encode() not in shown:
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096)
    return shown.decode()


def test_a_detached_run_outlives_its_terminal(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    scenario = Scenario(name="gated", replies=(waits_for(gate), Reply(text=finished())))
    with staged(tmp_path, scenario) as stage:
        command = f"'{sys.executable}' -m untildone run 'a goal' -m 3 {' '.join(ONE_CLAIM)} --skip-permissions --detach"
        ours, theirs = pty.openpty()
        shell = subprocess.Popen(
            [sys.executable, "-c", TERMINAL, f"{command}; echo waiting; sleep 1000"],
            cwd=stage.repo, env=stage.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        try:
            shown = read_until(ours, "waiting")
        finally:
            os.close(ours)  # the window is closed: everybody in it gets a hangup
            shell.wait(timeout=20)
        assert shell.returncode != 0, "the terminal's own programs died of it"
        run_id = shown.partition("untildone attach ")[2].split()[0]
        assert status(stage, run_id) == "running"
        gate.touch()
        watched = stage.untildone("attach", run_id)
        assert watched.returncode == 0, watched.stderr
        assert status(stage, run_id) == "completed"


TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp("sh", ["sh", "-c", sys.argv[1]])
"""


def test_a_killed_run_is_taken_up_in_the_background_and_nothing_is_paid_twice(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = Reply(text=working("First.", tasks=1))
    scenario = Scenario(name="gated", replies=(first, waits_for(gate), Reply(text=finished())))
    with staged(tmp_path, scenario) as stage:
        run = ("run", "a goal", "-m", "5", *ONE_CLAIM, "--skip-permissions", "--detach", "--json")
        told = json.loads(stage.untildone(*run).stdout)
        eventually(at_work(gate).exists)  # both replies have come: what the second one asks for is being done
        os.kill(told["pid"], signal.SIGKILL)
        eventually(lambda: status(stage, told["run_id"]) == "interrupted")
        gate.touch()
        again = stage.untildone("resume", "--interrupted", "--detach")
        assert again.returncode == 0, again.stderr
        assert stage.untildone("attach", told["run_id"]).returncode == 0
        booked = json.loads(stage.untildone("status", told["run_id"], "--json").stdout)
        assert len(stage.model.ledger.served()) >= 3
        assert booked["total_cost_usd"] == pytest.approx(stage.ledger_usd())


def test_one_goal_follows_the_other_on_one_budget(tmp_path: Path) -> None:
    with staged(tmp_path, Scenario(name="claims", replies=(Reply(text=finished()),))) as stage:
        goal = tmp_path / "next goal.md"
        goal.write_text("Then write the manual.\n")
        result = stage.result("run", "a goal", "-m", "3", "--max-cost", "5", *ONE_CLAIM, "--then", str(goal))
        assert (result["exit_code"], result["success"]) == (0, True)
        first, second = stage.model.ledger.served()
        runs = {row["run_id"] for row in json.loads(stage.untildone("ls", "--json").stdout)}
        (before,) = runs - {result["run_id"]}
        assert result["run_id"] == next_run_id(before)
        limits = stage.events(result["run_id"])[0]["event_data"]["limits"]
        assert limits["max_cost_usd"] == pytest.approx(5 - price(first))
        assert result["total_cost_usd"] == pytest.approx(price(second))
