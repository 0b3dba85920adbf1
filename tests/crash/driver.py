"""A driver of its own: starts the run, or takes it up where it stands, and perhaps dies at a named boundary.

python -m crash.driver FOLDER [BOUNDARY[,BOUNDARY...] [SIGNAL [MISDEED]]]: the misdeed is a command the agent runs in
its second turn.
"""

import asyncio
import os
import signal
import sys
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from crash.laborer import WORK, Critic, Laborer
from crash.points import LONG_NAP, Boundaries, Points, pointed_clock, pointed_log, pointed_parts, pointed_spawner
from untildone import wiring
from untildone.agents.environment import STORE_MARKER
from untildone.core.contract import Contract, commands
from untildone.core.policy import AgentOptions, Landing, Policy, Review, RunSpec, Tending
from untildone.engine.journal import load_state
from untildone.errors import UntildoneError
from untildone.ports import Clock, EventLog, Spawner
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
_COUNTS_WHAT_IS_MISSING = "n=0; for f in {}; do test -f $f || n=$((n + 1)); done; echo $n files missing; test $n = 0"
"""A check that says nothing would show no progress while one file after the other is written."""


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

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds >= LONG_NAP:
            await self._real.sleep(seconds)
            return
        await self._real.sleep(seconds / 10)
        self._now += seconds


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a driver is told."""

    stage: Path
    land: Literal["commit", "merge"] = "commit"
    review: Literal["never", "iteration"] = "never"
    misdeed: str = ""
    """A command the laborer runs in its second turn."""
    model_url: str = ""
    """The agent is Claude Code on this model. Otherwise it is the laborer."""
    work: tuple[str, ...] = WORK
    most: int = 9
    """Iterations."""

    @property
    def run_id(self) -> str:
        return run_id_of(self.stage)

    @property
    def spec(self) -> RunSpec:
        return RunSpec(
            goal="write three files",
            cwd=str(self.stage / "repo"),
            name="crashing",
            contract=Contract(checks=commands(_COUNTS_WHAT_IS_MISSING.format(" ".join(self.work)))),
            landing=Landing(land=self.land),
            review=Review(when=self.review),
            options=AgentOptions(allowed_tools=("Bash",)),
            tending=Tending(before_iteration=HOOK, after_iteration=HOOK, on_stop=HOOK),
        )

    @property
    def policy(self) -> Policy:
        return Policy(max_runs=self.most, max_iterations=self.most, loop_delay=0.1, disk_reserve=0)


def with_laborer(around: wiring.Surroundings, job: Job, spawner: Spawner) -> wiring.Surroundings:
    laborer = Laborer(
        cwd=job.stage / "repo",
        books=job.stage / "books.jsonl",
        config_dir=job.stage / "claude",
        spawner=spawner,
        env={**around.env, MARKER: job.run_id, STORE_MARKER: str(job.stage / "state")},
        misdeed=job.misdeed,
        work=job.work,
    )
    given = {field.name: getattr(laborer, field.name) for field in fields(laborer)}
    return replace(around, agent=laborer, reviewer=Critic(**given))


def with_claude(around: wiring.Surroundings, job: Job, spawner: Spawner) -> wiring.Surroundings:
    """The real Claude Code on the scripted model, spawned where it can be watched."""
    around = replace(around, env=claude_environment(job.stage / "home", job.model_url, path=os.environ["PATH"]))
    return replace(around, agent=wiring._agent(job.spec, spawner, around, job.run_id, job.policy))


async def drive(job: Job, log: EventLog, clock: Clock, points: Boundaries) -> None:
    """Start the run, or take it up where it stands."""
    stage = job.stage
    clock, log = pointed_clock(clock, points), pointed_log(log, points)
    around = wiring.Surroundings(
        log=log,
        state_dir=stage / "state",
        env={"PATH": os.environ["PATH"], "HOME": str(stage), "CLAUDE_CONFIG_DIR": str(stage / "claude")},
        clock=clock,
        dress=lambda parts: pointed_parts(parts, points),
    )
    spawner = pointed_spawner(HostSpawner(stage / "state" / LAST_WORDS), points)
    around = (with_claude if job.model_url else with_laborer)(around, job, spawner)
    if (await load_state(log, job.run_id)).run_id:
        await wiring.resume_run(job.run_id, around)
    else:
        await wiring.start_run(job.spec, job.policy, around, run_id=job.run_id)


async def drive_on_disk(job: Job, points: Boundaries) -> None:
    clock = StillClock(wiring.system_clock())
    log = wiring.open_log(job.stage / "state", pointed_clock(clock, points))
    await drive(job, log, clock, points)
    await log.close()


def main(folder: str, at: str = "", how: str = "SIGKILL", misdeed: str = "") -> int:
    stage = Path(folder)
    job = Job(
        stage=stage,
        land=os.environ.get(LAND, "commit"),  # type: ignore[arg-type]
        review=os.environ.get(REVIEW, "never"),  # type: ignore[arg-type]
        misdeed=misdeed,
        model_url=os.environ.get(MODEL_URL, ""),
    )
    os.environ[DRIVER] = str(os.getpid())
    points = Points(stage / "passed.txt", at.split(","), signal.Signals[how])
    try:
        asyncio.run(drive_on_disk(job, points))
    except UntildoneError as trouble:
        print(f"{type(trouble).__name__}: {trouble}")
        return trouble.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
