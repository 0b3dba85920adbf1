"""One run of the loop on the real Claude Code, which notes what it costs us. Prints one JSON object.

python bench/driver.py CLAUDE REPOSITORY STORE ITERATIONS [--profile FILE] [--sandbox KIND]
"""

import argparse
import asyncio
import cProfile
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stage import GOAL
from untildone import wiring
from untildone.agents.claude_sdk import ClaudeSdk
from untildone.agents.environment import agent_environment
from untildone.core.events import IterationCompleted, Record
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import AgentOptions, Policy, RunSpec
from untildone.ports import Process, Tell
from untildone.sandbox.host import HostSpawner


@dataclass(slots=True)
class Notes:
    """Moments (seconds) and CPU (seconds of this process, all threads), one entry for each iteration."""

    ended: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    called: list[float] = field(default_factory=list)
    """The agent was asked."""
    answered: list[float] = field(default_factory=list)
    """The agent had answered."""
    prompted: list[float] = field(default_factory=list)
    """Claude was given the prompt."""
    spawned: list[str] = field(default_factory=list)
    """Programs this process started."""

    def on_record(self, record: Record) -> None:
        if isinstance(record.event, IterationCompleted):
            self.ended.append(time.monotonic())
            self.cpu.append(time.process_time())

    def on_audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            self.spawned.append(Path(os.fsdecode(args[0])).name)
        elif event in {"os.system", "os.posix_spawn", "os.exec", "os.fork"}:
            self.spawned.append(event)


class NotedProcess:
    """A process, with a note of when prompts are written to it."""

    def __init__(self, process: Process, notes: Notes) -> None:
        self._process = process
        self._notes = notes
        self.pid = process.pid
        self.read = process.read
        self.close_stdin = process.close_stdin
        self.wait = process.wait
        self.stderr_tail = process.stderr_tail
        self.end = process.end
        self.vitals = process.vitals
        self.family = process.family

    async def write(self, data: bytes) -> None:
        if b'"type": "user"' in data and b'"/clear"' not in data:
            self._notes.prompted.append(time.monotonic())
        await self._process.write(data)


class NotedSpawner(HostSpawner):
    """Starts programs on this machine, noting what is written to them."""

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self._notes = notes

    async def spawn(
        self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], stdin: Literal["pipe", "null"] = "pipe"
    ) -> Process:
        return NotedProcess(await super().spawn(argv, cwd=cwd, env=env, stdin=stdin), self._notes)


class NotedAgent(ClaudeSdk):
    """The default agent, with a note of when it is asked and when it has answered."""

    notes: Notes

    async def iterate(self, order: Order, tell: Tell) -> Outcome:
        self.notes.called.append(time.monotonic())
        outcome = await super().iterate(order, tell)
        self.notes.answered.append(time.monotonic())
        return outcome


async def run(options: AgentOptions, repository: str, store: Path, iterations: int, notes: Notes | None) -> Notes:
    """Drive one run, put together as the command line does it. Without notes its agent is the usual one."""
    run_id = wiring.new_run_id()
    agent = None
    if notes is not None:
        env = agent_environment(os.environ, run_id=run_id)
        agent = NotedAgent(options, NotedSpawner(notes), cwd=repository, env=env)
        agent.notes = notes
    notes = notes or Notes()
    clock = wiring.system_clock()
    log = wiring.open_log(store, clock)
    around = wiring.Surroundings(
        log=log, state_dir=store, env=dict(os.environ), clock=clock, observer=notes.on_record, agent=agent
    )
    spec = RunSpec(goal=GOAL, cwd=repository, name="bench", options=options)
    try:
        state = await wiring.start_run(
            spec, Policy(no_progress_threshold=0, max_runs=iterations), around, run_id=run_id
        )
    finally:
        await log.close()
    if state.successes != iterations:
        sys.exit(f"{state.successes} of {iterations} iterations: {state.stop_reason} {state.stop_detail}")
    return notes


def main() -> None:
    """Run, and print the notes."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("claude", "repository", "store", "iterations", "--profile", "--sandbox"):
        parser.add_argument(name)
    given = parser.parse_args()
    notes = Notes()
    sys.addaudithook(notes.on_audit)
    profiler = cProfile.Profile() if given.profile else None
    if profiler:
        profiler.enable()
    options = AgentOptions(claude=given.claude, sandbox=given.sandbox or "host")
    noting = None if given.sandbox else notes
    notes = asyncio.run(run(options, given.repository, Path(given.store), int(given.iterations), noting))
    if profiler:
        profiler.disable()
        profiler.dump_stats(given.profile)
    facts = {name: getattr(notes, name) for name in Notes.__slots__}
    json.dump({**facts, "finished": time.monotonic(), "cpu_total": time.process_time()}, sys.stdout)


if __name__ == "__main__":
    main()
