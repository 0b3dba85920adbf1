import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from untildone.cli.scratch import scratch_folder

DIES = """
import os, signal
from untildone.cli.scratch import scratch_folder
with scratch_folder(keep=False) as folder:
    (folder / "thermo").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_nothing_is_left_unless_it_is_to_be_kept(temp: Path) -> None:
    with scratch_folder(keep=False) as folder:
        (folder / "file").touch()
    assert list(temp.iterdir()) == []
    with scratch_folder(keep=True) as kept:
        (kept / "file").touch()
    with scratch_folder(keep=False):
        pass
    assert list(temp.iterdir()) == [kept]


IS_TOLD = """
import asyncio, sys
from untildone.cli.scratch import ending_in_order, scratch_folder
async def work():
    print("ready", flush=True)
    await asyncio.sleep(60)
with ending_in_order(), scratch_folder(keep=False) as folder:
    (folder / "thermo").mkdir()
    asyncio.run(work()) if sys.argv[1] == "waits" else print("ready", flush=True) or __import__("time").sleep(60)
"""


@pytest.mark.parametrize("busy", ["waits", "works"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_rehearsal_that_is_told_to_end_leaves_nothing(temp: Path, number: signal.Signals, busy: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", IS_TOLD, busy], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == "ready\n"
        assert len(list(temp.iterdir())) == 1
        child.send_signal(number)
        child.send_signal(signal.SIGTERM)  # a terminal that is closed sends both
        child.wait(30)
    assert list(temp.iterdir()) == []


def test_what_a_killed_rehearsal_left_goes_with_the_next(temp: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES], check=False, timeout=240)
    (left,) = temp.iterdir()
    elsewhere = temp / "mine"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (temp / "untildone-rehearsal-link").symlink_to(elsewhere)
    with scratch_folder(keep=False) as living:
        (living / "file").touch()
        assert not left.exists()
        with scratch_folder(keep=False):
            assert (living / "file").exists(), "one that is at work is left alone"
    assert (elsewhere / "precious").exists()
