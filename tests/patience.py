"""What must happen is waited for as long as the slowest machine needs. That costs nothing where it happens."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds. Only a test that fails waits so long."""


def eventually(holds: Callable[[], T], what: str = "it") -> T:
    """Wait until something holds; what it said then."""
    ends_at = time.monotonic() + PATIENCE
    while not (said := holds()):
        assert time.monotonic() < ends_at, f"{what} did not happen in time"
        time.sleep(0.02)
    return said


async def soon(holds: Callable[[], T], what: str = "it") -> T:
    """The same beside what else runs in this event loop."""
    ends_at = time.monotonic() + PATIENCE
    while not (said := holds()):
        assert time.monotonic() < ends_at, f"{what} did not happen in time"
        await asyncio.sleep(0.01)
    return said


async def run_out(seconds: float) -> None:
    """Let a timeout of so many seconds, which is set on this event loop or will be, be over at once.

    A test that sits through a short one fails where a slow machine needs as long for what comes before.
    """
    loop = asyncio.get_running_loop()
    now = loop.time
    await soon(lambda: any(_is_of(timer, seconds, now()) for timer in loop._scheduled), "the timeout")
    loop.time = lambda: now() + seconds


def _is_of(timer: asyncio.TimerHandle, seconds: float, now: float) -> bool:
    return not timer.cancelled() and 0 <= now + seconds - timer.when() < seconds / 2
