"""Resume and `status` as a run grows: what is new should cost, history should not."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from long_run import RUN, write_run
from result import Curve, Figure, Result
from stopwatch import seconds_of
from untildone.core.fold import fold
from untildone.engine.clock import SystemClock
from untildone.engine.journal import SNAPSHOT_EVERY, load_state
from untildone.store.sqlite import SqliteLog
from untildone.wiring import STORE_FILE

GATE = 1.5
TRACED = -1
"""Stands for the run with trace events among the lengths."""
Timing = dict[int, float]


def measure(*, quick: bool) -> Result:
    """Make runs of several lengths, then look at them in turns."""
    sizes = (10, 1000, 5000) if quick else (10, 1000, 100_000)
    trace = 20_000 if quick else 1_000_000
    rounds = 5 if quick else 15
    with tempfile.TemporaryDirectory(prefix="untildone-bench-") as name:
        folders = {size: Path(name) / str(size) for size in sizes}
        traced = Path(name) / "traced"
        asyncio.run(_write_all(folders, traced, trace))
        everything = {**folders, TRACED: traced}
        resume = _in_turns(everything, rounds, _resume_seconds)
        status = _in_turns(everything, rounds, _status_seconds)
        whole = {size: _whole_fold_seconds(folder) for size, folder in folders.items()}
    return Result(
        title=f"A run of {sizes[-1]:,} control events against shorter ones; and one with {trace:,} trace events",
        figures=(*_by_length(sizes, resume, status), *_with_trace(sizes[-2], trace, resume, status)),
        curves=(
            Curve(
                name="growth",
                title="Taking up a run, by its length",
                x_label="control events",
                y_label="seconds",
                lines={
                    "`status`, whole process": [(size, status[size]) for size in sizes],
                    "resume": [(size, resume[size]) for size in sizes],
                    "without snapshots": list(whole.items()),
                },
            ),
        ),
    )


def _by_length(sizes: tuple[int, ...], resume: Timing, status: Timing) -> tuple[Figure, ...]:
    long, middle, short = sizes[-1], sizes[-2], sizes[0]
    return (
        Figure(
            name=f"resume: {long:,} events against {middle:,}",
            value=resume[long] / resume[middle],
            at_most=GATE,
            note=f"{_milliseconds(resume[long])} against {_milliseconds(resume[middle])}, from snapshots",
        ),
        Figure(
            name=f"resume: {long:,} events against {short:,}",
            value=resume[long] / resume[short],
            note=f"{_milliseconds(resume[short])}: the {SNAPSHOT_EVERY - 1} events after the last snapshot are folded",
        ),
        Figure(
            name=f"`status`: {long:,} events against {short:,}",
            value=status[long] / status[short],
            at_most=GATE,
            note=f"{_milliseconds(status[long])} against {_milliseconds(status[short])}, the start of Python included",
        ),
    )


def _with_trace(control: int, trace: int, resume: Timing, status: Timing) -> tuple[Figure, ...]:
    return (
        Figure(
            name=f"resume: {trace:,} trace events beside {control:,} against none",
            value=resume[TRACED] / resume[control],
            at_most=GATE,
        ),
        Figure(
            name=f"`status`: {trace:,} trace events beside {control:,} against none",
            value=status[TRACED] / status[control],
            at_most=GATE,
        ),
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


async def _write_all(folders: dict[int, Path], traced: Path, trace: int) -> None:
    for size, folder in folders.items():
        await write_run(folder, control=size)
    await write_run(traced, control=list(folders)[-2], trace=trace)


def _in_turns(folders: dict[int, Path], rounds: int, seconds: Callable[[Path], float]) -> Timing:
    """Medians; every length is looked at once in each round, so that all feel the same neighbours."""
    found = [{key: seconds(folder) for key, folder in folders.items()} for _ in range(rounds + 1)]
    return {key: median(one[key] for one in found[1:]) for key in folders}  # the first one only warms the caches


def _resume_seconds(folder: Path) -> float:
    async def load() -> float:
        log = SqliteLog(folder / STORE_FILE, SystemClock())
        began = time.perf_counter()
        state = await load_state(log, RUN)
        took = time.perf_counter() - began
        await log.close()
        assert state.run_id == RUN
        return took

    return asyncio.run(load())


def _whole_fold_seconds(folder: Path) -> float:
    async def load() -> float:
        log = SqliteLog(folder / STORE_FILE, SystemClock())
        began = time.perf_counter()
        fold(await log.read(RUN))
        took = time.perf_counter() - began
        await log.close()
        return took

    return asyncio.run(load())


def _status_seconds(folder: Path) -> float:
    argv = [sys.executable, "-m", "untildone", "status", RUN, "--store", str(folder)]
    return seconds_of(argv)
