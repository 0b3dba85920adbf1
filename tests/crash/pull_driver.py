"""A driver of its own whose work lands by a pull request, and who perhaps dies at a named boundary.

python -m crash.pull_driver FOLDER URL [BOUNDARY]
"""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from crash.points import Boundaries, Points, pointed_log
from engine.rig import FastClock, claim
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent
from untildone.core.contract import Contract, commands
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Landing, Policy, RunSpec
from untildone.engine.journal import load_state
from untildone.engine.parts import Parts
from untildone.ports import Clock, EventLog
from untildone.rehearsal.github import TOKEN

RUN_ID = "crashing-pull"
SPEED = 50.0


class Pointed:
    """Names every call of a port."""

    def __init__(self, real: Any, points: Boundaries, kind: str) -> None:
        self._real = real
        self._points = points
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        self._points.require_alive()
        real = getattr(self._real, name)
        if not asyncio.iscoroutinefunction(real):
            return real

        async def call(*args: Any, **named: Any) -> Any:
            with self._points.around(f"{self._kind} {name}"):
                return await real(*args, **named)

        return call


def laborer(repo: Path) -> Callable[[Order], Outcome]:
    """Its work depends only on what stands in the folder."""

    def act(_: Order) -> Outcome:
        missing = next(name for name in ("new.txt", "fix.txt", "more.txt") if not (repo / name).exists())
        (repo / missing).write_text(f"{missing}\n")
        return claim(f"wrote {missing}")

    return act


async def drive(stage: Path, url: str, real: EventLog, clock: Clock, points: Boundaries) -> None:
    """Start the run, or take it up where it stands."""
    log = pointed_log(real, points)

    def dress(parts: Parts) -> Parts:
        return replace(
            parts, forge=Pointed(parts.forge, points, "forge"), lander=Pointed(parts.lander, points, "lander")
        )

    around = wiring.Surroundings(
        log=log,
        state_dir=stage / "state",
        env={"PATH": os.environ["PATH"], "HOME": str(stage), "GITHUB_TOKEN": TOKEN},
        clock=clock,
        agent=ScriptedAgent([laborer(stage / "repo")] * 9),
        dress=dress,
    )
    spec = RunSpec(
        goal="make it work",
        cwd=str(stage / "repo"),
        name="it",
        contract=Contract(checks=commands("test -f new.txt")),
        landing=Landing(land="pr", repo="acme/widget", forge_url=url, ci_poll=1.0),
    )
    if (await load_state(log, RUN_ID)).run_id:
        await wiring.resume_run(RUN_ID, around)
    else:
        await wiring.start_run(spec, Policy(max_iterations=9, disk_reserve=0), around, run_id=RUN_ID)


async def drive_on_disk(stage: Path, url: str, points: Boundaries) -> None:
    clock = FastClock(SPEED)
    log = wiring.open_log(stage / "state", clock)
    await drive(stage, url, log, clock, points)
    await log.close()


def main(folder: str, url: str, die_at: str = "") -> int:
    asyncio.run(drive_on_disk(Path(folder), url, Points(Path(folder) / "passed.txt", (die_at,))))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
