import os
from pathlib import Path

import pytest

from untildone.witness.logs import KEPT, LogFolder


def test_only_the_newest_logs_are_kept(tmp_path: Path) -> None:
    logs = LogFolder(tmp_path / "logs")
    for number in range(KEPT + 5):
        path = Path(logs.begin("c" * 40, f"check {number}").path)
        os.utime(path, (number, number))
    left = {path.name for path in (tmp_path / "logs").iterdir()}
    assert len(left) == KEPT
    assert "cccccccccccc-check-4.log" not in left
    assert f"cccccccccccc-check-{KEPT + 4}.log" in left


@pytest.mark.parametrize("name", ["", "...", "/", "../../x", "a" * 300, "\0\n"])
def test_any_name_of_a_check_is_a_file_in_the_folder(tmp_path: Path, name: str) -> None:
    log = LogFolder(tmp_path).begin(None, name)
    assert Path(log.path).parent == tmp_path
    assert Path(log.path).name.startswith("tree-")
    assert Path(log.path).stat().st_mode & 0o077 == 0


def test_a_place_that_cannot_be_written_to_costs_the_log_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    log = LogFolder(tmp_path / "logs").begin("c", "check")
    log.add("true", "fine\n", 0, 0.1)
    assert log.path == ""
