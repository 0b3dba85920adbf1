"""A driver whose work lands, who reports to a server, and who perhaps dies; or one on another machine who takes over.

python -m crash.moving_driver FOLDER RUN FORGE SERVER LAND WHEN [BOUNDARY]
WHEN: `sudden` (dies at once), `told` (dies when the server has all there is), `takes` (takes the run from the server).
OPERATOR is the token for the server.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crash.pull_driver import laborer
from engine.rig import FastClock
from patience import PATIENCE
from untildone import wiring
from untildone.agents.scripted import ScriptedAgent
from untildone.core.contract import Contract, commands
from untildone.core.events import Event, Record
from untildone.core.policy import Landing, Policy, RunSpec
from untildone.engine.parts import Parts
from untildone.errors import UplinkDown
from untildone.git.bundle import unwrapped
from untildone.moving import Destination, bring_here
from untildone.ports import EventLog, Lease
from untildone.rehearsal.github import TOKEN
from untildone.uplink.client import HttpUplink
from untildone.uplink.fetching import Reader
from untildone.uplink.owed import new_key
from untildone.uplink.settings import UplinkSettings

SPEED = 50.0
FIRST = "before append iteration.started 1"


class Boundaries:
    """Writes down every boundary that is passed; at the chosen one the process dies, at once or when all is told."""

    def __init__(self, folder: Path, die_at: str, telling: "Telling", *, when: str) -> None:
        self._file = os.open(folder / "passed.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._die_at, self._telling, self._when = die_at, telling, when
        self._counts: Counter[str] = Counter()

    @asynccontextmanager
    async def around(self, name: str) -> AsyncIterator[None]:
        self._counts[name] += 1
        label = f"{name} {self._counts[name]}"
        await self._pass(f"before {label}")
        yield
        await self._pass(f"after {label}")

    async def _pass(self, point: str) -> None:
        os.write(self._file, f"{point}\n".encode())
        if point == FIRST and self._when != "takes":
            await self._telling.until(self._telling.has_begun)  # before that there is nothing to go on with
        if point == self._die_at:
            if self._when == "told":
                await self._telling.until(self._telling.has_all)
            os.kill(os.getpid(), signal.SIGKILL)


class Named:
    """Names every call of a port."""

    def __init__(self, real: Any, boundaries: Boundaries, kind: str) -> None:
        self._real, self._boundaries, self._kind = real, boundaries, kind

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if not asyncio.iscoroutinefunction(real):
            return real

        async def call(*args: Any, **named: Any) -> Any:
            async with self._boundaries.around(f"{self._kind} {name}"):
                return await real(*args, **named)

        return call


class NamedLog:
    """Names what is appended."""

    def __init__(self, real: EventLog, boundaries: Boundaries) -> None:
        self._real, self._boundaries = real, boundaries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def append(self, run_id: str, events: list[Event], *, lease: Lease | None = None) -> list[Record]:
        control = [event.TYPE for event in events if event.KIND == "control"]
        if not control:
            return await self._real.append(run_id, events, lease=lease)
        async with self._boundaries.around(f"append {'+'.join(control)}"):
            return await self._real.append(run_id, events, lease=lease)


class Telling:
    """Whether the server knows what this machine knows."""

    def __init__(self, log: EventLog, run_id: str, repo: Path, uplink: UplinkSettings) -> None:
        self._log, self._run_id, self._repo = log, run_id, repo
        self._reader = Reader(HttpUplink(uplink.server, uplink.sandbox_id, uplink.token), uplink.sandbox_id)

    async def until(self, look: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(UplinkDown):  # it does not know the run yet, or a newer parcel came between two questions
                    if await look():
                        return
                await asyncio.sleep(0.05)

    async def has_begun(self) -> bool:
        return "tree" in await self._reader.parcels(self._run_id)

    async def has_all(self) -> bool:
        newest = (await self._log.read(self._run_id))[-1].seq
        parcels = await self._reader.parcels(self._run_id)
        if (await self._reader.run(self._run_id)).last_seq < newest or "tree" not in parcels:
            return False
        facts, _ = unwrapped(await self._reader.parcel(self._run_id, parcels["tree"]))
        asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=self._repo, capture_output=True, text=True, check=True)
        return facts.head == asked.stdout.strip()


def spec_in(folder: Path, forge: str, land: str) -> RunSpec:
    landing = {
        "pr": Landing(land="pr", repo="acme/widget", forge_url=forge, ci_poll=1.0),
        "merge": Landing(land="merge"),
    }
    return RunSpec(
        goal="make it work",
        cwd=str(folder / "repo"),
        name="it",
        contract=Contract(checks=commands("test -f new.txt")),
        landing=landing[land],
    )


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one driver is told."""

    folder: Path
    run_id: str
    forge: str
    server: str
    land: str
    when: str
    die_at: str = ""

    @property
    def uplink(self) -> UplinkSettings:
        return UplinkSettings(server=self.server, sandbox_id=self.folder.name, token=os.environ["OPERATOR"])


async def take(job: Job, log: EventLog, clock: FastClock) -> None:
    """Bring the run here, as somebody does who knows the forge."""

    def settle(spec: RunSpec, policy: Policy) -> tuple[RunSpec, Policy]:
        return replace(spec, landing=replace(spec.landing, forge_url=job.forge)), policy

    sandbox, key = job.folder.name, new_key()
    client = HttpUplink(job.server, sandbox, job.uplink.token, key=lambda _: key)
    to = Destination(
        log=log, store=job.folder / "state", folder=job.folder / "repo", server=job.server, sandbox_id=sandbox,
        key=key, config_dir=job.folder / "claude", clock=clock, host=sandbox, take=True, settle=settle,
    )  # fmt: skip
    try:
        for line in await bring_here(Reader(client, sandbox), job.run_id, to):
            print(line)
    finally:
        await client.close()


async def drive(job: Job) -> None:
    clock, folder = FastClock(SPEED), job.folder
    real = wiring.open_log(folder / "state", clock)
    telling = Telling(real, job.run_id, folder / "repo", job.uplink)
    boundaries = Boundaries(folder, job.die_at, telling, when=job.when)

    def dress(parts: Parts) -> Parts:
        forge = None if parts.forge is None else Named(parts.forge, boundaries, "forge")
        return replace(parts, forge=forge, lander=Named(parts.lander, boundaries, "lander"))

    around = wiring.Surroundings(
        log=NamedLog(real, boundaries),
        state_dir=folder / "state",
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "GITHUB_TOKEN": TOKEN},
        clock=clock,
        agent=ScriptedAgent([laborer(folder / "repo")] * 9),
        uplink=job.uplink,
        dress=dress,
    )
    if job.when == "takes":
        await take(job, real, clock)
        state = await wiring.resume_run(job.run_id, around)
    else:
        policy = Policy(max_iterations=9, disk_reserve=0)
        spec = spec_in(folder, job.forge, job.land)
        state = await wiring.start_run(spec, policy, around, run_id=job.run_id)
    print(state.phase, state.stop_reason, state.stop_detail)
    await real.close()


def main(folder: str, *words: str) -> int:
    names = ("run_id", "forge", "server", "land", "when", "die_at")
    asyncio.run(drive(Job(folder=Path(folder), **dict(zip(names, words, strict=False)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
