"""Processes of their own that do one thing with a repository, and are killed meanwhile.

`killed_driver.py COUNTER`, and on each line WHAT, FOLDER, PRIVATE and NUMBER: from the moment COUNTER holds NUMBER, git
counts down. How each of them ended is printed.
"""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Literal

from git.agents_kit import boxed
from git.conftest import Project
from untildone.core.policy import RunSpec
from untildone.git.repository import open_repository
from untildone.git.rewind import rewind
from untildone.git.snapshot import saved_states, state_after
from untildone.git.workspace import GitWorkspace, open_workspace
from untildone.git.worktrees import add


async def opened(folder: Path, private: Path, *, branch_per: Literal["run", "iteration"] = "run") -> GitWorkspace:
    spec = RunSpec(goal="g", cwd=str(folder), name="tidy-up", branch_per=branch_per)
    return await open_workspace(spec, run_id="r1", private=private)


def arm() -> None:
    Path(sys.argv[1]).write_text(os.environ["KILLED_AT"])


async def settle(folder: Path, private: Path) -> None:
    workspace = await opened(folder, private)
    arm()
    await workspace.prepare()
    before = await workspace.observe()
    (folder / "work").write_text("work\n")
    await workspace.settle(before, iteration_num=1, message="the work")


async def settle_inside(folder: Path, private: Path) -> None:
    """The same with an agent in a sandbox, which commits something itself."""
    counting = Path(str(shutil.which("git"))).with_name("inside")
    arm()
    one = await boxed(Project(folder), private, first=(str(counting),))
    await one.workspace.prepare()
    before = await one.workspace.observe()
    commit = "git -c user.name=agent -c user.email=agent@x commit -q"
    one.agent(f"echo mine > mine; git add mine; {commit} -m 'by the agent'; echo work > work")
    await one.workspace.settle(before, iteration_num=1, message="the work")


async def begin(folder: Path, private: Path) -> None:
    workspace = await opened(folder, private, branch_per="iteration")
    await workspace.prepare()
    arm()
    await workspace.begin_iteration(2)


async def go_back(folder: Path, private: Path) -> None:
    repository = await open_repository(folder, private=private)
    target = state_after(await saved_states(repository, "r1"), 1)
    assert target is not None
    arm()
    await rewind(repository, "r1", target)


async def make_worktree(folder: Path, private: Path) -> None:
    repository = await open_repository(folder, private=private)
    arm()
    await add(repository, "apart", place=private / "apart")


def main() -> None:
    for line in sys.stdin:
        what, folder, private, number = json.loads(line)
        child = os.fork()  # all is imported already, which takes longer than the rest
        if not child:
            os.environ["KILLED_AT"] = str(number)
            asyncio.run(globals()[what](Path(folder), Path(private)))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
