import os
import subprocess
import sys
from pathlib import Path

import pytest

from hook.stop_kit import OTHER, SESSION
from untildone.hook.ancestry import is_inside

ROOT = Path(__file__).parents[2] / "src"
ASK = f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); from untildone.hook.ancestry import is_inside; "


def asked_below(*, outer: dict[str, str], inner: str) -> str:
    """What a hook finds out whose Claude Code was started with one environment, by a shell with another."""
    hook = [sys.executable, "-c", ASK + f"print(is_inside({SESSION!r}, os.environ))"]
    claude = f"import os, subprocess; os.environ['CLAUDE_PID'] = str(os.getpid()); subprocess.run({hook!r})"
    shell = f"import os, subprocess; {inner}; subprocess.run([{sys.executable!r}, '-c', {claude!r}])"
    argv = [sys.executable, "-c", shell]
    env = {**os.environ, **outer}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=240, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("outer", "inner", "found"),
    [
        ({"CLAUDE_CODE_SESSION_ID": SESSION}, "pass", "True"),
        ({"CLAUDE_CODE_SESSION_ID": SESSION}, "os.environ.clear()", "True"),
        ({"CLAUDE_CODE_SESSION_ID": OTHER}, "pass", "False"),
        ({}, "pass", "False"),
    ],
)
def test_a_session_below_the_one_that_is_held(outer: dict[str, str], inner: str, found: str) -> None:
    assert asked_below(outer=outer, inner=inner) == found


def test_where_it_cannot_be_told_nobody_is_accused() -> None:
    assert not is_inside(SESSION, {})
    assert not is_inside(SESSION, {"CLAUDE_PID": "x"})
    assert not is_inside(SESSION, {"CLAUDE_PID": "999999999"})
    assert not is_inside("", {"CLAUDE_PID": str(os.getppid())})
