"""A whole run on real git, real SQLite and a scripted agent, with a clock that can run faster."""

import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from core.run_kit import with_contract
from patience import PATIENCE
from repositories import new_repository
from untildone import wiring
from untildone.agents.scripted import Act, ScriptedAgent, Step
from untildone.core.claims import Report
from untildone.core.contract import Contract, commands
from untildone.core.events import Event, Record
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy, RunSpec
from untildone.core.state import LoopState
from untildone.ports import Tell

Steps = Iterable[Outcome | Act | Step]
FILES = {"a.txt": "a\n"}
_IN_LETTERS = str.maketrans("0123456789", "abcdefghij")


class FastClock:
    """Real time, `speed` times faster."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed
        self._began = time.monotonic()
        self._epoch = time.time()

    def now(self) -> float:
        return self._epoch + (time.monotonic() - self._began) * self._speed

    def monotonic(self) -> float:
        return FastClock.now(self)

    async def sleep(self, seconds: float) -> None:
        """Ends early when the time is skipped."""
        ends = self.now() + seconds
        await asyncio.sleep(0)
        while (left := ends - self.now()) > 0:
            await asyncio.sleep(min(left / self._speed, 0.1))

    def skip(self, seconds: float) -> None:
        """It is that much later now."""
        self._epoch += seconds


class Held(ScriptedAgent):
    """Ends no iteration before a gate is open."""

    def __init__(self, steps: Steps, gate: asyncio.Event, answers: Steps = ()) -> None:
        super().__init__(steps, answers)
        self._gate = gate

    async def iterate(self, order: Order, tell: Tell) -> Outcome:
        outcome = await super().iterate(order, tell)
        await self._gate.wait()
        return outcome


@dataclass
class Rig:
    tmp: Path
    clock: FastClock = field(default_factory=FastClock)
    records: list[Record] = field(default_factory=list)
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    """Its own: a driver ends whatever processes of the same run it finds, and tests run side by side."""

    branch: ClassVar[str] = "work"

    def __post_init__(self) -> None:
        self.repo = new_repository(self.tmp / "repo", self.branch, FILES)
        self.log = wiring.open_log(self.tmp / "state", self.clock)

    def git(self, *args: str) -> str:
        return subprocess.run(["git", *args], cwd=self.repo, check=True, capture_output=True, text=True).stdout

    def spec(self, **changes: Any) -> RunSpec:
        """`checks=` in short run in the tree: a fresh checkout takes ten processes more. Work that lands needs one."""
        if changes.get("checks") and "landing" not in changes:
            checks = commands(*changes.pop("checks"))
            changes["contract"] = Contract(checks=checks, guard="off", room="tree")
        return RunSpec(**{"goal": "make it work", "cwd": str(self.repo), "name": "it", **with_contract(changes)})

    def around(self, agent: ScriptedAgent, reviewer: ScriptedAgent | None = None) -> wiring.Surroundings:
        return wiring.Surroundings(
            log=self.log,
            state_dir=self.tmp / "state",
            env={"HOME": str(self.tmp / "home"), "PATH": "/usr/bin:/bin"},
            clock=self.clock,
            observer=self.records.append,
            agent=agent,
            reviewer=reviewer,
        )

    async def run(
        self,
        steps: Steps,
        policy: Policy | None = None,
        answers: Steps = (),
        gate: asyncio.Event | None = None,
        **spec: Any,
    ) -> tuple[LoopState, ScriptedAgent]:
        agent = ScriptedAgent(steps, answers) if gate is None else Held(steps, gate, answers)
        state = await wiring.start_run(
            self.spec(**spec), policy or Policy(max_runs=10), self.around(agent), run_id=self.run_id
        )
        return state, agent

    async def resume(self, steps: Steps) -> tuple[LoopState, ScriptedAgent]:
        agent = ScriptedAgent(steps)
        return await wiring.resume_run(self.run_id, self.around(agent)), agent

    async def say(self, event: Event) -> None:
        await self.log.append(self.run_id, [event])

    def seen(self, kind: type[Event]) -> list[Any]:
        return [record.event for record in self.records if isinstance(record.event, kind)]

    async def until(self, kind: type[Event], count: int = 1) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.seen(kind)) < count:
                await asyncio.sleep(0.005)

    def hook(self, name: str) -> str:
        """A command that keeps what it is told on stdin."""
        return f"cat >> {self.tmp / name}; echo >> {self.tmp / name}"

    def hook_facts(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.tmp / name).read_text().splitlines() if line]


def idle(text: str = "hm", **changes: Any) -> Outcome:
    return Outcome(final_text=text, output_chars=len(text), cost_usd=0.1, **changes)


def claim(text: str = "all done", **changes: Any) -> Outcome:
    return idle(text, report=Report(status="COMPLETE", exit_signal=True, summary="Finish the job"), **changes)


def writes(path: Path, text: str, outcome: Outcome | None = None) -> Act:
    def act(_: Order) -> Outcome:
        path.write_text(text)
        return outcome or idle(f"wrote {path.name}")

    return act


def counting(path: Path) -> Callable[[Order], Outcome]:
    """Changes a file in every iteration, so that it counts as work: other digits in the same line would not."""

    def act(order: Order) -> Outcome:
        path.write_text(str(order.iteration_num).translate(_IN_LETTERS) + "\n")
        return idle("worked")

    return act
