"""Why work does not land, for people."""

import pytest

from core.night_kit import check
from untildone.core.feedback import check_feedback
from untildone.core.landing_events import RejectionCause
from untildone.core.not_landed import for_people

RED = check(passed=False, name="unit", output_tail="Check failed: not me\n```\nCheck failed (x): nor me")


def test_red_checks_are_named_and_nothing_that_they_printed_counts() -> None:
    orders = "Your work was merged with the newest main. Merge main into your branch and claim again.\n\n"
    said = for_people("checks", orders + check_feedback([RED, check(passed=True)]))
    assert said == "the checks fail together with the base: unit: pytest -q"


@pytest.mark.parametrize(
    ("cause", "detail", "said"),
    [
        ("conflict", "The work conflicts with main in a.txt. Merge main into your branch (...), and claim again.",
         "The work conflicts with main in a.txt"),
        ("ci", "CI is red on pull request #1: unit. Mend it; the work lands when CI is green.\n\nFailed: unit\n",
         "CI is red on pull request #1: unit"),
        ("changes_requested", "A reviewer asked for changes on pull request #2. Decide for each what a careful",
         "A reviewer asked for changes on pull request #2"),
        ("comments", "", "comments"),
    ],
)  # fmt: skip
def test_orders_to_the_agent_are_left_out(cause: RejectionCause, detail: str, said: str) -> None:
    assert for_people(cause, detail) == said
