"""Seals: who has the key of this machine wrote it, or somebody else did."""

import stat
import subprocess
import sys
from pathlib import Path

from untildone.hook.sealing import KEY_FILE, KEY_SIZE, is_sealed, seal_of


def test_a_seal_holds_for_what_was_sealed_and_for_nothing_else(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert not is_sealed(home, "note", b"x", "")
    seal = seal_of(home, "note", b"x")
    assert is_sealed(home, "note", b"x", seal)
    assert not is_sealed(home, "note", b"y", seal)
    assert not is_sealed(home, "entry", b"x", seal)
    assert not is_sealed(str(tmp_path / "other"), "note", b"x", seal)


def test_the_key_is_for_its_user_alone_and_made_once(tmp_path: Path) -> None:
    home = tmp_path / "new"
    before = seal_of(str(home), "note", b"x")
    status = (home / KEY_FILE).stat()
    assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o600, KEY_SIZE)
    assert seal_of(str(home), "note", b"x") == before
    assert [path.name for path in home.iterdir()] == [KEY_FILE]


def test_a_key_that_is_spoilt_is_replaced(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_bytes(b"short")
    assert is_sealed(str(tmp_path), "note", b"x", seal_of(str(tmp_path), "note", b"x"))


def test_many_who_make_it_at_once_have_the_same(tmp_path: Path) -> None:
    code = f"from untildone.hook.sealing import seal_of; print(seal_of({str(tmp_path / 'home')!r}, 'note', b'x'))"
    making = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert len({process.communicate(timeout=240)[0] for process in making}) == 1
