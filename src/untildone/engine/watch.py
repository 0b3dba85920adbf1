"""Do something, but stay attentive to what humans ask and what the clock says."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from untildone.core.liveness import Liveness, is_hung, observe, sampling_period
from untildone.core.policy import Policy
from untildone.engine.journal import Journal
from untildone.ports import Agent, Clock

T = TypeVar("T")

# A clock may jump, and a sleep may be stretched by a suspended laptop: look again at least this often.
LONGEST_NAP = 30.0


async def news(journal: Journal, clock: Clock, within: float | None, *others: asyncio.Task[T]) -> None:
    """Return when something was recorded, `within` seconds passed, or one of the other tasks ended."""
    journal.changed.clear()
    nap = LONGEST_NAP if within is None else min(max(within, 0.0), LONGEST_NAP)
    waiters = [asyncio.ensure_future(journal.changed.wait()), asyncio.ensure_future(clock.sleep(nap))]
    try:
        await asyncio.wait([*waiters, *others], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()  # not awaited: that could swallow a cancellation of our own


async def unless(journal: Journal, clock: Clock, work: Awaitable[T], called_off: Callable[[], bool]) -> T | None:
    """Await `work`, cancelling it (None) as soon as it is called off. What is past that point is still reported."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done() and not called_off():
            await news(journal, clock, None, task)
        is_over = task.done()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    if task.cancelled() or (not is_over and task.exception() is not None):
        return None
    return task.result()


async def until_hung(agent: Agent, clock: Clock, policy: Policy) -> None:
    """Return when the agent has shown no sign of life for too long; never, if nobody asked for that."""
    if policy.idle_timeout is None:
        await asyncio.get_running_loop().create_future()  # somebody will cancel it
        return
    liveness = Liveness(period=sampling_period(policy.idle_timeout), seen_at=clock.monotonic())
    while not is_hung(liveness, policy):
        await clock.sleep(liveness.period)
        liveness = observe(liveness, agent.pulse(), clock.monotonic())
