"""What a loop works for was edited while it was at work: the spool tells it, once."""

from pathlib import Path

import pytest

from hook.stop_kit import Stage
from untildone.hook import starting


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def edit(stage: Stage, old: str, new: str) -> None:
    stage.file.write_text(stage.file.read_text().replace(old, new))


def test_an_edited_goal_is_told_with_the_next_turn(stage: Stage) -> None:
    stage.start("Old goal", promises=["ALL OK"], max_iterations=9)
    stage.stop("one")
    assert stage.told("changed") == []
    edit(stage, "Old goal", "New goal")
    stage.stop("two")
    stage.stop("three")
    [line] = stage.told("changed")
    assert (line["goal"], line["promises"], line["max_iterations"]) == ("New goal", ["ALL OK"], 9)
    assert [line["what"] for line in stage.told()] == ["started", "turn", "changed", "turn", "turn"]


def test_it_is_told_before_the_end(stage: Stage) -> None:
    stage.start("Old goal", promises=["ALL OK"])
    edit(stage, "ALL OK", "OTHER")
    edit(stage, "Old goal", "New goal")
    stage.stop("Everything works.\n\nOTHER")
    assert [line["what"] for line in stage.told()] == ["started", "changed", "released"]
    assert (stage.told("changed")[0]["goal"], stage.told("changed")[0]["promises"]) == ("New goal", ["OTHER"])


def test_checks_that_are_taken_over_are_told(stage: Stage) -> None:
    stage.start(promises=["ALL OK"], checks=["false"])
    edit(stage, '"false"', '"true"')
    starting.adopt(str(stage.home), str(stage.project), now=1.0, take_checks=True)
    assert [line["checks"] for line in stage.told("changed")] == [["true"]]
    stage.stop("Everything works.\n\nALL OK")
    assert [line["what"] for line in stage.told()] == ["started", "changed", "check", "released"]


def test_a_goal_that_follows_is_no_change(stage: Stage) -> None:
    stage.start("First", promises=["ALL OK"], next_goals=["Second"])
    stage.stop("Everything works.\n\nALL OK")
    stage.stop("more")
    assert stage.told("changed") == []
