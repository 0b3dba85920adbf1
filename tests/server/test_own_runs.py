"""A real run of this machine (real git, real store, a scripted agent), seen and steered by the server beside it."""

import asyncio
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import pytest

from archives import new_archive
from engine.rig import Rig, counting
from patience import PATIENCE
from untildone.agents.scripted import Step
from untildone.core.codec import encode
from untildone.core.events import StopRequested
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy
from untildone.server.archive.port import EventFilter, RunEntry
from untildone.server.context import Context, ServerSettings
from untildone.server.projecting import seen
from untildone.serving import open_server

pytestmark = pytest.mark.anyio


async def shown(context: Context, run_id: str, holds: Callable[[RunEntry], bool]) -> RunEntry:
    async with asyncio.timeout(PATIENCE):
        while True:
            entry = await context.archive.runs.entry(run_id)
            if entry is not None and holds(entry):
                return entry
            await asyncio.sleep(0.02)


async def test_a_run_is_seen_told_something_and_stopped(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    settings = ServerSettings(database=new_archive(tmp_path))
    heard = asyncio.Event()

    def work(order: Order) -> Outcome:
        if "mind the moat" in order.prompt:
            heard.set()
        return counting(rig.repo / "a.txt")(order)

    steps = repeat(Step(outcome=work, delay=0.1))  # it ends when it is told to, however late the server looks
    async with open_server(settings, tmp_path / "state", clock=rig.clock) as server:
        context = server.context
        run = asyncio.create_task(rig.run(steps, Policy(max_runs=100_000)))
        entry = await shown(context, rig.run_id, lambda entry: entry.projection.attempts >= 2)
        assert (entry.origin, entry.projection.name, entry.projection.status) == ("local", "it", "running")
        assert entry.projection.folder == str(rig.repo)
        assert seen(entry, rig.clock.now()).alive
        said = await context.steering.give(rig.run_id, "message", {"content": "mind the moat"}, by="alex")
        assert said.number is None
        await asyncio.wait_for(heard.wait(), PATIENCE)
        await context.steering.give(rig.run_id, "stop", {}, by="alex")
        state, _ = await run
        stopped = await shown(context, rig.run_id, lambda entry: entry.projection.status == "suspended")
    assert stopped.projection.why.startswith("Stopped by alex; resume: `untildone resume it`")
    assert stopped.projection.attempts == state.attempts
    assert stopped.projection.cost_usd == pytest.approx(state.served_usd)
    assert not seen(stopped, rig.clock.now()).alive


async def test_a_server_that_comes_and_goes_has_each_event_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    settings = ServerSettings(database=new_archive(tmp_path))
    steps = repeat(Step(outcome=counting(rig.repo / "a.txt"), delay=0.02))
    run, copied = asyncio.create_task(rig.run(steps, Policy(max_runs=100_000))), 0
    for _ in range(4):
        async with open_server(settings, tmp_path / "state", clock=rig.clock) as server:
            # More than when the last one went, and that in the middle of it.
            more = await shown(server.context, rig.run_id, lambda entry: entry.last_seq > copied + 20)  # noqa: B023
            copied = more.last_seq
    await rig.say(StopRequested(by="test"))
    state, _ = await run
    async with open_server(settings, tmp_path / "state", clock=rig.clock) as server:
        entry = await shown(server.context, rig.run_id, lambda entry: entry.projection.folded_seq == state.last_seq)
        rows = await server.context.archive.runs.iterations(rig.run_id)
        copies = await server.context.archive.events.read(rig.run_id, EventFilter(after=0, limit=100_000))
    ours = [(record.seq, encode(record.event).decode()) for record in await rig.log.read(rig.run_id, trace=True)]
    assert [(event.seq, event.data) for event in copies] == ours
    assert entry.projection.status == "suspended"
    assert len(rows) == state.attempts
    assert sum(row.cost_usd for row in rows) == pytest.approx(state.served_usd)
