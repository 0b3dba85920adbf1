"""A process of its own that settles an iteration: `settle_driver.py FOLDER PRIVATE`. For being killed in the middle."""

import asyncio
import sys
from pathlib import Path

from untildone.core.policy import RunSpec
from untildone.git.workspace import open_workspace


async def main(folder: str, private: str) -> None:
    spec = RunSpec(goal="g", cwd=folder, name="tidy-up")
    workspace = await open_workspace(spec, run_id="r1", private=Path(private))
    await workspace.prepare()
    before = await workspace.observe()
    Path(folder, "work").write_text("work\n")
    await workspace.settle(before, iteration_num=1, message="of the driver that was killed")


asyncio.run(main(*sys.argv[1:]))
