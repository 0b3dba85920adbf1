"""Killed with -9 between every two steps of a pull request's life: never a second one, never a second merge."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crash.pull_driver import RUN_ID
from engine.pull_kit import GREEN, RED, PullRig, git_in, pull_rig
from untildone import wiring
from untildone.core import events as ev
from untildone.core.fold import fold
from untildone.rehearsal.github_checks import ScriptedCheck

TESTS = Path(__file__).parent.parent
KILLED = -9
PARTS = 4

STEPS = (
    "append landing.begun", "append landing.pushed", "append landing.pr_opened", "append landing.rejected",
    "append landing.merged", "forge find", "forge open", "forge look", "forge log_of", "forge update_branch",
    "forge merge", "forge delete_branch", "lander push", "lander catch_up", "lander tidy",
)  # fmt: skip
"""Every kind of step of a landing by pull request whose CI is red at first and whose base moves on."""


class Stage:
    """One repository, one remote, one scripted GitHub, and drivers that come and go."""

    def __init__(self, rig: PullRig) -> None:
        self.rig = rig
        self._moved = False
        rig.github.after = self._move_the_base

    def ci(self, commit: str, _: int) -> list[ScriptedCheck]:
        return [GREEN if self.rig.github.branches.has(commit, "fix.txt") else RED]

    def _move_the_base(self, method: str, path: str) -> None:
        if not self._moved and (method, path) == ("POST", "/repos/acme/widget/pulls"):
            self._moved = True
            self.rig.human_pushes("other.txt", "theirs\n")

    def drive(self, die_at: str = "") -> int:
        done = subprocess.run(
            [sys.executable, "-m", "crash.pull_driver", str(self.rig.tmp), self.rig.github.url, die_at],
            cwd=TESTS,
            env={"PATH": os.environ["PATH"], "HOME": str(self.rig.tmp), "GIT_CONFIG_NOSYSTEM": "1"},
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode in (0, KILLED), done.stdout + done.stderr
        return done.returncode

    def passed(self) -> list[str]:
        lines = (self.rig.tmp / "passed.txt").read_text().splitlines()
        return [line for line in lines if kind_of(line) in STEPS]

    def records(self) -> list[ev.Record]:
        async def read() -> list[ev.Record]:
            log = wiring.open_log(self.rig.tmp / "state", wiring.system_clock())
            try:
                return await log.read(RUN_ID)
            finally:
                await log.close()

        return asyncio.run(read())

    def check(self) -> None:
        github, records = self.rig.github, self.records()
        state = fold(records)
        assert (state.phase, state.stop_reason) == ("completed", "validation_passed"), state.stop_detail
        assert len(github.pulls) == 1, "one pull request"
        assert github.merges == [1], "merged once"
        assert self.rig.subjects() == ["make it work (#1)", "human changes other.txt", "first"]
        assert [self.rig.on_base(name) for name in ("new.txt", "fix.txt", "other.txt")] == [
            "new.txt", "fix.txt", "theirs",
        ]  # fmt: skip
        assert len([record for record in records if isinstance(record.event, ev.LandingMerged)]) == 1
        assert self.rig.branches() == ["main"]
        assert git_in(self.rig.repo, "status", "--porcelain") == ""


def kind_of(point: str) -> str:
    return point.split(" ", 1)[1].rpartition(" ")[0]


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    folder.mkdir()
    with pull_rig(folder, lambda _, __: []) as rig:
        stage = Stage(rig)
        rig.github.checks.ci = stage.ci
        yield stage


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a driver passes that nothing disturbs."""
    with staged(tmp_path_factory.mktemp("pulls") / "undisturbed") as stage:
        assert stage.drive() == 0
        stage.check()
        return stage.passed()


def die_and_recover(folder: Path, point: str) -> None:
    with staged(folder) as stage:
        try:
            assert stage.drive(point) == KILLED, "the boundary was not reached"
            assert stage.drive() == 0
            stage.check()
        except AssertionError as wrong:
            wrong.add_note(f"it had died {point}")
            raise


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, PARTS))])
def test_death_around_a_step_of_each_kind(tmp_path: Path, part: int, points: list[str]) -> None:
    assert {kind_of(point) for point in points} == set(STEPS)
    for number, kind in enumerate(STEPS[part::PARTS]):
        # After a step the world has changed and the log does not know it: that is where doubles come from.
        last = [point for point in points if kind_of(point) == kind and point.startswith("after")][-1]
        die_and_recover(tmp_path / str(number), last)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(2 * PARTS))
def test_death_around_every_step(tmp_path: Path, part: int, points: list[str]) -> None:
    for number, point in enumerate(points[part :: 2 * PARTS]):
        die_and_recover(tmp_path / str(number), point)
