"""What the list of runs shows is made here, after events were stored: by one task, a run at a time.

It may be thrown away and made anew, so nothing that goes wrong here loses anything. A run that cannot be understood
is said to be unreadable; a database that is away is asked again later.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from untildone import __version__
from untildone.core.dataclass import dataclass
from untildone.core.event import Record
from untildone.core.history import IterationRow
from untildone.server.archive.port import Archive, EventFilter, Projection, RunEntry
from untildone.server.fanout import Fanout
from untildone.server.folding import (
    UNREADABLE,
    Folded,
    Seen,
    fold_on,
    folded_of,
    liveness,
    older_rows,
    projection_of,
    records_of,
    seen,
    state_of,
)
from untildone.server.published import DECIDING, named_iterations, published_projection

__all__ = ["UNREADABLE", "Projector", "Seen", "liveness", "projection_of", "seen", "state_of"]

EVERY = 0.2
"""Seconds between two projections of one run."""
PAGE = 500
"""Events that are folded at once."""
LOOK_EVERY = 15.0
"""Seconds between two looks at what another server process stored and did not live to project."""
LOOK_AT_ONCE = 100
LONGEST_REST = 60.0
"""Seconds until a run that could not be projected is tried again, at most."""
_IN_THREAD = 100

_log = logging.getLogger(__name__)


class _Overtaken(Exception):
    """Another server process projected meanwhile: what was read since then has its words in it already."""


@dataclass(slots=True)
class _Due:
    """A run that waits for its turn."""

    at: float
    failures: int = 0


class Projector:
    """Keeps projections up with the events."""

    def __init__(self, archive: Archive, fanout: Fanout, *, every: float = EVERY) -> None:
        self._archive = archive
        self._fanout = fanout
        self._every = every
        self._due: dict[str, _Due] = {}
        self._resting: dict[str, float] = {}
        """When a run may have its next turn, by the loop's clock."""
        self._busy: str | None = None
        self._awake = asyncio.Event()
        self._turn_over = asyncio.Condition()

    @property
    def backlog(self) -> int:
        """How many runs wait for their turn."""
        return len(self._due)

    def touch(self, run_id: str) -> None:
        """Events of this run were stored."""
        if run_id not in self._due:
            now = asyncio.get_running_loop().time()
            self._due[run_id] = _Due(at=max(now, self._resting.get(run_id, 0.0)))
            self._awake.set()

    async def settled(self, run_id: str) -> None:
        """Wait until all that is stored of this run by now is projected."""
        self.touch(run_id)
        async with self._turn_over:
            await self._turn_over.wait_for(lambda: run_id not in self._due and run_id != self._busy)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work meanwhile."""
        tasks = [asyncio.create_task(work()) for work in (self._work, self._look)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        """Find what was stored while nobody projected."""
        while True:
            try:
                for entry in await self._archive.runs.behind(limit=LOOK_AT_ONCE):
                    self.touch(entry.run_id)
            except Exception as trouble:  # noqa: BLE001 - the supervisor of this task: it must never end
                _log.warning("runs that are behind could not be listed: %r; trying again", trouble)
            await asyncio.sleep(LOOK_EVERY if len(self._due) < LOOK_AT_ONCE else self._every)

    async def _work(self) -> None:
        while True:
            rest = await self._turn()
            if rest is None or rest > 0:
                self._awake.clear()
                try:
                    async with asyncio.timeout(rest):
                        await self._awake.wait()
                except TimeoutError:
                    continue

    async def _turn(self) -> float | None:
        """Project the run that waits longest; else seconds until one may. None: nothing waits."""
        now = asyncio.get_running_loop().time()
        run_id, due = min(self._due.items(), key=lambda item: item[1].at, default=("", None))
        if due is None:
            self._resting = {run: until for run, until in self._resting.items() if until > now}
            return None
        if due.at > now:
            return due.at - now
        del self._due[run_id]
        self._busy = run_id
        try:
            more = await self._project(run_id)
        except Exception as trouble:  # noqa: BLE001 - the supervisor: whatever it was, the next run has its turn
            self._again_later(run_id, due.failures + 1, trouble)
        else:
            self._rest(run_id, more=more)
        finally:
            self._busy = None
            async with self._turn_over:
                self._turn_over.notify_all()
        return 0.0

    def _rest(self, run_id: str, *, more: bool) -> None:
        """What came in during a turn waits as what comes later does; a backlog does not."""
        now = asyncio.get_running_loop().time()
        self._resting[run_id] = now + self._every
        if more:
            self._due[run_id] = _Due(at=now)
        elif run_id in self._due:
            self._due[run_id].at = self._resting[run_id]

    def _again_later(self, run_id: str, failures: int, trouble: Exception) -> None:
        rest = min(LONGEST_REST, self._every * 2.0 ** min(failures, 20))
        if failures == 1:
            _log.warning("run %s could not be projected: %r; trying again", run_id, trouble)
        self._due[run_id] = _Due(at=asyncio.get_running_loop().time() + rest, failures=failures)

    async def _project(self, run_id: str) -> bool:
        """True: there is more to project."""
        entry = await self._archive.runs.entry(run_id)
        if entry is None:
            return False
        try:
            work = self._project_published if entry.origin == "published" else self._project_ours
            return await work(entry)
        except _Overtaken:
            return True

    async def _project_ours(self, entry: RunEntry) -> bool:
        """True: there is more to fold."""
        stored = folded_of(entry.projection.state)
        if stored.version != __version__:
            return await self._project_anew(entry, stored)
        folded, rows, more = await self._page(entry, stored, {})
        if folded is stored and entry.projection.state:
            return False
        await self._keep(entry, projection_of(entry, folded), [*rows.values()])
        return more

    async def _project_anew(self, entry: RunEntry, stored: Folded) -> bool:
        """What another version folded is folded again from the first event; if that one is here."""
        folded, rows, more = Folded(), dict[int, IterationRow](), True
        while more:
            folded, changed, more = await self._page(entry, folded, rows)
            rows |= changed
        if not folded.state.run_id and stored.state.run_id:
            folded, rows, more = await self._page(entry, replace(stored, version=__version__), {})
        await self._keep(entry, projection_of(entry, folded), [*rows.values()])
        return more

    async def _page(
        self, entry: RunEntry, folded: Folded, at_hand: Mapping[int, IterationRow]
    ) -> tuple[Folded, dict[int, IterationRow], bool]:
        wanted = EventFilter(after=folded.state.last_seq, kind="control", limit=PAGE)
        events = await self._archive.events.read(entry.run_id, wanted)
        if not events:
            return folded, {}, False
        if len(events) < _IN_THREAD:
            records = records_of(events)
            older = await self._older(entry, folded, records, at_hand)
            return *fold_on(folded, records, older), events.more
        records = await asyncio.to_thread(records_of, events)
        older = await self._older(entry, folded, records, at_hand)
        return *await asyncio.to_thread(fold_on, folded, records, older), events.more

    async def _older(
        self, entry: RunEntry, folded: Folded, records: Sequence[Record], at_hand: Mapping[int, IterationRow]
    ) -> dict[int, IterationRow]:
        """Rows of earlier iterations that these records speak of."""
        wanted = older_rows(folded, records)
        return await self._rows(entry, wanted - at_hand.keys()) | {n: at_hand[n] for n in wanted & at_hand.keys()}

    async def _rows(self, entry: RunEntry, numbers: Collection[int]) -> dict[int, IterationRow]:
        """Rows as they were when the entry was read."""
        found: dict[int, IterationRow] = {}
        rest = sorted(numbers, reverse=True)
        while rest:
            page = await self._archive.runs.iterations(entry.run_id, before=rest[0] + 1, limit=len(numbers))
            found |= {row.number: row for row in page if row.number in numbers}
            # What is missing between the page's ends is not there; only what is older may still be.
            oldest = page[0].number if page else 0
            rest = [number for number in rest if number < oldest]
        if found:
            now = await self._archive.runs.entry(entry.run_id)
            if now is None or now.projection.folded_seq != entry.projection.folded_seq:
                raise _Overtaken
        return found

    async def _project_published(self, entry: RunEntry) -> bool:
        before = entry.projection
        wanted = EventFilter(after=before.folded_seq, types=DECIDING, limit=PAGE)
        events = await self._archive.events.read(entry.run_id, wanted)
        rows = await self._rows(entry, named_iterations(events))
        more = events.more
        upto = events[-1].seq if more else entry.last_seq
        named = replace(before, name=before.name or entry.sandbox_id)
        projection, changed = published_projection(events, named, rows)
        await self._keep(entry, replace(projection, folded_seq=max(upto, before.folded_seq)), changed)
        return more

    async def _keep(self, entry: RunEntry, projection: Projection, rows: Sequence[IterationRow]) -> None:
        if await self._archive.runs.project(entry.run_id, projection, rows):
            self._fanout.changed(entry.run_id)
