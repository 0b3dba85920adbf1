"""Checks: bounded in time and in what is kept of them, and nothing of them stays behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patience import PATIENCE, eventually
from processes import is_alive
from untildone.hook.checking import OUTPUT_CAP, Checked, run_checks

ENV = {"PATH": os.environ.get("PATH", os.defpath)}


def run(*commands: str, cwd: Path, limit: float = 240.0, **env: str) -> list[Checked]:
    return run_checks(commands, cwd=str(cwd), env={**ENV, **env}, limit=limit)


def is_gone(pid: int) -> bool:
    """Whether a process ends; one that was killed needs a moment on a busy machine."""
    return eventually(lambda: not is_alive(pid), f"the end of process {pid}")


def pid_in(path: Path) -> int:
    return int(eventually(lambda: path.exists() and path.read_text().strip(), "its number"))


def test_they_run_in_turn_until_one_fails(tmp_path: Path) -> None:
    done = run("echo one; pwd", "echo two >&2; exit 3", "touch never", cwd=tmp_path)
    assert [(check.command, check.passed, check.expired) for check in done] == [
        ("echo one; pwd", True, False),
        ("echo two >&2; exit 3", False, False),
    ]
    assert [check.output for check in done] == [f"one\n{tmp_path}\n", "two\n"]
    assert not (tmp_path / "never").exists()


def test_only_the_end_of_the_output_is_kept(tmp_path: Path) -> None:
    (check,) = run("head -c 3000000 /dev/zero | tr '\\0' x; echo the end", cwd=tmp_path)
    assert check.passed
    assert len(check.output) == OUTPUT_CAP
    assert check.output.endswith("xthe end\n")


def test_the_limit_is_for_all_of_them_together_and_ends_the_whole_group(tmp_path: Path) -> None:
    began = time.monotonic()
    first, second = run("sleep 1", "trap '' TERM; sleep 600 & echo $! > pid; wait; sleep 600", cwd=tmp_path, limit=4.0)
    assert (first.passed, second.passed, second.expired) == (True, False, True)
    assert time.monotonic() - began < PATIENCE
    assert "not finished within its time" in second.output
    assert is_gone(pid_in(tmp_path / "pid"))


def test_what_a_check_leaves_running_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    (check,) = run("sleep 600 & echo $! > pid; echo fine", cwd=tmp_path, limit=240)
    assert (check.passed, check.output) == (True, "fine\n")
    assert time.monotonic() - began < PATIENCE
    assert is_gone(pid_in(tmp_path / "pid"))


def test_no_input_and_nothing_of_the_hook_in_the_environment(tmp_path: Path) -> None:
    ours = {"CLAUDECODE": "1", "CLAUDE_PROJECT_DIR": "/p", "CLAUDE_CODE_SESSION_ID": "s", "UNTILDONE_STORE": "/s"}
    (check,) = run("cat; env", cwd=tmp_path, GIT_DIR="/g", MINE="kept", **ours)
    assert "MINE=kept" in check.output
    assert not any(name in check.output for name in ("CLAUDE", "UNTILDONE", "GIT_DIR"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_hook_that_is_ended_takes_its_checks_with_it(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import os\nfrom untildone.hook.checking import run_checks\n"
        f"run_checks(['echo $$ > pid; sleep 600'], cwd={str(tmp_path)!r}, env=os.environ, limit=240)"
    )
    hook = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    pid = pid_in(tmp_path / "pid")
    assert is_alive(pid)
    hook.send_signal(number)
    hook.wait(PATIENCE)
    assert is_gone(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_check_that_was_ended_before_its_hook_has_not_failed(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import os\nfrom untildone.hook.checking import run_checks\n"
        f"print(run_checks(['echo $$ > pid; sleep 600'], cwd={str(tmp_path)!r}, env=os.environ, limit=240))"
    )
    hook = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    pid = pid_in(tmp_path / "pid")
    os.killpg(pid, number)
    hook.send_signal(signal.SIGTERM)
    said, _ = hook.communicate(timeout=240)
    assert (said, hook.returncode != 0, is_gone(pid)) == (b"", True, True)
