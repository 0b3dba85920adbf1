"""On the real Claude Code: a run outlives its terminal and its own death, and one goal follows the other."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.kit import PATIENCE, Stage, finished, price, staged, working
from patience import eventually
from untildone.core.chain import next_run_id
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

ONE_CLAIM = ("--completion-threshold", "1")
ENDED = "the command has ended"
TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp("sh", ["sh", "-c", sys.argv[1]])
"""


def status(stage: Stage, run_id: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(stage.here("status", run_id, "--json").stdout)
    return told


def at_work(gate: Path) -> Path:
    return gate.with_suffix(".waiting")


def waits_for(gate: Path) -> Reply:
    """The agent works until the gate is open; a file beside it says that it does."""
    command = f"touch '{at_work(gate)}'; until [ -e '{gate}' ]; do sleep 0.1; done; echo go"
    return Reply(text="Working.", tools=(ToolCall(name="Bash", input={"command": command}),))


def type_and_close(stage: Stage, command: str) -> str:
    """Type a command into a terminal and close its window when the command has ended; what the terminal showed."""
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        [sys.executable, "-c", TERMINAL, f"{command}; echo {ENDED}; sleep 1000"],
        cwd=stage.repo, env=stage.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        shown = read_until(ours, ENDED)
    finally:
        os.close(ours)  # the window is closed: every program in it gets a hangup
        try:
            shell.wait(timeout=PATIENCE)
        finally:
            shell.kill()
            shell.wait()
    assert shell.returncode == -signal.SIGHUP, "the terminal's own programs died of it"
    return shown


def read_until(terminal: int, mark: str) -> str:
    """What the terminal shows, up to a word."""
    shown = b""
    end = time.monotonic() + PATIENCE
    while mark.encode() not in shown:
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096)
    return shown.decode()


def test_a_detached_run_outlives_its_terminal_and_its_own_death_and_nothing_is_paid_twice(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = Reply(text=working("First.", tasks=1))
    scenario = Scenario(name="gated", replies=(first, waits_for(gate), Reply(text=finished())))
    with staged(tmp_path, scenario) as stage:
        flags = " ".join((*ONE_CLAIM, "--skip-permissions", "--sandbox", "host", "--detach"))
        shown = type_and_close(stage, f"'{sys.executable}' -m untildone run 'a goal' -m 5 {flags}")
        run_id = shown.partition("untildone attach ")[2].split()[0]
        eventually(at_work(gate).exists)  # two replies have come: what the second one asks for is being done
        assert status(stage, run_id)["status"] == "running"
        driver = next(e["event_data"] for e in stage.events(run_id) if e["event_type"] == "continuous.resumed")["pid"]
        os.kill(driver, signal.SIGKILL)
        eventually(lambda: status(stage, run_id)["status"] == "interrupted")
        gate.touch()
        again = stage.untildone("resume", "--interrupted", "--detach")
        assert again.returncode == 0, again.stderr
        watched = stage.here("attach", run_id)
        assert watched.returncode == 0, watched.stderr
        booked = status(stage, run_id)
        assert booked["status"] == "completed"
        assert len(stage.model.ledger.served()) >= 3
        assert booked["total_cost_usd"] == pytest.approx(stage.ledger_usd())


@pytest.mark.soak
def test_one_goal_follows_the_other_on_one_budget(tmp_path: Path) -> None:
    """Outside the soak, tests/cli/test_chaining.py has this with a small program in place of Claude Code."""
    with staged(tmp_path, Scenario(name="claims", replies=(Reply(text=finished()),))) as stage:
        goal = tmp_path / "next goal.md"
        goal.write_text("Then write the manual.\n")
        result = stage.result("run", "a goal", "-m", "3", "--max-cost", "5", *ONE_CLAIM, "--then", str(goal))
        assert (result["exit_code"], result["success"]) == (0, True)
        claim, answer, *second = stage.model.ledger.served()
        assert len(second) == 2
        runs = {row["run_id"] for row in json.loads(stage.here("ls", "--json").stdout)}
        (before,) = runs - {result["run_id"]}
        assert result["run_id"] == next_run_id(before)
        limits = stage.events(result["run_id"])[0]["event_data"]["limits"]
        assert limits["max_cost_usd"] == pytest.approx(5 - price(claim) - price(answer))
        assert result["total_cost_usd"] == pytest.approx(sum(map(price, second)))
