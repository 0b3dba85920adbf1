"""A driver of its own: starts the run, or takes it up where it stands, and perhaps dies at a named boundary.

python -m crash.driver FOLDER [BOUNDARY [SIGNAL [MISDEED]]]: the misdeed is a command the agent runs in its second turn.
"""

import asyncio
import os
import signal
import sys
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path

from crash.laborer import Critic, Laborer
from crash.points import LONG_NAP, Points, pointed_clock, pointed_log, pointed_parts, pointed_spawner
from untildone import wiring
from untildone.core.contract import Contract, commands
from untildone.core.policy import AgentOptions, Landing, Policy, Review, RunSpec, Tending
from untildone.engine.journal import load_state
from untildone.errors import UntildoneError
from untildone.ports import Clock, Spawner
from untildone.rehearsal.environment import claude_environment
from untildone.sandbox.host import MARKER, HostSpawner
from untildone.store.leftovers import LAST_WORDS

MODEL_URL = "CRASH_MODEL_URL"
LAND = "CRASH_LAND"
"""How far the work of the run goes, as in `--land`."""
REVIEW = "CRASH_REVIEW"
"""When the work is reviewed, as in `--review`."""
DRIVER = "CRASH_DRIVER"
"""The process that is to die; between it and git stands the guard."""
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
        contract=Contract(checks=commands("test -f three.txt")),
        landing=Landing(land=os.environ.get(LAND, "commit")),  # type: ignore[arg-type]
        review=Review(when=os.environ.get(REVIEW, "never")),  # type: ignore[arg-type]
        options=AgentOptions(allowed_tools=("Bash",)),
        tending=Tending(before_iteration=HOOK, after_iteration=HOOK, on_stop=HOOK),
    )


POLICY = Policy(max_runs=9, max_iterations=9, loop_delay=0.1, disk_reserve=0)


def with_laborer(around: wiring.Surroundings, stage: Path, spawner: Spawner, misdeed: str) -> wiring.Surroundings:
    laborer = Laborer(
        cwd=stage / "repo",
        books=stage / "books.jsonl",
        config_dir=stage / "claude",
        spawner=spawner,
        env={**around.env, MARKER: run_id_of(stage)},
        misdeed=misdeed,
    )
    given = {field.name: getattr(laborer, field.name) for field in fields(laborer)}
    return replace(around, agent=laborer, reviewer=Critic(**given))


def with_claude(around: wiring.Surroundings, stage: Path, spawner: Spawner, url: str) -> wiring.Surroundings:
    """The real Claude Code on the scripted model at `url`, spawned where it can be watched."""
    around = replace(around, env=claude_environment(stage / "home", url, path=os.environ["PATH"]))
    return replace(around, agent=wiring._agent(the_spec(stage), spawner, around, run_id_of(stage), POLICY))


async def drive(stage: Path, points: Points, misdeed: str) -> None:
    run_id = run_id_of(stage)
    clock = pointed_clock(StillClock(wiring.system_clock()), points)
    log = pointed_log(wiring.open_log(stage / "state", clock), points)
    env = {"PATH": os.environ["PATH"], "HOME": str(stage), "CLAUDE_CONFIG_DIR": str(stage / "claude")}
    around = wiring.Surroundings(
        log=log,
        state_dir=stage / "state",
        env=env,
        clock=clock,
        dress=lambda parts: pointed_parts(parts, points),
    )
    spawner = pointed_spawner(HostSpawner(stage / "state" / LAST_WORDS), points)
    url = os.environ.get(MODEL_URL)
    around = with_claude(around, stage, spawner, url) if url else with_laborer(around, stage, spawner, misdeed)
    if (await load_state(log, run_id)).run_id:
        await wiring.resume_run(run_id, around)
    else:
        await wiring.start_run(the_spec(stage), POLICY, around, run_id=run_id)
    await log.close()


def main(folder: str, die_at: str = "", how: str = "SIGKILL", misdeed: str = "") -> int:
    stage = Path(folder)
    os.environ[DRIVER] = str(os.getpid())
    points = Points(stage / "passed.txt", die_at, signal.Signals[how])
    try:
        asyncio.run(drive(stage, points, misdeed))
    except UntildoneError as trouble:
        print(f"{type(trouble).__name__}: {trouble}")
        return trouble.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
