"""A driver that dies around a step of a landing by merge: the base moves once, and nothing of the user's ever."""

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from crash.crash_kit import KILLED, CrashStage, MemoryStage, naming
from crash.driver import LAND
from crash.points import Deaths, kind_of
from git.landing_kit import run_git
from untildone.core import events as ev

STEPS = ("append landing.begun", "merge", "verify", "check", "append landing.merged", "append continuous.completed")
"""What a landing consists of, as seen from the loop."""
PARTS = 4


class Neighbour:
    """A human at work on another branch of the repository, in another tree."""

    def __init__(self, stage: CrashStage) -> None:
        self._stage = stage
        self._tree = stage.folder / "users"
        stage.git("branch", "theirs")
        stage.git("worktree", "add", "-q", str(self._tree), "theirs")
        (self._tree / "thought.txt").write_text("stashed\n")
        run_git(self._tree, "stash", "-u")
        (self._tree / "staged.txt").write_text("staged\n")
        run_git(self._tree, "add", "-A")
        (self._tree / "staged.txt").write_text("and changed again\n")
        (self._tree / "new.txt").write_text("untracked\n")
        self._before = self._belongings()

    def _belongings(self) -> dict[str, str | bytes]:
        names = ("refs/heads/theirs", "refs/stash", "refs/tags")
        refs = self._stage.git("for-each-ref", "--format=%(refname) %(objectname)", *names)
        index = (self._stage.repo / ".git" / "worktrees" / "users" / "index").read_bytes()
        files = {path.name: path.read_bytes() for path in self._tree.iterdir() if path.is_file()}
        return {"refs": refs, "index": index, **files}

    def check(self) -> None:
        assert self._belongings() == self._before


def check_landing(stage: CrashStage, neighbour: Neighbour, *, deaths: int) -> None:
    stage.check(deaths=deaths)
    neighbour.check()
    assert stage.git("log", "--format=%s", "work").splitlines() == ["write three files", "first"]
    assert stage.git("ls-tree", "--name-only", "work").split() == sorted(stage.work)
    merged = [record.event for record in stage.records() if isinstance(record.event, ev.LandingMerged)]
    assert [event.merged for event in merged] == [stage.git("rev-parse", "work").strip()]
    assert stage.git("worktree", "list").count("\n") == 2, "no fresh checkout is left"
    assert stage.git("fsck", "--no-dangling") == ""


class LandingStage(CrashStage):
    """The same run, landing on `work`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, env={LAND: "merge"})
        self._neighbour = Neighbour(self)

    def check_landing(self, *, deaths: int) -> None:
        check_landing(self, self._neighbour, deaths=deaths)


@pytest.mark.parametrize("first", ["after", pytest.param("before", marks=pytest.mark.soak)])
def test_one_landing_outlives_a_death_at_each_of_its_steps(tmp_path: Path, first: str) -> None:
    deaths = Deaths(STEPS, first)
    with asyncio.Runner() as runner:
        stage = MemoryStage(tmp_path / "stage", runner, land="merge")
        neighbour = Neighbour(stage)
        with naming(deaths):
            stage.drive_until_it_is_done(deaths)
            check_landing(stage, neighbour, deaths=len(deaths.died))
    assert set(deaths.died) == set(STEPS)


KILLS = (
    "after spawn 1",
    "after append iteration.failed 1",  # of the driver that recovers
    "before append agent.reply 2",  # a reply is not booked, a file is not committed, a child of the agent is alive
    "after settle 1",
    "after check 1",
    "after merge 1",
)


def test_six_real_deaths_of_a_run_that_lands(tmp_path: Path) -> None:
    """Each driver is killed with -9, further on than the one before."""
    stage = LandingStage(tmp_path / "stage")
    for point in KILLS:
        with naming(point):
            assert stage.drive(point) == KILLED, "the boundary was not reached"
    stage.drive_to_the_end()
    stage.check_landing(deaths=len(KILLS))


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Every boundary from the moment on at which the landing begins, if nothing disturbs it."""
    stage = LandingStage(tmp_path_factory.mktemp("undisturbed") / "stage")
    assert stage.drive() == 0
    stage.check_landing(deaths=0)
    points = list(itertools.dropwhile(lambda point: point != "before append landing.begun 1", stage.passed()))
    assert {kind_of(point) for point in points} >= set(STEPS)
    return points


@pytest.mark.soak
@pytest.mark.parametrize("side", ["before", "after"])
def test_death_around_every_step_of_a_landing(tmp_path: Path, side: str, points: list[str]) -> None:
    for number, point in enumerate(point for point in points if kind_of(point) in STEPS and point.startswith(side)):
        stage = LandingStage(tmp_path / str(number))
        with naming(point):
            assert stage.drive(point) == KILLED, "the boundary was not reached"
            stage.drive_to_the_end()
            stage.check_landing(deaths=1)


SHIM = """#!/bin/sh
count=$(($(cat "{counter}") + 1))
echo $count > "{counter}"
[ "$count" = "{number}" ] && [ {side} = before ] && kill -9 $CRASH_DRIVER && exit 1
/usr/bin/git "$@"
code=$?
[ "$count" = "{number}" ] && [ {side} = after ] && kill -9 $CRASH_DRIVER
exit $code
"""


def with_killing_git(stage: LandingStage, number: int, side: str) -> Path:
    """The n-th git of the next driver kills it; returns where they are counted."""
    shim, counter = stage.folder / "bin" / "git", stage.folder / "count"
    shim.parent.mkdir()
    counter.write_text("0")
    shim.write_text(SHIM.format(counter=counter, number=number, side=side))
    shim.chmod(0o755)
    stage.env["PATH"] = f"{shim.parent}{os.pathsep}{os.environ['PATH']}"
    return counter


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("side", ["before", "after"])
def test_death_at_every_git_step_of_a_whole_run(tmp_path: Path, part: int, side: str) -> None:
    counted = LandingStage(tmp_path / "undisturbed")
    counter = with_killing_git(counted, 0, side)
    assert counted.drive() == 0
    steps = range(1, int(counter.read_text()) + 1)
    assert len(steps) > 40
    for number in steps[part::PARTS]:
        stage = LandingStage(tmp_path / str(number))
        with_killing_git(stage, number, side)
        with naming(f"{side} git step {number}"):
            killed = stage.drive() == KILLED
            del stage.env["PATH"]
            stage.drive_to_the_end()
            stage.check_landing(deaths=int(killed))
