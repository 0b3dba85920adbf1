"""The guard as a program of its own."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patience import eventually
from processes import state_of
from untildone.sandbox import guard
from untildone.sandbox.memory import Memory


def start(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-I", "-S", guard.__file__, *arguments],
        capture_output=True, text=True, check=False, timeout=240,
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
    leaves = "setsid sh -c 'echo $$ > pid; exec sleep 600' >/dev/null 2>&1 & while ! [ -s pid ]; do :; done"
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


def test_a_stopped_loop_lets_the_program_work_until_its_time_is_over_and_no_longer_than_a_moment(
    tmp_path: Path,
) -> None:
    """As (stopped, seconds the program may work from 0 on, looks at these seconds) and the first look that ends it."""
    memory = Memory.make()
    assert memory is not None
    loop = subprocess.Popen(["sleep", "600"])
    bound, late = guard.STOPPED_FOR, guard.LATE
    story: list[tuple[bool, float | None, list[float], float | None]] = [
        (False, None, [0, 1000], None),
        (False, 10, [0, 9, 11, 9 + late], None),
        (False, 10, [0, 11, 11 + late], 11 + late),
        (True, None, [0, 1000], None),
        (True, math.inf, [0, 1, bound - 1], None),
        (True, math.inf, [0, 1, bound, bound + 1], bound),
        (True, 2, [0, 1, 3], 3),
    ]
    try:
        for stopped, seconds, looks, ends_at in story:
            loop.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)
            wanted = "T" if stopped else "S"
            eventually(lambda wanted=wanted: state_of(loop.pid) == wanted, f"its state {wanted}")
            memory.end_within(seconds)
            began, watch = time.monotonic(), guard.LoopWatch(loop.pid, memory.file)
            ended = [look for look in looks if watch.must_enforce(began + look)]
            assert (ended, memory.was_enforced()) == ([ends_at] if ends_at else [], ends_at is not None), story
            memory.end_within(None)
            assert not memory.was_enforced()
    finally:
        loop.kill()
        loop.wait()
        memory.hand_over()
