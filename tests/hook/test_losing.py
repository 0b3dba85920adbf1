"""A loop whose state file is gone is over, though no hook is called for it any more."""

import shutil
from pathlib import Path

import pytest

from hook.stop_kit import STOP, Stage
from untildone.hook import register
from untildone.hook.losing import release_lost


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def lost(stage: Stage) -> int:
    return release_lost(str(stage.home), 9.0)


def test_a_removed_state_file_ends_the_loop_for_whoever_looks(stage: Stage) -> None:
    stage.start()
    assert lost(stage) == 0
    stage.file.unlink()
    assert stage.launched("Stop", {**STOP, "cwd": str(stage.project)}) == {}
    assert lost(stage) == 1
    assert stage.entry is None
    (released,) = stage.told("released")
    assert (released["reason"], released["done"]) == ("loop_lost", False)
    assert released["detail"] == "its state file was removed"
    assert lost(stage) == 0


def test_a_removed_project_ends_its_loop(stage: Stage) -> None:
    stage.start()
    shutil.rmtree(stage.project)
    assert lost(stage) == 1
    (released,) = stage.told("released")
    assert released["detail"] == "its project folder is gone"
    assert not stage.project.exists()


def test_a_file_that_is_no_state_file_any_more_is_not_a_removed_one(stage: Stage) -> None:
    stage.start()
    stage.file.write_text("spoilt")
    assert lost(stage) == 0
    stage.file.unlink()
    stage.file.symlink_to("/nowhere")
    assert lost(stage) == 0
    assert stage.entry is not None


def test_an_end_that_was_cut_off_before_its_last_step_stays_what_it_was(stage: Stage) -> None:
    entry = stage.start(promises=("DONE",))
    assert "done" in stage.stop("DONE")["systemMessage"]
    register.write(str(stage.home), entry)
    assert lost(stage) == 1
    assert stage.entry is None
    assert [line["reason"] for line in stage.told("released")] == ["completion_signal"]


def test_an_entry_that_names_no_file_is_left_alone(stage: Stage) -> None:
    register.write(str(stage.home), {"loop": "abc", "project": str(stage.project), "session": "s"})
    assert lost(stage) == 0


def test_what_cannot_be_written_stays(stage: Stage) -> None:
    stage.start()
    stage.file.unlink()
    (lock,) = (stage.home / "loops").glob("*.lock")
    lock.unlink()
    lock.mkdir()
    assert lost(stage) == 0
    assert stage.entry is not None
