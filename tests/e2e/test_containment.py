"""On the real Claude Code: what a tool left behind with `setsid` is gone three seconds after its iteration ended."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from e2e.kit import Stage, staged, working
from e2e.liveness_kit import ARGS, SLEEPS, any_number, bash, story
from patience import PATIENCE, eventually
from untildone.rehearsal.scenario import Reply, Scenario

# Outside the soak: test_money_and_death.py has the same after Ctrl+C and kill -9, test_liveness.py after a hang.
pytestmark = [pytest.mark.claude, pytest.mark.soak]

PROMISED = 3.0
TRIES = 3
FAR_OFF = 20 * PROMISED


def keeps_its_promise(attempt: Callable[[Path], float], tmp: Path) -> None:
    """Whatever else this machine does only ever adds to the time: the best of a few tries is what the loop needs."""
    took: list[float] = []
    while len(took) < TRIES and not any(seconds <= PROMISED for seconds in took):
        folder = tmp / str(len(took))
        folder.mkdir()
        took.append(attempt(folder))
        assert took[-1] < FAR_OFF, "no load explains that"
    assert min(took) <= PROMISED, took


class Escaped:
    """The process that left its tool's session, and when it was gone: a thread of its own looks."""

    def __init__(self, number: str) -> None:
        self._arguments = [b"sleep", number.encode()]
        eventually(lambda: self._find() is not None)
        found = self._find()
        assert found is not None
        self._place = found
        self._gone_at: float | None = None
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def _find(self) -> Path | None:
        return next((place for place in Path("/proc").glob("[0-9]*") if self._is_at(place)), None)

    def _is_at(self, place: Path) -> bool:
        with suppress(OSError):
            return (place / "cmdline").read_bytes().split(b"\0")[:2] == self._arguments
        return False

    def _watch(self) -> None:
        ends_at = time.monotonic() + PATIENCE
        while self._is_at(self._place) and time.monotonic() < ends_at:
            time.sleep(0.005)
        if time.monotonic() < ends_at:
            self._gone_at = time.time()

    def seconds_after(self, moment: float) -> float:
        """How long after that moment it was gone."""
        self._watcher.join()
        assert self._gone_at is not None, "it lives for ever"
        return self._gone_at - moment


@contextmanager
def escaping(tmp: Path, *more: str, then: Reply | None = None) -> Iterator[tuple[Stage, Escaped, "Loop"]]:
    """A run whose tool leaves a process behind that called setsid, and then sleeps."""
    number = any_number()
    leaves = bash(f"setsid sleep {number} & {SLEEPS}")
    scenario = story(leaves) if then is None else Scenario(name="x", iterations=((leaves,), (then,)))
    with staged(tmp, scenario) as stage:
        loop = Loop(stage, *more)
        try:
            yield stage, Escaped(number), loop
        finally:
            loop.end()


class Loop:
    """The command that drives the run."""

    def __init__(self, stage: Stage, *more: str) -> None:
        self.process = stage.popen(*ARGS, *more)

    def leave(self) -> int:
        self.process.communicate(timeout=400)
        return self.process.returncode

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def test_what_escaped_is_gone_after_a_stop(tmp_path: Path) -> None:
    def attempt(folder: Path) -> float:
        with escaping(folder) as (stage, escaped, loop):
            stage.here("stop", "liver")
            stopped = time.time()
            assert loop.leave() == 130
            return escaped.seconds_after(stopped)

    keeps_its_promise(attempt, tmp_path)


def test_what_escaped_is_gone_after_a_timeout_although_the_run_goes_on(tmp_path: Path) -> None:
    slow = Reply(text=working("word " * 300), chunk_delay=0.3)
    timeout = 5.0

    def attempt(folder: Path) -> float:
        with escaping(folder, "--timeout", f"{timeout:g}s", then=slow) as (stage, escaped, loop):
            eventually(lambda: "timeout" in stage.here("log", "liver", "--json").stdout)
            assert loop.process.poll() is None, "the next iteration is under way"
            began = next(e["at"] for e in stage.events("liver") if e["event_type"] == "iteration.started")
            loop.process.send_signal(signal.SIGINT)
            assert loop.leave() == 130
            return escaped.seconds_after(began + timeout)

    keeps_its_promise(attempt, tmp_path)


def test_what_escaped_is_gone_after_kill_nine_and_a_restart(tmp_path: Path) -> None:
    def attempt(folder: Path) -> float:
        with escaping(folder) as (stage, escaped, loop):
            os.kill(loop.process.pid, signal.SIGKILL)
            loop.leave()
            restarted = time.time()
            assert Loop(stage).leave() == 0
            return escaped.seconds_after(restarted)

    keeps_its_promise(attempt, tmp_path)


def test_ctrl_c_twice_leaves_nothing_behind(tmp_path: Path) -> None:
    def attempt(folder: Path) -> float:
        with escaping(folder) as (_, escaped, loop):
            asked = time.time()
            loop.process.send_signal(signal.SIGINT)
            time.sleep(0.2)  # two presses of a key are never one signal
            loop.process.send_signal(signal.SIGINT)
            assert loop.leave() == 130
            return max(time.time() - asked, escaped.seconds_after(asked))

    keeps_its_promise(attempt, tmp_path)
