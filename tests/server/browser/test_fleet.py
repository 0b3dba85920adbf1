"""The list of runs: its filters hold while things happen, and what it advises works."""

import os
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import expect

from server.browser import plays
from server.browser.conftest import Room
from server.browser.stage import Stage
from untildone.core import events as ev


def age(stage: Stage, run_id: str, seconds: float) -> None:
    """Nothing was heard of a run for so long."""
    connection = sqlite3.connect(stage.folder / "server.db", timeout=10)
    with connection:
        connection.execute("UPDATE runs SET heard_at = ? WHERE run_id = ?", (time.time() - seconds, run_id))
    connection.close()


def test_what_is_advised_to_begin_with_works(room: Room, stage: Stage) -> None:
    page = room.page()
    page.goto(stage.url)
    expect(page.locator("#nothing")).to_be_visible()
    run, worker = page.locator("#nothing pre").all_inner_texts()
    folder = stage.folder / "project"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True, timeout=30)
    place = Path(sys.executable).parent
    env = {"PATH": f"{place}:{os.environ['PATH']}", "HOME": str(stage.folder), "ANTHROPIC_API_KEY": "dummy"}

    def works(line: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "make the tests pass" in works(f"{run} --dry-run")
    said = works(f"{worker} --check")
    for word in ("box-1", stage.url, "make the tests pass", "pytest -q"):
        assert word in said
    assert shlex.split(worker)[-2:] == ["untildone", "worker"]


def test_a_filter_holds_while_things_happen(room: Room, stage: Stage) -> None:
    for name in ("at-work", "resting"):
        stage.tell(name, plays.running(name, name), sandbox=name)
    stopped = ev.ContinuousSuspended(stop_reason="stop_requested")
    stage.tell("resting", [stopped], sandbox="resting")
    page, paused = room.page(), room.page()
    page.goto(f"{stage.url}/?status=suspended")
    paused.goto(f"{stage.url}/?status=paused")
    expect(page.locator("#run-resting")).to_be_visible()
    expect(paused.locator("#nothing")).to_contain_text("No run is like that")
    # News of a run that is not of this kind, and then it becomes one.
    stage.tell("at-work", plays.end(4), sandbox="at-work")
    expect(paused.locator("#totals")).to_contain_text(re.compile(r"Running\s*1"))
    stage.tell("at-work", [stopped], sandbox="at-work")
    expect(page.locator("#run-at-work")).to_be_visible()
    resumed = ev.ContinuousResumed(pid=1, host="h", version="0.1.0", lease=2)
    stage.tell("resting", [resumed, ev.IterationStarted(iteration_num=5)], sandbox="resting")
    expect(page.locator("#run-resting")).to_have_count(0)
    expect(paused.locator(".run")).to_have_count(0)
    expect(paused.locator("#nothing")).to_be_visible()


def test_a_run_that_nobody_drives_is_interrupted_everywhere(room: Room, stage: Stage) -> None:
    stage.tell("left", plays.running("left", "left"), sandbox="left")
    fleet, page = room.page(), room.page()
    fleet.goto(f"{stage.url}/?text=left&status=running")
    page.goto(f"{stage.url}/runs/left")
    expect(fleet.locator("#run-left")).to_be_visible()
    expect(page.locator("#step-4 .badge").first).to_have_text("running")
    age(stage, "left", 91)
    # Both are told, long before they would ask by themselves.
    expect(fleet.locator("#run-left")).to_have_count(0, timeout=8_000)
    expect(page.locator("#headline")).to_contain_text("start its worker again", timeout=8_000)
    expect(page.locator("#step-4 .badge").first).to_have_text("cut off")
    fleet.get_by_role("link", name="Interrupted").click()
    expect(fleet.locator("#run-left")).to_contain_text("interrupted")
    fleet.locator("#run-left .item").click()
    fleet.locator("#step-4 .item").click()
    expect(fleet.locator(".title-line .badge")).to_have_text("cut off")
