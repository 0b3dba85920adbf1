"""The list of runs: its filters hold while things happen, and what it advises works."""

import html
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from patience import PATIENCE
from server.browser import plays
from server.browser.conftest import Room
from server.browser.stage import Stage
from server.door_kit import served
from untildone.core import events as ev


def age(stage: Stage, run_id: str, seconds: float) -> None:
    """Nothing was heard of a run for so long."""
    connection = sqlite3.connect(stage.folder / "server.db", timeout=PATIENCE)
    with connection:
        connection.execute("UPDATE runs SET heard_at = ? WHERE run_id = ?", (time.time() - seconds, run_id))
    connection.close()


def test_what_is_advised_to_begin_with_works(tmp_path: Path) -> None:
    with served(tmp_path / "server") as server:
        said = server.ask("GET", "/").body.decode()
        url = f"http://127.0.0.1:{server.port}"
    assert "No runs yet" in said
    run, worker = (html.unescape(found) for found in re.findall(r"<pre><code>(.*?)</code></pre>", said, re.DOTALL))
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True, timeout=240)
    place = Path(sys.executable).parent
    env = {"PATH": f"{place}:{os.environ['PATH']}", "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "dummy"}

    def works(line: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=400, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "make the tests pass" in works(f"{run} --dry-run")
    said = works(f"{worker} --check")
    for word in ("box-1", url, "make the tests pass", "pytest -q"):
        assert word in said
    assert shlex.split(worker)[-2:] == ["untildone", "worker"]


def test_a_filter_holds_while_things_happen(room: Room, stage: Stage) -> None:
    for name in ("sifted-busy", "sifted-idle"):
        stage.tell(name, plays.running(name, name), sandbox=name)
    stopped = ev.ContinuousSuspended(stop_reason="stop_requested")
    stage.tell("sifted-idle", [stopped], sandbox="sifted-idle")
    page, paused = room.page(), room.page()
    page.goto(f"{stage.url}/?text=sifted&status=suspended")
    paused.goto(f"{stage.url}/?text=sifted&status=paused")
    expect(page.locator("#run-sifted-idle")).to_be_visible()
    expect(paused.locator("#nothing")).to_contain_text("No run is like that")
    # News of a run that is not of this kind, and then it becomes one.
    spent = paused.locator("#totals").inner_text()
    stage.tell("sifted-busy", plays.end(4, cost=7.0), sandbox="sifted-busy")
    expect(paused.locator("#totals")).not_to_have_text(spent, use_inner_text=True)
    stage.tell("sifted-busy", [stopped], sandbox="sifted-busy")
    expect(page.locator("#run-sifted-busy")).to_be_visible()
    resumed = ev.ContinuousResumed(pid=1, host="h", version="0.1.0", lease=2)
    stage.tell("sifted-idle", [resumed, ev.IterationStarted(iteration_num=5)], sandbox="sifted-idle")
    expect(page.locator("#run-sifted-idle")).to_have_count(0)
    expect(paused.locator(".run")).to_have_count(0)
    expect(paused.locator("#nothing")).to_be_visible()


@pytest.mark.soak
def test_a_run_that_nobody_drives_is_interrupted_everywhere(room: Room, stage: Stage) -> None:
    """Outside the soak: tests/server/test_silence.py, test_folding.py and test_archive_runs.py."""
    stage.tell("left", plays.running("left", "left"), sandbox="left")
    fleet, page = room.page(), room.page()
    fleet.goto(f"{stage.url}/?text=left&status=running")
    page.goto(f"{stage.url}/runs/left")
    expect(fleet.locator("#run-left")).to_be_visible()
    expect(page.locator("#step-4 .badge").first).to_have_text("running")
    age(stage, "left", 91)
    expect(fleet.locator("#run-left")).to_have_count(0)
    expect(page.locator("#headline")).to_contain_text("start its worker again")
    expect(page.locator("#step-4 .badge").first).to_have_text("cut off")
    fleet.get_by_role("link", name="Interrupted").click()
    expect(fleet.locator("#run-left")).to_contain_text("interrupted")
    fleet.locator("#run-left .item").click()
    fleet.locator("#step-4 .item").click()
    expect(fleet.locator(".title-line .badge")).to_have_text("cut off")
