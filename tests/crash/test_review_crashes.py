"""Killed with -9 around every step of a review: it is booked and done again, and the work is as if nothing happened."""

from pathlib import Path

import pytest

from crash.crash_kit import KILLED, CrashStage, tries
from crash.driver import REVIEW
from crash.laborer import WORK
from crash.test_crash_points import boundaries, kind_of, naming
from untildone.core import events as ev

STEPS = (
    "review", "tell review agent.started", "tell review agent.session", "tell review agent.reply_started",
    "tell review agent.reply",
)  # fmt: skip
"""What only a review does, as seen from the loop."""
PARTS = 4


class ReviewStage(CrashStage):
    """The same run, with every iteration reviewed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, env={REVIEW: "iteration"})

    def check_reviews(self, *, deaths: int) -> None:
        self.check(deaths=deaths)
        events = [record.event for record in self.records()]
        ended = [(opening, closing) for opening, closing in tries(events) if opening.review]
        verdicts = [closing for _, closing in ended if isinstance(closing, ev.IterationCompleted)]
        assert [closing.iteration_num for closing in verdicts][-1] == self.state().attempts, (
            "the last work was reviewed"
        )
        assert [bool(closing.verdict and closing.verdict.approved) for closing in verdicts][-1], "and approved"
        reviewed = [closing.iteration_num for closing in verdicts]
        assert reviewed == sorted(set(reviewed)), "nothing that was said is asked for again"
        assert len(WORK) <= len(reviewed) + deaths
        assert len(ended) - len(verdicts) <= deaths


def undisturbed(folder: Path) -> list[str]:
    stage = ReviewStage(folder)
    assert stage.drive() == 0
    stage.check_reviews(deaths=0)
    return boundaries(stage.passed())


def die_and_recover(folder: Path, point: str) -> None:
    stage = ReviewStage(folder)
    with naming(point):
        assert stage.drive(point) == KILLED, "the boundary was not reached"
        stage.drive_to_the_end()
        stage.check_reviews(deaths=1)


def test_death_after_every_step_of_a_review(tmp_path: Path) -> None:
    points = undisturbed(tmp_path / "undisturbed")
    assert {kind_of(point) for point in points} >= set(STEPS)
    second = [point for point in points if kind_of(point) in STEPS and point.endswith(" 2")]
    assert len(second) == 2 * len(STEPS)
    for number, point in enumerate(point for point in second if point.startswith("after")):
        die_and_recover(tmp_path / str(number), point)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_death_at_every_boundary_of_a_run_with_reviews(tmp_path: Path, part: int) -> None:
    mine = undisturbed(tmp_path / "undisturbed")[part::PARTS]
    assert len(mine) > 15
    for number, point in enumerate(mine):
        die_and_recover(tmp_path / f"{part}-{number}", point)
