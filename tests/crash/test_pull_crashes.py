"""A driver that dies between two steps of a pull request's life: never a second one, never a second merge."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crash.crash_kit import KILLED, TESTS, naming
from crash.points import Deaths, Mortal, kind_of
from crash.pull_driver import RUN_ID, SPEED, drive
from engine.pull_kit import GREEN, RED, PullRig, git_in, pull_rig
from engine.rig import FastClock
from untildone import wiring
from untildone.core import events as ev
from untildone.core.fold import fold
from untildone.rehearsal.github_checks import ScriptedCheck
from untildone.store.memory import MemoryLog

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
            timeout=400,
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

    async def drive_here(self, deaths: Deaths) -> list[ev.Record]:
        """One driver after the other in this process, on a store in memory; all but the last die."""
        clock = FastClock(SPEED)
        log, is_done = MemoryLog(clock), False
        while not is_done:
            points = Mortal(deaths)
            try:
                await drive(self.rig.tmp, self.rig.github.url, log, clock, points)
            except BaseException:
                if not points.is_dead:
                    raise
            await log.close()
            is_done = not points.is_dead
        return await log.read(RUN_ID)

    def check(self, records: list[ev.Record] | None = None) -> None:
        github = self.rig.github
        records = self.records() if records is None else records
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


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    folder.mkdir()
    with pull_rig(folder, lambda _, __: []) as rig:
        stage = Stage(rig)
        rig.github.checks.ci = stage.ci
        yield stage


@pytest.mark.parametrize("first", ["after", pytest.param("before", marks=pytest.mark.soak)])
def test_one_pull_request_outlives_a_death_at_each_of_its_steps(tmp_path: Path, first: str) -> None:
    deaths = Deaths(STEPS, first)
    with staged(tmp_path / "stage") as stage, naming(deaths):
        stage.check(asyncio.run(stage.drive_here(deaths)))
    assert set(deaths.died) == set(STEPS)


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a driver passes that nothing disturbs."""
    with staged(tmp_path_factory.mktemp("pulls") / "undisturbed") as stage:
        assert stage.drive() == 0
        stage.check()
        points = stage.passed()
    assert {kind_of(point) for point in points} == set(STEPS)
    return points


@pytest.mark.soak
@pytest.mark.parametrize("part", range(2 * PARTS))
def test_death_around_every_step(tmp_path: Path, part: int, points: list[str]) -> None:
    for number, point in enumerate(points[part :: 2 * PARTS]):
        with staged(tmp_path / str(number)) as stage, naming(point):
            assert stage.drive(point) == KILLED, "the boundary was not reached"
            assert stage.drive() == 0
            stage.check()
