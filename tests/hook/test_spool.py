"""What hooks write down: whole lines, sealed, each naming the one before it."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

from untildone.hook import spool

LOOP = "abc123"


def path(home: Path) -> Path:
    return Path(spool.spool_path(str(home), LOOP))


def told(home: Path) -> list[spool.Line | None]:
    return [spool.opened(str(home), LOOP, line) for line in path(home).read_bytes().splitlines(keepends=True)]


def test_each_line_is_sealed_and_names_the_one_before(tmp_path: Path) -> None:
    for number in range(3):
        spool.tell(str(tmp_path), LOOP, "turn", 100.0, iteration=number, text='ünï "seal": "\udc80\n')
    lines = [line for line in told(tmp_path) if line]
    assert [line.value["iteration"] for line in lines] == [0, 1, 2]
    assert [line.prev for line in lines] == [0, lines[0].number, lines[1].number]
    assert json.loads(path(tmp_path).read_text().splitlines()[0])["what"] == "turn"


def test_what_was_changed_copied_to_another_loop_or_never_sealed_is_not_opened(tmp_path: Path) -> None:
    spool.tell(str(tmp_path), LOOP, "check", 100.0, passed=False)
    line = path(tmp_path).read_bytes()
    assert spool.opened(str(tmp_path), LOOP, line)
    assert spool.opened(str(tmp_path), "other", line) is None
    for other in (line.replace(b"false", b"true"), b'{"at": 1}\n', b"\n", b'x, "seal": "1-2"}\n', line[:-5], line[3:]):
        assert spool.opened(str(tmp_path), LOOP, other) is None


def test_a_forged_number_moves_nothing(tmp_path: Path) -> None:
    spool.tell(str(tmp_path), LOOP, "turn", 100.0)
    with path(tmp_path).open("a") as file:
        file.write('{"what": "turn", "seal": "99999999999999999999-0"}\n')
    spool.tell(str(tmp_path), LOOP, "turn", 100.0)
    first, forged, second = told(tmp_path)
    assert first is not None
    assert forged is None
    assert second is not None
    assert first.number < second.number < 9_999_999_999_999_999_999
    assert second.prev != first.number


def test_half_a_line_is_not_glued_to_the_next(tmp_path: Path) -> None:
    spool.tell(str(tmp_path), LOOP, "turn", 100.0)
    with path(tmp_path).open("a") as file:
        file.write('{"what": "tu')
    spool.tell(str(tmp_path), LOOP, "turn", 100.0)
    assert [line is not None for line in told(tmp_path)] == [True, False, True]


def test_what_is_no_file_is_put_out_of_the_way(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("theirs")
    path(tmp_path).parent.mkdir()
    path(tmp_path).symlink_to(other)
    spool.tell(str(tmp_path), LOOP, "turn", 100.0)
    assert (other.read_text(), path(tmp_path).is_symlink()) == ("theirs", False)
    path(tmp_path).unlink()
    os.mkfifo(path(tmp_path))
    spool.tell(str(tmp_path), LOOP, "turn", 100.0)
    assert len(told(tmp_path)) == 1


def test_whoever_holds_the_lock_holds_nobody_up_for_long(tmp_path: Path) -> None:
    spool.tell(str(tmp_path), LOOP, "turn", 100.0)
    with path(tmp_path).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        spool.tell(str(tmp_path), LOOP, "turn", 100.0)
    assert len(told(tmp_path)) == 2


def test_many_who_write_at_once_make_one_chain(tmp_path: Path) -> None:
    code = f"""
from untildone.hook import spool
for number in range(50):
    spool.tell({str(tmp_path)!r}, {LOOP!r}, "tool", 100.0, detail="x" * 500)
"""
    writing = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [process.wait(timeout=240) for process in writing] == [0] * 4
    lines = [line for line in told(tmp_path) if line]
    assert len(lines) == 200
    assert [line.prev for line in lines] == [0, *(line.number for line in lines[:-1])]
