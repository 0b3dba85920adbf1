"""The guard as a program of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from untildone.sandbox import guard


def start(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-I", "-S", guard.__file__, *arguments],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [(), ("1",), ("1", "--"), ("x", "--", "true"), ("1", "true")])
def test_wrong_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    done = start(*arguments)
    assert (done.returncode, done.stderr.split(":")[0]) == (2, "usage")


def test_nothing_is_started_when_the_parent_is_already_gone(tmp_path: Path) -> None:
    done = start("1", "--", "touch", str(tmp_path / "started"))
    assert done.returncode == -signal.SIGTERM
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(("option", "stays"), [("--group", False), ("--group-only", True)])
def test_what_left_the_group_stays_only_if_told_so(tmp_path: Path, option: str, stays: bool) -> None:
    leaves = "setsid sh -c 'echo $$ > pid; exec sleep 60' >/dev/null 2>&1 & while ! [ -s pid ]; do :; done"
    done = start(option, str(os.getpid()), "--", "sh", "-c", f"cd '{tmp_path}'; {leaves}")
    assert done.returncode == 0
    pid = int((tmp_path / "pid").read_text())
    assert guard.is_zombie(pid) is not stays
    if stays:
        os.kill(pid, signal.SIGKILL)


def test_the_program_gets_default_signal_handling() -> None:
    done = start(str(os.getpid()), "--", "sh", "-c", "kill -PIPE $$")
    assert done.returncode == -signal.SIGPIPE


def test_it_imports_nothing_that_is_slow_to_import() -> None:
    code = (
        "import sys; exec(compile(open(sys.argv[1]).read(), 'guard', 'exec'), {'__name__': 'guard'}); "
        "print(sorted({'asyncio', 'ctypes', 'pathlib', 'subprocess', 'typing'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, guard.__file__], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_process_that_is_gone_has_no_parent() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert guard.parent_of(child.pid) is None
    assert guard.parent_of(os.getpid()) == os.getppid()
