"""What a rehearsed night takes along of the shell it is started from."""

import os
from pathlib import Path

import pytest

from untildone.cli.nights import python_path


def test_modules_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = os.pathsep.join(["src", "", "/opt/lib"])
    assert python_path({"PYTHONPATH": given}) == {"PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), "/opt/lib"])}
    assert python_path({}) == python_path({"PYTHONPATH": ""}) == {}
