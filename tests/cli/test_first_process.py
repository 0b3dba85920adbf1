"""As the first process of a container, which is what `deploy/Containerfile` makes of the command."""

import subprocess
import sys

import pytest

FIRST = ("bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--as-pid-1", "--proc", "/proc", "--", sys.executable)
IN_A_CHILD = "import os, signal, subprocess, sys, time\nfrom untildone.cli.first_process import work_in_a_child\n"

# The shell that started it is gone; it ends, and only the first process can reap it.
ORPHAN = """
orphan = int(subprocess.check_output(["sh", "-c", "setsid true >/dev/null & echo $!"]))
while os.path.exists(f"/proc/{orphan}"):
    time.sleep(0.01)
"""
ON_SIGTERM = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
os.kill(1, signal.SIGTERM)
while True:
    time.sleep(0.01)
"""
STORIES = {
    "an orphan is reaped": (ORPHAN, 0),
    "a signal reaches the child": (ON_SIGTERM, 7),
    "the exit code is the child's": ("sys.exit(3)\n", 3),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)\n", 128 + 9),
}


@pytest.mark.parametrize("name", STORIES)
def test_the_first_process_leaves_the_work_to_a_child(name: str) -> None:
    story, code = STORIES[name]
    script = f"{IN_A_CHILD}assert os.getpid() == 1\nwork_in_a_child()\nassert os.getpid() != 1\n{story}"
    done = subprocess.run([*FIRST, "-c", script], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (code, "")


def test_the_command_does_so() -> None:
    script = (
        "import os, runpy, sys\n"
        "from untildone.cli import app\n"
        "app.entry = lambda words: print(os.getpid() == 1, words) or 5\n"
        "sys.argv = ['untildone', 'ls']\n"
        "runpy.run_module('untildone', run_name='__main__')\n"
    )
    done = subprocess.run([*FIRST, "-c", script], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (5, "False ['ls']\n", "")
