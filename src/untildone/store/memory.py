"""The event log in memory: same behaviour as the real one, no file. For tests, rehearsals and libraries."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import field, replace
from math import inf
from os import getpid

from untildone.core.codec import encode, event_kind, stored_form
from untildone.core.dataclass import dataclass
from untildone.core.events import Event, Record, StoreTampered
from untildone.errors import LeaseLost, RunNotFound
from untildone.ports import Clock, Lease, RunRow
from untildone.store.adopted import in_rising_order
from untildone.store.lease import Holder, overlaps, real_folder
from untildone.store.trim import ROW_BYTES


@dataclass(slots=True, kw_only=True)
class _Run:
    name: str
    folder: str
    created_at: float
    updated_at: float
    status: str = "running"
    fence: int = 0
    last_seq: int = 0
    records: list[Record] = field(default_factory=list)
    control: list[Record] = field(default_factory=list)
    snapshot: tuple[int, bytes] | None = None

    @property
    def began(self) -> bool:
        return self.last_seq > 0 or self.snapshot is not None


class MemoryLog:
    """An EventLog that lives as long as the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._held: dict[Lease, Holder] = {}
        self._findings: dict[Lease, StoreTampered] = {}
        self._followers: set[asyncio.Event] = set()

    async def append(self, run_id: str, events: Sequence[Event], *, lease: Lease | None = None) -> list[Record]:
        """Append all or nothing."""
        # Through the encoding, so that what is read back is what any other store would give back.
        stored = [stored_form(event)[1] for event in events]
        run = self._writable(run_id, lease)
        if lease is not None and lease in self._findings:
            stored.insert(0, self._findings.pop(lease))
        run.updated_at = self._clock.now()
        new = [Record(seq=seq, at=run.updated_at, event=event) for seq, event in enumerate(stored, run.last_seq + 1)]
        run.last_seq += len(new)
        run.records.extend(new)
        run.control.extend(record for record in new if event_kind(record.event) == "control")
        for follower in self._followers:
            follower.set()
        return new

    async def transcribe(
        self, run_id: str, happened: Sequence[tuple[float, Event]], *, name: str, folder: str, status: str, after: int
    ) -> bool:
        """Append what happened elsewhere, if `after` still is the newest control event of that run."""
        stored = [(at, stored_form(event)[1]) for at, event in happened]
        run = self._runs.get(run_id)
        newest = run.control[-1].seq if run is not None and run.control else 0
        if newest != after or not stored:
            return newest == after
        if run is None:
            first = stored[0][0]
            run = _Run(name=name, folder=real_folder(folder), created_at=first, updated_at=first)
            self._runs[run_id] = run
        new = [Record(seq=seq, at=at, event=event) for seq, (at, event) in enumerate(stored, run.last_seq + 1)]
        run.status, run.updated_at, run.last_seq = status, new[-1].at, new[-1].seq
        run.records.extend(new)
        run.control.extend(record for record in new if event_kind(record.event) == "control")
        for follower in self._followers:
            follower.set()
        return True

    async def adopt(
        self, run_id: str, records: Sequence[Record], *, name: str, folder: str, status: str, replacing: bool = False
    ) -> bool:
        """Take up a run that lived elsewhere with its own numbers, if there is none of that id here."""
        kept = [replace(record, event=stored_form(record.event)[1]) for record in in_rising_order(records)]
        if (run_id in self._runs and not replacing) or not kept:
            return False
        control = [record for record in kept if event_kind(record.event) == "control"]
        self._runs[run_id] = _Run(
            name=name, folder=real_folder(folder), created_at=kept[0].at, updated_at=self._clock.now(),
            status=status, last_seq=kept[-1].seq, records=kept, control=control,
        )  # fmt: skip
        for follower in self._followers:
            follower.set()
        return True

    async def read(self, run_id: str, *, after: int = 0, trace: bool = False, limit: int | None = None) -> list[Record]:
        """Records with seq > after, in order; none for a run that is not there."""
        run = self._runs.get(run_id)
        if run is None:
            return []
        records = run.records if trace else run.control
        return records[bisect_right(records, after, key=lambda record: record.seq) :][:limit]

    async def follow(self, run_id: str, *, after: int = 0, trace: bool = False) -> AsyncIterator[Record]:
        """Records with seq > after as they arrive, for ever."""
        appended = asyncio.Event()
        self._followers.add(appended)
        try:
            while True:
                appended.clear()
                for record in await self.read(run_id, after=after, trace=trace):
                    after = record.seq
                    yield record
                await appended.wait()
        finally:
            self._followers.discard(appended)

    async def acquire(self, run_id: str, *, name: str, folder: str) -> Lease:
        """Become the driver of this run and the only one in this folder."""
        folder, now = real_folder(folder), self._clock.now()
        asker = Holder(pid=getpid(), run_id=run_id, name=name, folder=folder, since=now)
        for holder in self._held.values():
            if holder.run_id == run_id or overlaps(holder.folder, folder):
                raise holder.busy(asker)
        run = self._runs.setdefault(run_id, _Run(name=name, folder=folder, created_at=now, updated_at=now))
        run.name, run.folder, run.updated_at, run.status, run.fence = name, folder, now, "running", run.fence + 1
        lease = Lease(run_id, run.fence)
        self._held[lease] = asker
        return lease

    async def release(self, lease: Lease, *, status: str) -> None:
        """Stop being the driver. The status is recorded unless another driver took over meanwhile.

        A run that is still "new", of which nothing was recorded, is forgotten.
        """
        run = self._runs.get(lease.run_id)
        if run is not None and run.fence == lease.token:
            run.status, run.updated_at = status, self._clock.now()
            if status == "new" and not run.began:
                del self._runs[lease.run_id]
        self._held.pop(lease, None)

    async def runs(self) -> list[RunRow]:
        """All runs that began or are about to, the one touched last first."""
        driven = {lease.run_id for lease in self._held}
        rows = [
            RunRow(
                run_id=run_id,
                name=run.name,
                folder=run.folder,
                created_at=run.created_at,
                updated_at=run.updated_at,
                status=run.status,
                alive=run_id in driven,
            )
            for run_id, run in reversed(self._runs.items())
            if run.began or run_id in driven
        ]
        return sorted(rows, key=lambda row: row.updated_at, reverse=True)

    async def save_snapshot(self, lease: Lease, seq: int, state: bytes) -> None:
        """Keep a disposable copy of the folded state up to `seq`; only the newest is kept."""
        self._writable(lease.run_id, lease).snapshot = (seq, state)

    async def load_snapshot(self, run_id: str) -> tuple[int, bytes] | None:
        """The newest snapshot of a run: (seq, state)."""
        run = self._runs.get(run_id)
        return run.snapshot if run is not None else None

    async def rebuild(self, lease: Lease, seq: int, state: bytes) -> None:
        """Keep the snapshot. Memory cannot be spoilt, so that nothing else is lost; the driver is told all the same."""
        await self.save_snapshot(lease, seq, state)
        self._findings[lease] = StoreTampered(detail="the store in memory was begun anew")

    async def trim_trace(self, lease: Lease, *, keep_bytes: int, keep_seconds: float) -> int:
        """Remove the oldest trace events beyond these bounds; returns how many."""
        run = self._writable(lease.run_id, lease)
        return _trim(run, keep_bytes=keep_bytes, before=self._clock.now() - keep_seconds)

    async def trim_ended(self, *, before: float, most: int) -> int:
        """Remove the trace of runs nobody drives or touched since then, about `most` events; returns how many."""
        driven = {lease.run_id for lease in self._held}
        removed = 0
        for run_id, run in self._runs.items():
            if removed < most and run_id not in driven and run.updated_at < before:
                removed += _trim(run, keep_bytes=0, before=inf)
        return removed

    async def close(self) -> None:
        """Give up all leases, as the death of a driver would. The runs stay readable and can be taken up again."""
        self._held.clear()

    def _writable(self, run_id: str, lease: Lease | None) -> _Run:
        run = self._runs.get(run_id)
        if run is None:
            raise RunNotFound(f"there is no run {run_id} in memory")
        if lease is not None and (lease.run_id, lease.token) != (run_id, run.fence):
            raise LeaseLost(f"another driver took over run {run_id} (lease {lease.token}, now {run.fence})")
        return run


def _trim(run: _Run, *, keep_bytes: int, before: float) -> int:
    costs = [len(encode(record.event)) + ROW_BYTES if _is_trace(record) else 0 for record in run.records]
    size, kept, trimming = sum(costs), list[Record](), True
    for record, cost in zip(run.records, costs, strict=True):
        trimming = trimming and (not cost or size > keep_bytes or record.at < before)
        if cost and trimming:
            size -= cost
        else:
            kept.append(record)
    removed = len(run.records) - len(kept)
    run.records = kept
    return removed


def _is_trace(record: Record) -> bool:
    return event_kind(record.event) == "trace"
