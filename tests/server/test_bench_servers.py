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


def test_taking_events_is_several_times_as_quick_as_the_plain_endpoint(tmp_path: Path) -> None:
    ingest, servers = bench("ingest"), bench("servers")
    with (
        servers.server("ours", f"sqlite:///{tmp_path / 'ours.db'}") as (ours, _),
        servers.server("plain", f"sqlite:///{tmp_path / 'plain.db'}") as (plain, _),
    ):
        for port in (ours, plain):
            asyncio.run(ingest.send(port, "warm", ingest.CONNECTIONS))
        ratios = [
            asyncio.run(ingest.send(plain, f"round-{number}", ingest.CONNECTIONS))
            / asyncio.run(ingest.send(ours, f"round-{number}", ingest.CONNECTIONS))
            for number in range(3)
        ]
    assert sorted(ratios)[1] > 3


def test_viewers_get_every_event_once_and_in_order(tmp_path: Path) -> None:
    viewers, servers = bench("viewers"), bench("servers")
    with servers.server("ours", f"sqlite:///{tmp_path / 'ours.db'}") as (port, pid):
        load = asyncio.run(viewers.watch(port, pid, "run", 30, 1))
    assert load.delivered == 30 * viewers.BATCHES_A_SECOND * viewers.EVENTS
    assert 0 < load.percentile(50) <= load.percentile(99)
    assert load.memory[0] > 10
