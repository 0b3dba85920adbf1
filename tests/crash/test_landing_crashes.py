"""Killed with -9 around every step of a landing by merge: the base moves once, and nothing of the user's ever."""

import itertools
import os
from pathlib import Path

import pytest

from crash.crash_kit import KILLED, CrashStage
from crash.driver import LAND
from crash.laborer import WORK
from crash.test_crash_points import kind_of, naming
from git.landing_kit import run_git
from untildone.core import events as ev

STEPS = ("append landing.begun", "merge", "verify", "check", "append landing.merged", "append continuous.completed")
"""What a landing consists of, as seen from the loop."""
PARTS = 4


class LandingStage(CrashStage):
    """The same run, landing on `work`; beside it a human at work on another branch, in another tree."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, env={LAND: "merge"})
        self.users = folder / "users"
        self.git("branch", "theirs")
        self.git("worktree", "add", "-q", str(self.users), "theirs")
        (self.users / "thought.txt").write_text("stashed\n")
        run_git(self.users, "stash", "-u")
        (self.users / "staged.txt").write_text("staged\n")
        run_git(self.users, "add", "-A")
        (self.users / "staged.txt").write_text("and changed again\n")
        (self.users / "new.txt").write_text("untracked\n")
        self.before = self.of_the_user()

    def of_the_user(self) -> dict[str, str | bytes]:
        refs = self.git(
            "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/theirs", "refs/stash", "refs/tags"
        )
        index = (self.repo / ".git" / "worktrees" / "users" / "index").read_bytes()
        files = {path.name: path.read_bytes() for path in self.users.iterdir() if path.is_file()}
        return {"refs": refs, "index": index, **files}

    def check_landing(self, *, deaths: int) -> None:
        self.check(deaths=deaths)
        assert self.of_the_user() == self.before
        assert self.git("log", "--format=%s", "work").splitlines() == ["write three files", "first"]
        assert self.git("ls-tree", "--name-only", "work").split() == sorted(WORK)
        merged = [record.event for record in self.records() if isinstance(record.event, ev.LandingMerged)]
        assert [event.merged for event in merged] == [self.git("rev-parse", "work").strip()]
        assert self.git("worktree", "list").count("\n") == 2, "no fresh checkout is left"
        assert self.git("fsck", "--no-dangling") == ""


def undisturbed(folder: Path) -> list[str]:
    """Every boundary from the moment on at which the landing begins."""
    stage = LandingStage(folder)
    assert stage.drive() == 0
    stage.check_landing(deaths=0)
    return list(itertools.dropwhile(lambda point: point != "before append landing.begun 1", stage.passed()))


def die_and_land(folder: Path, point: str) -> None:
    stage = LandingStage(folder)
    with naming(point):
        assert stage.drive(point) == KILLED, "the boundary was not reached"
        stage.drive_to_the_end()
        stage.check_landing(deaths=1)


def die_around_steps(tmp_path: Path, side: str) -> None:
    points = undisturbed(tmp_path / "undisturbed")
    assert {kind_of(point) for point in points} >= set(STEPS)
    for number, point in enumerate(point for point in points if kind_of(point) in STEPS and point.startswith(side)):
        die_and_land(tmp_path / str(number), point)


def test_death_after_every_step_of_a_landing(tmp_path: Path) -> None:
    """The world has changed and the log does not know it: that is where doubles come from."""
    die_around_steps(tmp_path, "after")


@pytest.mark.soak
def test_death_before_every_step_of_a_landing(tmp_path: Path) -> None:
    die_around_steps(tmp_path, "before")


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
