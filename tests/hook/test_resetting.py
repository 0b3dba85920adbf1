"""A loop begins to count anew."""

import json
from pathlib import Path

import pytest

from hook.stop_kit import Stage
from untildone.hook.resetting import reset

LINES = "---\niteration_count: 7 # so far\r\nmax_iterations: 10\n---\nThe goal \udcff\n"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def again(stage: Stage, *, turns: bool) -> bool:
    return reset(str(stage.home), str(stage.project), now=1.0, turns=turns) is not None


def test_without_a_loop_there_is_nothing_to_reset(stage: Stage) -> None:
    assert not again(stage, turns=True)


def test_failures_are_forgotten_and_turns_only_if_asked(stage: Stage) -> None:
    stage.start()
    stage.edit(iteration=7)
    stage.change_entry(failures=4, failure_point="check: x", blocks=6)
    assert again(stage, turns=False)
    assert (stage.entry["failures"], stage.entry["failure_point"], stage.entry["blocks"], stage.turn) == (0, "", 0, 7)
    assert again(stage, turns=True)
    assert stage.turn == 1
    assert [(line["point"], line["failures"]) for line in stage.told("failed")] == [("", 0), ("", 0)]


def test_every_other_byte_of_the_file_stays(stage: Stage) -> None:
    stage.start()
    stage.file.write_bytes(LINES.encode("utf-8", "surrogateescape"))
    assert again(stage, turns=True)
    wanted = LINES.replace("iteration_count: 7", "iteration_count: 1").encode("utf-8", "surrogateescape")
    assert stage.file.read_bytes().replace(b"\r", b"") == wanted.replace(b"\r", b"")


@pytest.mark.parametrize("text", ["no settings at all", ""])
def test_a_file_that_cannot_be_read_is_left_alone(stage: Stage, text: str) -> None:
    stage.start()
    stage.file.write_text(text)
    stage.change_entry(failures=4)
    assert again(stage, turns=True)
    assert stage.file.read_text() == text
    assert stage.entry["failures"] == 0


def test_the_older_counters_are_reset_too(stage: Stage) -> None:
    stage.start(mode="autonomous")
    path = stage.put(
        ".multi-agent/circuit-breaker.json", '{"consecutive_failures": 4, "total_iterations": 30, "mine": 1}'
    )
    assert again(stage, turns=False)
    assert json.loads(path.read_text()) == {"consecutive_failures": 0, "total_iterations": 30, "mine": 1}
    assert again(stage, turns=True)
    assert json.loads(path.read_text()) == {"consecutive_failures": 0, "total_iterations": 0, "mine": 1}
