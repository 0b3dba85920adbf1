"""A run whose first iteration is a tool that stays, and who is still there."""

import contextlib
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.kit import finished
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

SLEEPS = "python3 -c 'import time; time.sleep(1000)'"
ARGS = ("run", "live", "-m", "2", "--name", "liver", "--allowed-tools", "Bash")
DONE = Reply(text=finished())


def bash(command: str, **more: Any) -> Reply:
    return Reply(text="Working.", tools=(ToolCall("Bash", {"command": command, **more}),))


def story(*first: Reply) -> Scenario:
    return Scenario(name="liveness", iterations=(first, (DONE,), (DONE,)))


def eventually(holds: Callable[[], bool], timeout: float = 30) -> None:
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def sleeping(seconds: str) -> bool:
    """Does anybody sleep for this many seconds? The number is nobody else's."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                return True
    return False


def any_number() -> str:
    return str(uuid.uuid4().int)[:9]
