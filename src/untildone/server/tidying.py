"""What is too old or too much goes, in small steps with rests between: nobody who looks or sends should notice."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from untildone.core.dataclass import dataclass
from untildone.core.durations import DAY
from untildone.ports import Clock
from untildone.server.archive.port import Archive

EVERY = 3600.0
"""Seconds between two times."""
STEP = 2000
"""Events that go at once: a few milliseconds of writing."""
RUNS_AT_ONCE = 100
COMPACT_STEP = 4 << 20
"""Bytes given back to the disk at once."""
MESSAGES_KEPT = 7 * DAY
"""Seconds a message waits for a worker of the published kind to ask."""
SHORTEST_REST = 0.01
LONGEST_REST = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidied:
    """What went."""

    events: int = 0
    keys_and_messages: int = 0
    bytes_freed: int = 0


class Tidier:
    """Keeps the archive within what was agreed."""

    def __init__(
        self, archive: Archive, clock: Clock, *, keep_days: float, keep_bytes: int, every: float = EVERY
    ) -> None:
        self._archive = archive
        self._every = every
        self._clock = clock
        self._keep_seconds = keep_days * DAY
        self._keep_bytes = keep_bytes

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Tidy now, and every hour."""
        task = asyncio.create_task(self._keep_tidying())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def tidy(self) -> Tidied:
        """Once, until there is nothing left to do."""
        now = self._clock.now()
        swept = await self._archive.sweep(now=now, messages_before=now - MESSAGES_KEPT)
        removed = await self._trim(now - self._keep_seconds)
        return Tidied(events=removed, keys_and_messages=swept, bytes_freed=await self._compact())

    async def _keep_tidying(self) -> None:
        while True:
            try:
                await self.tidy()
            except Exception as trouble:  # noqa: BLE001 - the supervisor of this task: it must never end
                _log.warning("the archive could not be tidied: %r; trying again later", trouble)
            await asyncio.sleep(self._every)

    async def _trim(self, before: float) -> int:
        removed = 0
        seen = set[str]()
        while True:
            runs = await self._archive.events.overgrown(before=before, keep_bytes=self._keep_bytes, limit=RUNS_AT_ONCE)
            news = [run_id for run_id in runs if run_id not in seen]
            if not news:
                return removed
            for run_id in news:
                # Once only: a run that grows while it is trimmed must not keep us here for ever.
                seen.add(run_id)
                removed += await self._trim_run(run_id, before)

    async def _trim_run(self, run_id: str, before: float) -> int:
        removed = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            gone = await self._archive.events.trim(run_id, before=before, keep_bytes=self._keep_bytes, most=STEP)
            removed += gone
            if gone < STEP:
                return removed
            await _rest(loop.time() - began)

    async def _compact(self) -> int:
        freed = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            given = await self._archive.compact(most_bytes=COMPACT_STEP)
            if not given:
                return freed
            freed += given
            await _rest(loop.time() - began)


async def _rest(took: float) -> None:
    """Rest longer than the work took: two thirds of the time belong to others."""
    await asyncio.sleep(min(LONGEST_REST, max(SHORTEST_REST, 2 * took)))
