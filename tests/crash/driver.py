"""A driver of its own: starts the run, or takes it up where it stands, and perhaps dies at a named boundary.

python driver.py STAGE_FOLDER [BOUNDARY]
"""

import asyncio
import os
import sys
from hashlib import sha256
from pathlib import Path

from crash.laborer import Laborer
from crash.points import LONG_NAP, Points, pointed_clock, pointed_log, pointed_parts, pointed_spawner
from untildone import wiring
from untildone.core.policy import Policy, RunSpec, Tending
from untildone.engine.journal import load_state
from untildone.ports import Clock
from untildone.sandbox.host import MARKER, HostSpawner

HOOK = "echo called >> ../hooks.txt"


def run_id_of(stage: Path) -> str:
    """The same for every driver of this folder, and no other's: its processes are told apart by it."""
    return f"crashing-{sha256(str(stage).encode()).hexdigest()[:12]}"


class StillClock:
    """Time stands still but for the loop's own rests: whether one is due never depends on how busy the machine is."""

    def __init__(self, real: Clock) -> None:
        self._real = real
        self._now = real.now()

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds >= LONG_NAP:
            await self._real.sleep(seconds)
            return
        await self._real.sleep(seconds / 10)
        self._now += seconds


def the_spec(stage: Path) -> RunSpec:
    return RunSpec(
        goal="write three files",
        cwd=str(stage / "repo"),
        name="crashing",
        checks=("test -f three.txt",),
        tending=Tending(before_iteration=HOOK, after_iteration=HOOK, on_stop=HOOK),
    )


async def drive(stage: Path, points: Points) -> None:
    run_id = run_id_of(stage)
    clock = pointed_clock(StillClock(wiring.system_clock()), points)
    log = pointed_log(wiring.open_log(stage / "state", clock), points)
    env = {"PATH": os.environ["PATH"], "HOME": str(stage), "CLAUDE_CONFIG_DIR": str(stage / "claude")}
    around = wiring.Surroundings(
        log=log,
        state_dir=stage / "state",
        env=env,
        clock=clock,
        agent=Laborer(
            cwd=stage / "repo",
            books=stage / "books.jsonl",
            config_dir=stage / "claude",
            spawner=pointed_spawner(HostSpawner(), points),
            env={**env, MARKER: run_id},
        ),
        dress=lambda parts: pointed_parts(parts, points),
    )
    if (await load_state(log, run_id)).run_id:
        await wiring.resume_run(run_id, around)
    else:
        policy = Policy(max_runs=9, max_iterations=9, loop_delay=0.1)
        await wiring.start_run(the_spec(stage), policy, around, run_id=run_id)
    await log.close()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    asyncio.run(drive(folder, Points(folder / "passed.txt", sys.argv[2] if len(sys.argv) > 2 else None)))
