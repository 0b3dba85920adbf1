"""The real server, killed and cut off while events flow: every event arrives once and in order."""

import asyncio
import json
from pathlib import Path

import pytest

from untildone import wiring
from untildone.core.codec import encode, event_type
from untildone.uplink import outbox
from untildone.uplink.client import HttpUplink
from untildone.uplink.outbox import Outbox
from uplink.uplink_kit import PATIENCE, RealServer, Wire, begun, control, trace, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def own_server(tmp_path: Path) -> RealServer:
    return RealServer(tmp_path)


@pytest.mark.parametrize(
    ("kills", "cut_for"), [(1, 1.0), pytest.param(10, 30.0, marks=pytest.mark.soak)], ids=["short", "long"]
)
async def test_every_event_arrives_once_and_in_order(
    own_server: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, cut_for: float
) -> None:
    monkeypatch.setattr(outbox, "LONGEST_REST", 1.0)
    log = wiring.open_log(tmp_path / "log", wiring.system_clock())
    run_id = "long-one"
    await begun(log, run_id)
    going = asyncio.Event()
    steps = 0

    async def work() -> None:
        """A run that writes, whatever becomes of its report."""
        nonlocal steps
        while not going.is_set():
            steps += 1
            await log.append(run_id, [trace(f"step {steps} " + "x" * 200), control(steps)])
            await asyncio.sleep(0.005)

    async def goes_on() -> None:
        """It makes steps while no answer comes."""
        before = steps
        await until(lambda: steps > before + 20)

    await own_server.start()
    async with Wire(own_server.port) as wire:
        uplink = HttpUplink(f"http://127.0.0.1:{wire.port}", "box", patience=2.0)
        sender = Outbox(log, run_id, uplink)
        tasks = [asyncio.create_task(sender.run()), asyncio.create_task(work())]
        for _ in range(kills):
            have = sender.delivered
            await until(lambda: sender.delivered > have + 20)  # noqa: B023 - awaited here
            await own_server.kill()
            await goes_on()
            await own_server.start()
        wire.cut()
        await goes_on()
        await asyncio.sleep(cut_for)
        wire.mend()
        have = sender.delivered
        await until(lambda: sender.delivered > have + 20)
        going.set()
        await tasks[1]
        left = await sender.settle(PATIENCE)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await uplink.close()
    await own_server.kill()
    written = await log.read(run_id, trace=True)
    await log.close()
    assert left.events == 0
    assert len(written) > 100
    assert [(one.seq, event_type(one.event), json.loads(encode(one.event))) for one in written] == [
        (seq, kind, json.loads(data)) for seq, kind, data in own_server.rows(run_id)
    ]
