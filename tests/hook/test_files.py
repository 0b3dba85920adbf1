"""Files as a hook needs them, on a disk that is full and beside what a killed process left."""

import os
import subprocess
import sys
from pathlib import Path

from untildone.hook.files import append_line, write_text

FULL = """
import resource, sys
from untildone.hook.files import append_line

path = sys.argv[1]
append_line(path, "first")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
try:
    append_line(path, "second that does not fit")
except OSError as refused:
    print(refused.strerror, refused.filename == path)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
append_line(path, "third")
"""


def test_half_a_line_is_an_error_and_nothing_is_glued_to_it(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout == "No space left on device True\n"
    assert path.read_text() == "first\nseco\nthird\n"


def test_what_a_killed_process_left_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.with_name(f"state.{os.getpid()}.new").write_text("half")
    write_text(str(path), "whole")
    assert path.read_text() == "whole"


def test_lines_are_appended_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lines"
    append_line(str(path), "a")
    append_line(str(path), "b")
    assert path.read_text() == "a\nb\n"
