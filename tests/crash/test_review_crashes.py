"""A driver that dies around a step of a review: it is booked and done again, and the work is as if nothing happened."""

import asyncio
from pathlib import Path

import pytest

from crash.crash_kit import KILLED, CrashStage, MemoryStage, naming, tries
from crash.driver import REVIEW
from crash.points import Deaths, kind_of
from crash.test_crash_points import boundaries
from untildone.core import events as ev

STEPS = (
    "review", "tell review agent.started", "tell review agent.session", "tell review agent.reply_started",
    "tell review agent.reply",
)  # fmt: skip
"""What only a review does, as seen from the loop."""
PARTS = 4


def check_reviews(stage: CrashStage, *, deaths: int) -> None:
    stage.check(deaths=deaths)
    events = [record.event for record in stage.records()]
    ended = [(opening, closing) for opening, closing in tries(events) if opening.review]
    verdicts = [closing for _, closing in ended if isinstance(closing, ev.IterationCompleted)]
    assert [closing.iteration_num for closing in verdicts][-1] == stage.state().attempts, "the last work was reviewed"
    assert [bool(closing.verdict and closing.verdict.approved) for closing in verdicts][-1], "and approved"
    reviewed = [closing.iteration_num for closing in verdicts]
    assert reviewed == sorted(set(reviewed)), "nothing that was said is asked for again"
    assert len(stage.work) <= len(reviewed) + deaths
    assert len(ended) - len(verdicts) <= deaths


@pytest.mark.parametrize("first", ["after", pytest.param("before", marks=pytest.mark.soak)])
def test_one_run_outlives_a_death_at_each_step_of_a_review(tmp_path: Path, first: str) -> None:
    deaths = Deaths(STEPS, first)
    with asyncio.Runner() as runner:
        stage = MemoryStage(tmp_path / "stage", runner, review="iteration")
        with naming(deaths):
            stage.drive_until_it_is_done(deaths)
            check_reviews(stage, deaths=len(deaths.died))
    assert set(deaths.died) == set(STEPS)


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a driver passes that nothing disturbs."""
    stage = CrashStage(tmp_path_factory.mktemp("undisturbed") / "stage", env={REVIEW: "iteration"})
    assert stage.drive() == 0
    check_reviews(stage, deaths=0)
    points = boundaries(stage.passed())
    assert {kind_of(point) for point in points} >= set(STEPS)
    return points


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_death_at_every_boundary_of_a_run_with_reviews(tmp_path: Path, part: int, points: list[str]) -> None:
    mine = points[part::PARTS]
    assert len(mine) > 15
    for number, point in enumerate(mine):
        stage = CrashStage(tmp_path / f"{part}-{number}", env={REVIEW: "iteration"})
        with naming(point):
            assert stage.drive(point) == KILLED, "the boundary was not reached"
            stage.drive_to_the_end()
            check_reviews(stage, deaths=1)
