"""The end of a loop: whatever moment it is killed in, the goal is somewhere; and whoever asked is told."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cli.background_kit import reaping
from hook.stop_kit import SESSION, Stage, goes_on, next_text
from notify.ear import listening
from patience import eventually
from untildone.core import loop_file
from untildone.hook.releasing import history_path, release

KILLED = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from hook.stop_kit import Stage
from untildone.hook.stopping import on_stop
from untildone.hook.answering import Call

left = {after}
def watch(event, args):
    global left
    opens = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
    if opens or event in ("os.rename", "os.remove"):
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

env = {env!r}
event = {event!r}
call = Call(event, env, time.time())
sys.addaudithook(watch)
on_stop(call)
print("finished")
"""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def killed_after(stage: Stage, writes: int, message: str) -> bool:
    """Stop once in a process that is killed before its n-th write; whether it was."""
    call = stage.call(message)
    tests = str(Path(__file__).parent.parent)
    code = KILLED.format(tests=tests, after=writes, env=stage.env, event=dict(call.event))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=240, check=False)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr.decode()
    return done.returncode != 0


def goals(stage: Stage) -> list[str]:
    """Every goal that stands in a state file, here or in the history."""
    texts = [path.read_text() for path in (stage.project / ".untildone").glob("loop.md")] + stage.history()
    files = [loop_file.parse(text) for text in texts]
    assert None not in files, "half a file"
    return [file.body.strip() for file in files if file is not None]


@pytest.mark.parametrize("message", ["going on", "DONE"], ids=["going on", "done"])
def test_killed_at_any_write_nothing_is_lost(tmp_path: Path, message: str) -> None:
    for writes in range(30):
        stage = Stage(_folder(tmp_path / f"{writes}"))
        stage.start("The one goal", promises=("DONE",), max_iterations=5)
        killed = killed_after(stage, writes, message)
        assert set(goals(stage)) == {"The one goal"}
        if not killed:
            assert writes > 4
            return
        if stage.entry is not None and stage.file.exists():
            # Whoever stops next carries on from there.
            assert stage.stop(message).get("systemMessage", "").startswith("untildone: ")
            assert set(goals(stage)) == {"The one goal"}
    pytest.fail("it never came to an end")


def test_killed_between_two_goals_none_is_lost(tmp_path: Path) -> None:
    for writes in range(30):
        stage = Stage(_folder(tmp_path / f"{writes}"))
        stage.start("First", promises=("DONE",), next_goals=("Second",))
        killed = killed_after(stage, writes, "DONE")
        assert stage.entry is not None
        left = set(goals(stage)) | {line.strip() for text in stage.entry["next"] for line in text.splitlines()}
        assert {"First", "Second"} <= left
        if not killed:
            return
    pytest.fail("it never came to an end")


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_the_whole_file_is_kept_and_the_project_is_clean(stage: Stage) -> None:
    entry = stage.start("Goal", session=SESSION)
    text = stage.file.read_text()
    release(str(stage.home), entry, reason="stop_requested", now=time.time(), iteration=1, detail="by hand")
    assert Path(history_path(str(stage.home), entry["loop"])).read_text() == text
    assert (stage.entry, stage.file.exists()) == (None, False)
    (end,) = stage.told("released")
    assert (end["reason"], end["detail"], end["done"]) == ("stop_requested", "by hand", False)


def test_the_history_is_nobody_elses_business(stage: Stage) -> None:
    entry = stage.start("Goal")
    release(str(stage.home), entry, reason="blocked", now=time.time())
    assert Path(history_path(str(stage.home), entry["loop"])).stat().st_mode & 0o077 == 0


def test_a_plain_goal_that_follows_takes_over_the_limits(stage: Stage) -> None:
    stage.start("First", promises=("DONE",), max_iterations=7)
    stage.change_entry(next=["Second, in plain words"])
    assert goes_on(stage.stop("DONE"))
    found = loop_file.parse(stage.file.read_text())
    assert found is not None
    assert (found.max_iterations, found.promises, found.iteration) == (7, ("DONE",), 1)
    assert (found.session, found.body.strip()) == (SESSION, "Second, in plain words")


def test_checks_that_follow_are_those_the_user_gave(stage: Stage) -> None:
    stage.start("First", promises=("DONE",), checks=("true",))
    stage.change_entry(next=[loop_file.new_file("Second", checks=("test -e ready",), promises=("DONE",))])
    assert goes_on(stage.stop("DONE"))
    assert stage.entry["checks"] == ["test -e ready"]
    assert "`test -e ready`" in next_text(stage.stop("DONE"))


def heard(ear: Any, count: int) -> list[dict[str, Any]]:
    eventually(lambda: len(ear.heard) >= count, f"note {count}")
    return list(ear.heard)


def test_milestones_and_the_end_are_told_without_waiting(stage: Stage) -> None:
    with reaping(), listening(answers=[503]) as ear:
        stage.start("Goal", promises=("DONE",), notify=(ear.url,), milestones=(1,))
        assert goes_on(stage.stop())
        first = heard(ear, 2)
        assert [note["kind"] for note in first] == ["milestone", "milestone"], "once more after the server failed"
        assert first[0]["id"] == first[1]["id"]
        stage.stop("DONE")
        last = heard(ear, 3)[-1]
    assert (last["untildone"], last["kind"], last["facts"]["reason"]) == (1, "done", "completion_signal")
    assert last["title"] == "a project: done by the agent's word: no checks ran (after 2 turns)"


def test_a_silent_server_holds_nothing_up(stage: Stage) -> None:
    with reaping(), listening(silent=True) as ear:
        stage.start("Goal", notify=(ear.url,), max_iterations=1)
        began = time.monotonic()
        stage.stop()
        assert time.monotonic() - began < 20, "three tries with a silent server take 34 s"
        assert len(heard(ear, 1)) == 1
