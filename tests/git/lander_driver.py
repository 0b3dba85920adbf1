"""A process of its own that lands, for being killed in the middle: `FOLDER RUN COMMIT STRATEGY [CHECK]`.

CHECK is a shell command, run with the commit in $COMMIT; without one everything is green.
"""

import asyncio
import os
import sys
from pathlib import Path

from untildone.core.policy import Landing, RunSpec
from untildone.errors import WorkspaceError
from untildone.git.lander import GitLander
from untildone.git.repository import open_repository
from untildone.ports.delivery import Landed


async def main(folder: str, run_id: str, commit: str, strategy: str, check: str = "true") -> None:
    async def verify(merged: str) -> str:
        process = await asyncio.create_subprocess_shell(check, cwd=folder, env={**os.environ, "COMMIT": merged})
        return "" if await process.wait() == 0 else f"{check} failed"

    repository = await open_repository(Path(folder), private=Path(folder).parent / "private")
    spec = RunSpec(goal="g", cwd=folder, name=run_id, landing=Landing(land="merge", strategy=strategy))  # type: ignore[arg-type]
    lander = GitLander(repository, spec, run_id=run_id, base=lambda: "main")
    try:
        outcome = await lander.merge(commit, message=f"of {run_id}", verify=verify)
    except WorkspaceError as trouble:
        print(f"trouble {trouble}")
        return
    print(f"landed {outcome.merged}" if isinstance(outcome, Landed) else f"{outcome.cause} {outcome.detail}")


asyncio.run(main(*sys.argv[1:]))
