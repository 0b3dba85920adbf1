"""A driver that dies at any boundary of the loop: the next one ends the run as if nothing had happened.

One run in this process outlives a death at a boundary of every kind. The soak kills drivers with -9 at every boundary.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from crash.crash_kit import KILLED, CrashStage, MemoryStage, naming
from crash.points import Deaths, kind_of

PARTS = 8
"""Pieces of the whole suite, so that several processes can share it."""

BOUNDARIES = (
    "acquire", "release", "save_snapshot", "prepare", "begin_iteration", "observe", "look", "settle", "check", "usher",
    "spawn", "sweep", "sleep", "iterate", "close",
    "tell agent.started", "tell agent.session", "tell agent.reply_started", "tell agent.reply",
    "tell agent.assistant_message",
    "append trace", "append continuous.started+continuous.resumed+landing.prepared", "append continuous.baseline",
    "append continuous.waiting",
    "append iteration.started", "append agent.session", "append agent.reply_started", "append agent.reply",
    "append iteration.completed", "append landing.committed", "append iteration.validation",
    "append continuous.completed",
)  # fmt: skip
"""Every kind of call an undisturbed run makes. A new one must be named here."""

RECOVERY = (
    "append continuous.resumed+landing.prepared", "sweep", "append agent.reply", "append iteration.failed", "snapshot",
    "append landing.snapshot", "append continuous.recovered",
)  # fmt: skip
"""What only a driver that takes over from a dead one does."""

IN_MID_WORK = "before append agent.reply 2"
"""A reply is served and not booked, a file is written and not committed, a child of the agent is alive."""
WAITING_FOR_A_COMMIT = "after append iteration.completed 3"
ENOUGH_WORK = tuple(f"{number:02}.txt" for number in range(10))
"""A death in an iteration may cost a file; there must be one left when the loop rests between two iterations."""


def boundaries(passed: Iterable[str]) -> list[str]:
    """In order. How many batches of trace events there are depends on the moment: the first stands for all."""
    chatty = ("append trace", "tell agent.assistant_message")
    return [point for point in passed if kind_of(point) not in chatty or point.endswith(" 1")]


def one_of_each_kind(points: list[str]) -> list[str]:
    """A boundary of every kind, in turn before and after the call, in turn early and late in the run."""
    kinds = list(dict.fromkeys(map(kind_of, points)))
    chosen = []
    for number, kind in enumerate(kinds):
        side = ("before", "after")[number % 2]
        same = [point for point in points if kind_of(point) == kind and point.startswith(side)]
        chosen.append(same[number // 2 % len(same)])
    return chosen


@pytest.mark.parametrize("first", ["after", pytest.param("before", marks=pytest.mark.soak)])
def test_one_run_outlives_a_death_at_a_boundary_of_every_kind(tmp_path: Path, first: str) -> None:
    """Each driver dies at the first boundary of a kind at which none has died, in turn before and after the call."""
    deaths = Deaths(first=first)
    with asyncio.Runner() as runner:
        stage = MemoryStage(tmp_path / "stage", runner, work=ENOUGH_WORK, most=99)
        with naming(deaths):
            stage.drive_until_it_is_done(deaths)
            stage.check(deaths=len(deaths.died))
    assert set(deaths.died) == {*BOUNDARIES, *RECOVERY}


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a driver passes that nothing disturbs."""
    stage = CrashStage(tmp_path_factory.mktemp("undisturbed") / "stage")
    assert stage.drive() == 0
    stage.check(deaths=0)
    points = boundaries(stage.passed())
    assert {kind_of(point) for point in points} == set(BOUNDARIES)
    assert {point.split(" ")[0] for point in points} == {"before", "after"}
    return points


def die_and_recover(folder: Path, point: str) -> None:
    stage = CrashStage(folder)
    with naming(point):
        assert stage.drive(point) == KILLED, "the boundary was not reached"
        stage.drive_to_the_end()
        stage.check(deaths=1)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_death_at_every_boundary(tmp_path: Path, part: int, points: list[str]) -> None:
    mine = points[part::PARTS]
    assert len(mine) > 15
    for number, point in enumerate(mine):
        die_and_recover(tmp_path / f"{part}-{number}", point)


def recovery_points(folder: Path, first: str) -> list[str]:
    """What a driver passes that takes over from one that died at `first`."""
    stage = CrashStage(folder)
    assert stage.drive(first) == KILLED
    (stage.folder / "passed.txt").unlink()
    assert stage.drive() == 0
    # Only the first iteration of a run tells so much that a batch of trace events is sure to come.
    return [point for point in boundaries(stage.passed()) if kind_of(point) != "append trace"]


def die_twice(folder: Path, first: str, second: str) -> None:
    stage = CrashStage(folder)
    with naming(f"{first}, and again {second}"):
        assert stage.drive(first) == KILLED, "the first boundary was not reached"
        assert stage.drive(second) == KILLED, "the second boundary was not reached"
        stage.drive_to_the_end()
        stage.check(deaths=2)


@pytest.mark.soak
@pytest.mark.parametrize("first", [IN_MID_WORK, WAITING_FOR_A_COMMIT])
@pytest.mark.parametrize("part", range(PARTS))
def test_death_at_every_boundary_of_a_recovery(tmp_path: Path, part: int, first: str) -> None:
    points = recovery_points(tmp_path / "once", first)
    if first == IN_MID_WORK:
        assert {kind_of(point) for point in points} >= set(RECOVERY)
    for number, second in enumerate(points[part::PARTS]):
        die_twice(tmp_path / f"{part}-{number}", first, second)
