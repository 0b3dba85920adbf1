"""Ctrl+C and its kin, at a real process, at every stage of a run."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.background_kit import claude_that
from cli.cli_kit import Runs
from patience import PATIENCE, eventually
from untildone.core.events import ContinuousSuspended, StopRequested


@pytest.fixture
def argv(tmp_path: Path, runs: Runs, project: Path) -> list[str]:
    """A run whose agent never says a word."""
    program = claude_that(tmp_path / "claude", "exec sleep 600")
    command = [sys.executable, "-m", "untildone", "run", "x", "--name", "night", "-m", "3"]
    return [*command, "--agent", "claude_cli", "--claude", str(program)]


@contextmanager
def begun(argv: list[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """The run, with its first iteration under way."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more) as child:
        try:
            assert child.stdout is not None
            assert any("iteration 1 started" in line for line in child.stdout)
            yield child
        finally:
            child.kill()


def events_of_the_only_run(runs: Runs) -> list[Any]:
    (row,) = runs.list()
    return [record.event for record in runs.read(row.run_id)]


@pytest.mark.parametrize("times", [1, 3, *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 5))])
def test_however_often_ctrl_c_comes_the_run_is_left_in_order(runs: Runs, argv: list[str], times: int) -> None:
    with begun(argv) as child:
        for _ in range(times):
            child.send_signal(signal.SIGINT)
            time.sleep(0.02)  # signals that are pending together are delivered as one
        out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130, err
    assert "Traceback" not in out + err
    assert "untildone resume night" in out
    last = events_of_the_only_run(runs)[-1]
    assert isinstance(last, ContinuousSuspended)
    assert last.stop_reason == "shutdown_signal"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_other_ways_to_be_asked_to_end_stop_it_in_order_too(runs: Runs, argv: list[str], name: str) -> None:
    with begun(argv) as child:
        child.send_signal(signal.Signals[name])
        out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, err) == (130, f"untildone: stopping ({name}); once more to end at once\n")
    assert "told to stop" in out or "the terminal was closed" in out
    events = events_of_the_only_run(runs)
    assert [event.signal for event in events if isinstance(event, StopRequested)] == [name]
    assert isinstance(events[-1], ContinuousSuspended)


def test_a_terminal_that_is_closed_stops_the_run_in_order(runs: Runs, argv: list[str]) -> None:
    controller, terminal = pty.openpty()
    owner = ["setsid", "--ctty", *argv]
    child = subprocess.Popen(owner, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    try:
        shown = b""
        while b"iteration 1 started" not in shown:
            shown += os.read(controller, 1 << 16)
        os.close(controller)
        assert child.wait(timeout=PATIENCE) == 130
    finally:
        child.kill()
        child.wait()
    last = events_of_the_only_run(runs)[-1]
    assert isinstance(last, ContinuousSuspended)
    assert last.stop_reason == "shutdown_signal"


def test_under_nohup_a_hangup_means_nothing(runs: Runs, argv: list[str]) -> None:
    with begun(["nohup", *argv], stdin=subprocess.DEVNULL) as child:
        child.send_signal(signal.SIGHUP)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=PATIENCE)
    stops = [event.signal for event in events_of_the_only_run(runs) if isinstance(event, StopRequested)]
    assert stops == ["SIGTERM"]


@pytest.mark.parametrize("step", ["status", pytest.param("rev-parse", marks=pytest.mark.soak)])
def test_ctrl_c_before_the_run_has_begun_is_130_and_nothing_else(
    tmp_path: Path, project: Path, argv: list[str], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=project, check=True)
    slow, reached = tmp_path / "bin" / "git", tmp_path / "reached"
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *{step}*) echo $$ > {reached}; exec sleep 600;; esac\nexec /usr/bin/git "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        eventually(reached.exists, "the git command")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, out, err) == (130, "", "untildone: stopping (SIGINT)\n")
