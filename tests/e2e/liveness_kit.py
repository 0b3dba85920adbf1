"""A run whose first iteration is a tool that stays, and processes that are found by how long they sleep."""

import contextlib
import uuid
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


def sleepers(seconds: str) -> set[int]:
    """The processes that sleep for this many seconds, a number that only one test uses."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                found.add(int(folder.name))
    return found


def any_number() -> str:
    return str(uuid.uuid4().int)[:9]
