"""A run that falls silent sends no word of it: whoever looks at it is told by the clock."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from untildone.ports import Clock
from untildone.server.archive.port import HEARD_WITHIN, INTERRUPTED, Archive, RunFilter
from untildone.server.fanout import Fanout

EVERY = 1.0
"""Seconds between two looks."""
MOST = 200
"""Runs that are told of at once; pages look by themselves now and then, too."""
_LONGEST_LOOK = 30.0
"""Seconds between two looks on a machine that was busy, or asleep, that are still looked back at."""

_log = logging.getLogger(__name__)


class Silence:
    """Tells followers of the runs that count as left alone from now on."""

    def __init__(self, archive: Archive, fanout: Fanout, clock: Clock, *, every: float = EVERY) -> None:
        self._archive = archive
        self._fanout = fanout
        self._clock = clock
        self._every = every
        self._known: set[str] = set()
        self._trouble = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look meanwhile."""
        task = asyncio.create_task(self._keep_looking())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def look(self) -> None:
        """Tell of those that fell silent since the last look. Only what was heard of lately is looked at."""
        now = self._clock.now()
        since = now - HEARD_WITHIN - _LONGEST_LOOK
        wanted = RunFilter(statuses=(INTERRUPTED,), now=now, heard_since=since, limit=MOST)
        silent = {entry.run_id for entry in await self._archive.runs.entries(wanted)}
        for run_id in sorted(silent - self._known):
            # Other server processes on this database look for themselves.
            self._fanout.fell_silent(run_id)
        self._known = silent

    async def _keep_looking(self) -> None:
        while True:
            try:
                # Nobody is there to be told: a page that is opened later shows what is so then.
                if self._fanout.followers:
                    await self.look()
                self._trouble = False
            except Exception as trouble:  # noqa: BLE001 - the supervisor of this task: it must never end
                if not self._trouble:
                    _log.warning("runs that fell silent cannot be listed: %r; trying again", trouble)
                self._trouble = True
            await asyncio.sleep(self._every)
