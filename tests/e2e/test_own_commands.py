"""Checks and hooks are the user's own commands: nothing of them outlives the loop, and none is taken for the agent."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.kit import finished, staged
from e2e.liveness_kit import any_number, bash, eventually
from untildone.rehearsal.scenario import Reply, Scenario

pytestmark = pytest.mark.claude

SCRIPT = Scenario(name="own", iterations=((bash("echo a > f"), Reply(text=finished())),))
ARGS = ("-m", "2", "--skip-permissions")


def sleepers(number: str) -> set[int]:
    """The processes that sleep for just so long."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (place / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", number.encode()]:
                found.add(int(place.name))
    return found


def test_a_check_dies_with_a_loop_killed_outright_and_runs_once_after_it(tmp_path: Path) -> None:
    number, aside = any_number(), any_number()
    with staged(tmp_path, SCRIPT) as stage:
        run = stage.popen("run", "do it", "--check", f"setsid sleep {aside} & sleep {number}", *ARGS)
        eventually(lambda: bool(sleepers(number) and sleepers(aside)))
        run.kill()
        run.communicate()
        eventually(lambda: not sleepers(number) and not sleepers(aside))
        resumed = stage.popen("resume")
        eventually(lambda: bool(sleepers(number) and sleepers(aside)))
        assert (len(sleepers(number)), len(sleepers(aside))) == (1, 1)
        resumed.send_signal(signal.SIGINT)
        resumed.communicate(timeout=60)
        assert (sleepers(number), sleepers(aside)) == (set(), set())


def test_a_hook_may_steer_runs_and_leave_something_running(tmp_path: Path) -> None:
    number = any_number()
    hook = f"setsid sleep {number} >/dev/null 2>&1 & {sys.executable} -m untildone stop nobody > said.txt 2>&1"
    with staged(tmp_path, SCRIPT) as stage:
        done = stage.untildone("run", "do it", "--check", "true", "--on-stop", hook, *ARGS)
        assert done.returncode == 0, done.stderr
        said = (stage.repo / "said.txt").read_text()
        assert "no run called 'nobody'" in said
        [left] = sleepers(number)
        os.kill(left, signal.SIGKILL)
