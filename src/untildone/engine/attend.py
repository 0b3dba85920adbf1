"""Stay attentive to what the run uses up: its limits, and the machine's disk, memory and processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from untildone.core import events as ev
from untildone.core.figures import size
from untildone.core.limits import is_disk_low, is_nearly_full, warning_due
from untildone.core.policy import Policy
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.engine.watch import news
from untildone.ports import MachineFacts

LOOK_EVERY = 5.0
"""Seconds between two looks at the machine."""
SCARCE_MEMORY = 0.05
"""Free share of the memory below which a human is warned."""
MANY_PROCESSES = 0.8
"""Share of the allowed processes above which a human is warned."""
LEAKED_PROCESSES = 500
"""So many more processes than at the first look are most likely left behind by somebody."""
_NAMED_RECLAIMABLE = 4


class Attention:
    """Looks once per turn of the loop, and every few seconds while an iteration works or the loop rests."""

    def __init__(self, journal: Journal, parts: Parts) -> None:
        self._journal = journal
        self._parts = parts
        self._looked_at: float | None = None
        self._warned: set[str] = set()
        self._processes_at_first: int | None = None
        self._one_at_a_time = asyncio.Lock()

    async def look(self) -> None:
        """Record what changed. Cheap: the machine itself is looked at every few seconds only."""
        async with self._one_at_a_time:
            await self._journal.heed_clock()
            if self._is_time():
                await self._look_at_machine()
            # Last, and without a pause after the last question: whoever waits for news then misses none.
            while self._is_running() and (limit := warning_due(self._journal.state, self._parts.clock.now())):
                state, now = self._journal.state, self._parts.clock.now()
                value = limit.value(state.policy)
                assert value is not None
                await self._journal.record(
                    ev.BudgetWarning(limit_type=limit.field, limit_value=value, current_value=limit.used(state, now))
                )

    async def keep_watch(self) -> None:
        """Look again and again, also whenever something was recorded."""
        while True:
            await self.look()
            await news(self._journal, self._parts.clock, LOOK_EVERY)

    def _is_running(self) -> bool:
        return self._journal.state.phase == "running"

    def _is_time(self) -> bool:
        now, last = self._parts.clock.monotonic(), self._looked_at
        if not self._is_running() or (last is not None and now - last < LOOK_EVERY):
            return False
        self._looked_at = now
        return True

    async def _look_at_machine(self) -> None:
        facts = await asyncio.to_thread(self._parts.machine.look)
        if facts.disk_free is not None and self._is_running():
            await self._judge_disk(facts, facts.disk_free)
        if self._processes_at_first is None:
            self._processes_at_first = facts.processes
        for about, warning in scarce(facts, self._processes_at_first):
            if about not in self._warned:
                self._warned.add(about)
                await self._journal.tell(ev.ContinuousWarning(message=warning))

    async def _judge_disk(self, facts: MachineFacts, free: int) -> None:
        state = self._journal.state
        low = is_disk_low(free, state.policy, was_low=state.disk_low)
        worse = low and is_nearly_full(free, state.policy) and not is_nearly_full(state.disk_free, state.policy)
        if low == state.disk_low and not worse:
            return
        reclaimable = await asyncio.to_thread(self._parts.machine.reclaimable, facts.disk_where) if low else []
        detail = disk_detail(facts.disk_where, free, state.policy, reclaimable) if low else ""
        await self._journal.record(ev.ResourcesSeen(disk_low=low, disk_free=free, detail=detail))


@asynccontextmanager
async def attending(journal: Journal, parts: Parts) -> AsyncIterator[Attention]:
    """While inside, limits and machine are watched."""
    attention = Attention(journal, parts)
    watcher = asyncio.create_task(attention.keep_watch())
    try:
        yield attention
    finally:
        watcher.cancel()
        await asyncio.wait([watcher])
        if not watcher.cancelled():
            watcher.result()  # it never ends by itself: a store that cannot be written is an error


def disk_detail(where: str, free: int, policy: Policy, reclaimable: list[tuple[str, int]]) -> str:
    """What a human needs to know to make room."""
    said = f"{where} has {size(free)} left, {size(policy.disk_reserve)} is the reserve"
    could = [f"{what} {size(number)}" for what, number in reclaimable[:_NAMED_RECLAIMABLE] if number]
    return f"{said}; there: {', '.join(could)}" if could else said


def scarce(facts: MachineFacts, processes_at_first: int | None = None) -> list[tuple[str, str]]:
    """What runs short besides the disk, and what to say about it."""
    found = []
    free, total = facts.memory_free, facts.memory_total
    if free is not None and total and free < SCARCE_MEMORY * total:
        found.append(("memory", f"memory runs short: {size(free)} of {size(total)} left"))
    there, limit = facts.processes, facts.process_limit
    if there is not None and limit and there > MANY_PROCESSES * limit:
        found.append(("processes", f"processes run short: {there:,} of the {limit:,} this user may have are there"))
    elif there is not None and processes_at_first is not None and there - processes_at_first >= LEAKED_PROCESSES:
        found.append(("processes", f"this user has {there:,} processes, {processes_at_first:,} when the run began"))
    return found
