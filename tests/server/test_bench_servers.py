"""What `./dev bench` measures of the server works, and holds in the small."""

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def _bench_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def bench(name: str) -> Any:
    return importlib.import_module(name)


@pytest.mark.soak
def test_events_are_taken_several_times_as_quickly_as_by_the_plain_endpoint_and_reach_every_viewer(
    tmp_path: Path,
) -> None:
    ingest, viewers, servers = bench("ingest"), bench("viewers"), bench("servers")
    with (
        servers.server("ours", f"sqlite:///{tmp_path / 'ours.db'}") as (ours, pid),
        servers.server("plain", f"sqlite:///{tmp_path / 'plain.db'}") as (plain, _),
    ):
        for port in (ours, plain):
            asyncio.run(ingest.send(port, "warm", ingest.CONNECTIONS))
        ratios = [
            asyncio.run(ingest.send(plain, f"round-{number}", ingest.CONNECTIONS))
            / asyncio.run(ingest.send(ours, f"round-{number}", ingest.CONNECTIONS))
            for number in range(3)
        ]
        load = asyncio.run(viewers.watch(ours, pid, "run", 30, 1))
    assert sorted(ratios)[1] > 3
    assert load.delivered == 30 * viewers.BATCHES_A_SECOND * viewers.EVENTS
    assert 0 < load.percentile(50) <= load.percentile(99)
    assert load.memory[0] > 10
