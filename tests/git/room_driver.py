"""Processes of their own that open a room and leave it: `room_driver.py FOLDER PRIVATE ROOT`, a STEP on each line.

Each kills itself just before it changes the disk, or starts a process, for the STEP-th time; its end is printed.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from untildone.core.policy import RunSpec
from untildone.git.workspace import open_workspace

CHANGES = frozenset(
    {"os.mkdir", "os.rename", "os.rmdir", "os.remove", "os.symlink", "os.posix_spawn", "subprocess.Popen"}
)


def dying_at(step: int, places: tuple[str, ...]) -> Any:
    seen = 0

    def changes_something(event: str, args: tuple[Any, ...]) -> bool:
        if event in {"os.posix_spawn", "subprocess.Popen"}:
            return True
        if event == "open":
            is_ours = isinstance(args[0], str) and args[0].startswith(places)
            return is_ours and bool(args[2] & (os.O_WRONLY | os.O_RDWR))
        return event in CHANGES

    def look(event: str, args: tuple[Any, ...]) -> None:
        nonlocal seen
        if changes_something(event, args):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    return look


async def visit(folder: str, private: str, root: str, step: int) -> None:
    spec = RunSpec(goal="g", cwd=folder, name="tidy-up")
    rooms = (await open_workspace(spec, run_id="r1", private=Path(private))).rooms(Path(root))
    sys.addaudithook(dying_at(step, (folder, root)))
    os.environ["ROOM_DRIVER"] = str(os.getpid())
    async with rooms.open("HEAD"):
        pass


def main(folder: str, private: str, root: str) -> None:
    for line in sys.stdin:
        child = os.fork()  # all is imported already, which takes longer than the rest
        if not child:
            asyncio.run(visit(folder, private, root, int(line)))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
