"""Appending to the log, against writing the same bytes to a plain file."""

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from long_run import RUN, control_events, trace_events
from result import Figure, Result, ratio
from untildone.core.codec import encode
from untildone.core.events import Event
from untildone.engine.clock import SystemClock
from untildone.engine.journal import TRACE_BATCH
from untildone.ports import Lease
from untildone.store.sqlite import SqliteLog
from untildone.wiring import STORE_FILE


def measure(*, quick: bool) -> Result:
    """Append and write in turns: control events one by one as a driver does, trace events in its batches."""
    count, rounds = (200, 3) if quick else (500, 7)
    return asyncio.run(_measure(count, rounds))


async def _measure(count: int, rounds: int) -> Result:
    control, trace = control_events(count), trace_events(count * TRACE_BATCH)
    ours: dict[str, list[float]] = {"control": [], "trace": []}
    plain: dict[str, list[float]] = {"control": [], "trace": []}
    with tempfile.TemporaryDirectory(prefix="untildone-bench-") as name:
        log = SqliteLog(Path(name) / STORE_FILE, SystemClock())
        lease = await log.acquire(RUN, name="append", folder=name)
        for _ in range(rounds):
            for kind, events, size in (("control", control, 1), ("trace", trace, TRACE_BATCH)):
                plain[kind].append(_write(Path(name) / kind, events, size, durable=kind == "control"))
                ours[kind].append(await _append(log, lease, events, size))
        await log.close()
    return Result(
        title="Appending to the log, against writing the same bytes to a plain file",
        figures=(
            Figure(
                name="control events, one durable commit each",
                value=ratio(ours["control"], plain["control"]),
                note=f"{count / min(ours['control']):,.0f} a second at best; the file is synced after each too",
            ),
            Figure(
                name=f"trace events, {TRACE_BATCH} at a time",
                value=ratio(ours["trace"], plain["trace"]),
                note=f"{len(trace) / min(ours['trace']):,.0f} a second at best; nothing waits for the disk",
            ),
        ),
    )


async def _append(log: SqliteLog, lease: Lease, events: Sequence[Event], size: int) -> float:
    began = time.perf_counter()
    for start in range(0, len(events), size):
        await log.append(RUN, events[start : start + size], lease=lease)
    return time.perf_counter() - began


def _write(path: Path, events: Sequence[Event], size: int, *, durable: bool) -> float:
    began = time.perf_counter()
    with path.open("ab", buffering=0) as file:
        for start in range(0, len(events), size):
            file.write(b"\n".join(encode(event) for event in events[start : start + size]))
            if durable:
                os.fdatasync(file.fileno())
    return time.perf_counter() - began
