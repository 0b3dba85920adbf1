"""Killed with -9 at every boundary of the loop, one after the other, a run ends as if nothing had happened."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crash.crash_kit import KILLED, CrashStage

PARTS = 8
"""Pieces of the whole suite, so that several processes can share it."""

BOUNDARIES = (
    "acquire", "release", "save_snapshot", "prepare", "begin_iteration", "observe", "settle", "check", "usher", "spawn",
    "sweep", "sleep", "iterate", "close",
    "tell agent.started", "tell agent.session", "tell agent.reply_started", "tell agent.reply",
    "tell agent.assistant_message",
    "append trace", "append continuous.started+continuous.resumed+landing.prepared", "append continuous.baseline",
    "append continuous.waiting",
    "append iteration.started", "append agent.session", "append agent.reply_started", "append agent.reply",
    "append iteration.completed", "append landing.committed", "append iteration.validation",
    "append continuous.completed",
)  # fmt: skip
"""Every kind of call an undisturbed run makes. A new one must be named here, and is then covered like the others."""

RECOVERY = (
    "append continuous.resumed+landing.prepared", "sweep", "append agent.reply", "append iteration.failed", "snapshot",
    "append landing.snapshot", "append continuous.recovered",
)  # fmt: skip
"""What only a driver that takes over from a dead one does."""

IN_MID_WORK = "before append agent.reply 2"
"""A reply is served and not booked, a file is written and not committed, a child of the agent is alive."""
WAITING_FOR_A_COMMIT = "after append iteration.completed 3"


def kind_of(boundary: str) -> str:
    return boundary.split(" ", 1)[1].rpartition(" ")[0]


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


@contextmanager
def naming(point: str) -> Iterator[None]:
    try:
        yield
    except AssertionError as wrong:
        wrong.add_note(f"it had died {point}")
        raise
    print(f"died {point}: nothing lost")


def undisturbed(folder: Path) -> list[str]:
    stage = CrashStage(folder)
    assert stage.drive() == 0
    stage.check(deaths=0)
    return boundaries(stage.passed())


def die_and_recover(folder: Path, point: str) -> None:
    stage = CrashStage(folder)
    with naming(point):
        assert stage.drive(point) == KILLED, "the boundary was not reached"
        stage.drive_to_the_end()
        stage.check(deaths=1)


def test_every_boundary_of_an_undisturbed_run_has_a_known_name(tmp_path: Path) -> None:
    points = undisturbed(tmp_path / "undisturbed")
    assert {kind_of(point) for point in points} == set(BOUNDARIES)
    assert {point.split(" ")[0] for point in points} == {"before", "after"}


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in (1, 2, 3))])
def test_death_at_one_boundary_of_each_kind(tmp_path: Path, part: int) -> None:
    chosen = one_of_each_kind(undisturbed(tmp_path / "undisturbed"))
    assert {kind_of(point) for point in chosen} == set(BOUNDARIES)
    for number, point in enumerate(chosen[part::4]):
        die_and_recover(tmp_path / f"{part}-{number}", point)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_death_at_every_boundary(tmp_path: Path, part: int) -> None:
    mine = undisturbed(tmp_path / "undisturbed")[part::PARTS]
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


def test_death_of_the_one_who_came_to_mend(tmp_path: Path) -> None:
    points = recovery_points(tmp_path / "once", IN_MID_WORK)
    for number, kind in enumerate(RECOVERY):
        side = ("before", "after")[number % 2]
        second = next(point for point in points if point.startswith(side) and kind_of(point) == kind)
        die_twice(tmp_path / f"twice-{number}", IN_MID_WORK, second)


@pytest.mark.soak
@pytest.mark.parametrize("first", [IN_MID_WORK, WAITING_FOR_A_COMMIT])
@pytest.mark.parametrize("part", range(PARTS))
def test_death_at_every_boundary_of_a_recovery(tmp_path: Path, part: int, first: str) -> None:
    for number, second in enumerate(recovery_points(tmp_path / "once", first)[part::PARTS]):
        die_twice(tmp_path / f"{part}-{number}", first, second)
