"""The event log in one SQLite file for all runs of a user. Any number of processes may read and append."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Any

from untildone.core.codec import decode, event_kind, event_type, event_version, stored_form
from untildone.core.events import Event, Record
from untildone.errors import LeaseLost, RunNotFound
from untildone.ports import Lease, RunRow
from untildone.store.adopted import in_rising_order
from untildone.store.driven import NO_LIMIT, READ_CONTROL, Driven, last_control, newest_number
from untildone.store.lease import real_folder
from untildone.store.opened import OpenStore
from untildone.store.restore import put_snapshot
from untildone.store.schema import spoken_errors
from untildone.store.trim import clear_locks, ended_runs, ended_step, trim_step

POLL_SECONDS = 0.05
FOLLOW_BATCH = 500

_READ_ALL = """SELECT seq, at, kind, type, version, data, prev, seal FROM events
    WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?"""
_INSERT = """INSERT INTO events (run_id, seq, at, kind, type, version, data, prev, seal)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_LIST = """SELECT run_id, name, folder, created_at, updated_at, status,
        last_seq > 0 OR EXISTS (SELECT 1 FROM events WHERE events.run_id = runs.run_id)
            OR EXISTS (SELECT 1 FROM snapshots WHERE snapshots.run_id = runs.run_id)
    FROM runs ORDER BY updated_at DESC, rowid DESC"""
_FORGET = """DELETE FROM runs WHERE run_id = ? AND fence = ? AND last_seq = 0
    AND NOT EXISTS (SELECT 1 FROM events WHERE events.run_id = runs.run_id)
    AND NOT EXISTS (SELECT 1 FROM snapshots WHERE snapshots.run_id = runs.run_id)"""


class SqliteLog(OpenStore):
    """An EventLog on SQLite."""

    async def append(self, run_id: str, events: Sequence[Event], *, lease: Lease | None = None) -> list[Record]:
        """Append all or nothing, durably if any is a control event.

        What a driver found out about its record gets recorded before its own events.
        """
        run_id = _text(run_id)
        driven = self._held.get(lease) if lease is not None else None
        durable = any(event_kind(event) == "control" for event in events) or bool(driven and driven.findings)
        if durable:
            self._keep_hold(writing=True)
        stored = [(event, *stored_form(event)) for event in events]
        now = float(self._clock.now())
        with self._write(durable=durable):
            last, prev = self._place(run_id, lease)
            findings = list(driven.findings) if driven is not None else []
            stored = [*((event, *stored_form(event)) for event in findings), *stored]
            rows = self._rows(run_id, last, prev, ((now, event, data) for event, data, _ in stored))
            self._db.executemany(_INSERT, rows)
            self._db.execute(
                "UPDATE runs SET last_seq = ?, updated_at = ? WHERE run_id = ?", (last + len(rows), now, run_id)
            )
        if driven is not None:
            del driven.findings[: len(findings)]
            driven.highest = last + len(rows)
            driven.control = max([driven.control, *(row[1] for row in rows if row[3] == "control")])
        for follower in self._followers:
            follower.set()
        return [Record(seq=seq, at=now, event=back) for seq, (_, _, back) in enumerate(stored, last + 1)]

    async def transcribe(
        self, run_id: str, happened: Sequence[tuple[float, Event]], *, name: str, folder: str, status: str, after: int
    ) -> bool:
        """Append what happened elsewhere, if `after` still is the newest control event of that run."""
        run_id = _text(run_id)
        stored = [(float(at), event, stored_form(event)[0]) for at, event in happened]
        self._keep_hold(writing=True)
        with self._write(durable=True):
            control = last_control(self._db, self._seal, run_id)
            if control != after or not stored:
                return control == after
            first, newest = stored[0][0], stored[-1][0]
            self._db.execute(
                """INSERT INTO runs (run_id, name, folder, created_at, updated_at, status, fence)
                    VALUES (?, ?, ?, ?, ?, ?, 0)
                    ON CONFLICT (run_id) DO UPDATE SET updated_at = excluded.updated_at, status = excluded.status""",
                (run_id, _text(name), real_folder(folder), first, newest, _text(status)),
            )
            last, prev = self._place(run_id, None)
            rows = self._rows(run_id, last, prev, stored)
            self._db.executemany(_INSERT, rows)
            self._db.execute("UPDATE runs SET last_seq = ? WHERE run_id = ?", (last + len(rows), run_id))
        for follower in self._followers:
            follower.set()
        return True

    async def adopt(
        self, run_id: str, records: Sequence[Record], *, name: str, folder: str, status: str, replacing: bool = False
    ) -> bool:
        """Take up a run that lived elsewhere with its own numbers, sealed as ours, if there is none of that id here."""
        run_id = _text(run_id)
        kept = [(r.seq, float(r.at), r.event, stored_form(r.event)[0]) for r in in_rising_order(records)]
        self._keep_hold(writing=True)
        with self._write(durable=True):
            there = self._db.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            is_here = there is not None or last_control(self._db, self._seal, run_id)
            if not kept or (is_here and not replacing):
                return False
            # What others may have put there under this id is not the run's.
            for table in ("events", "snapshots", "trims"):
                self._db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608 - our own names
            self._db.execute(
                """INSERT INTO runs (run_id, name, folder, created_at, updated_at, status, fence, last_seq)
                    VALUES (?, ?, ?, ?, ?, ?, 0, ?)
                    ON CONFLICT (run_id) DO UPDATE SET name = excluded.name, folder = excluded.folder,
                        updated_at = excluded.updated_at, status = excluded.status, last_seq = excluded.last_seq""",
                (run_id, _text(name), real_folder(folder), kept[0][1], self._clock.now(), _text(status), kept[-1][0]),
            )
            self._db.executemany(_INSERT, self._sealed(run_id, 0, kept))
        for follower in self._followers:
            follower.set()
        return True

    def _rows(
        self, run_id: str, last: int, prev: int, stored: Iterable[tuple[float, Event, bytes]]
    ) -> list[tuple[Any, ...]]:
        return self._sealed(run_id, prev, ((seq, *one) for seq, one in enumerate(stored, last + 1)))

    def _sealed(
        self, run_id: str, prev: int, stored: Iterable[tuple[int, float, Event, bytes]]
    ) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for seq, at, event, data in stored:
            row = (seq, at, event_kind(event), event_type(event), event_version(event), data)
            if row[2] == "control":
                rows.append((run_id, *row, prev, self._seal.of_event(run_id, row, prev)))
                prev = seq
            else:
                rows.append((run_id, *row, None, None))
        return rows

    async def read(self, run_id: str, *, after: int = 0, trace: bool = False, limit: int | None = None) -> list[Record]:
        """Records with seq > after, in order; none for a run that is not there. Forged ones are passed over."""
        run_id = _text(run_id)
        if not self._held:
            self._key.look_again()
        with spoken_errors(self._path):
            rows = self._db.execute(_READ_ALL if trace else READ_CONTROL, (run_id, after, NO_LIMIT))
            # With a limit one by one: how many rows it takes to find so many true ones is not known before.
            true = (self._true_record(run_id, row) for row in (rows.fetchall() if limit is None else rows))
            return list(islice((record for record in true if record is not None), limit))

    def _true_record(self, run_id: str, row: tuple[Any, ...]) -> Record | None:
        """A row as a record; None when nobody of us wrote it."""
        seq, at, kind, type_name, version, data, _, _ = row
        if kind == "control":
            if not self._seal.is_event(run_id, row):
                return None
        elif not isinstance(data, bytes) or not isinstance(version, int):
            return None
        event = decode(type_name, version, kind, data)
        # What decides and is not sealed as such is a forgery too.
        return Record(seq=seq, at=at, event=event) if event_kind(event) == kind else None

    async def follow(self, run_id: str, *, after: int = 0, trace: bool = False) -> AsyncIterator[Record]:
        """Records with seq > after as they arrive, for ever."""
        appended = asyncio.Event()
        self._followers.add(appended)
        try:
            while True:
                # Both are looked at before the read: what comes during it is seen in the next round.
                appended.clear()
                version = self._foreign_commits()
                records = await self.read(run_id, after=after, trace=trace, limit=FOLLOW_BATCH)
                for record in records:
                    after = record.seq
                    yield record
                await self._look_around()
                if len(records) < FOLLOW_BATCH:
                    await self._change(appended, version)
        finally:
            self._followers.discard(appended)

    async def _look_around(self) -> None:
        """A driver that only waits notices too what others do to its record, and writes it down."""
        for driven in list(self._held.values()):
            with spoken_errors(self._path):
                driven.audit(self._db, self._seal)
            if driven.findings:
                await self.append(driven.lease.run_id, [], lease=driven.lease)

    async def _change(self, appended: asyncio.Event, version: int) -> None:
        """Return when this process (at once) or another one (within a poll) has committed something."""
        while not appended.is_set() and self._foreign_commits() == version:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await appended.wait()
            except TimeoutError:
                continue

    def _foreign_commits(self) -> int:
        """A number that changes whenever another connection has committed."""
        self._keep_hold(writing=False)
        with spoken_errors(self._path):
            version: int = self._db.execute("PRAGMA data_version").fetchone()[0]
            return version

    async def acquire(self, run_id: str, *, name: str, folder: str) -> Lease:
        """Become the driver of this run and the only one in this folder. RunBusy if someone living is."""
        run_id, name, folder = _text(run_id), _text(name), real_folder(folder)
        now = self._clock.now()
        self._keep_hold(writing=True)
        with ExitStack() as undo:
            # The write lock is held over both steps: drivers that start at the same moment go one by one.
            with self._write(durable=True):
                held = self._locks.take(run_id, name=name, folder=folder, now=now)
                undo.callback(held.close)
                fence, created_at, last_seq = self._db.execute(
                    """INSERT INTO runs (run_id, name, folder, created_at, updated_at, status, fence)
                        VALUES (?, ?, ?, ?, ?, 'running', 1)
                        ON CONFLICT (run_id) DO UPDATE SET fence = fence + 1, name = excluded.name,
                            folder = excluded.folder, updated_at = excluded.updated_at, status = excluded.status
                        RETURNING fence, created_at, last_seq""",
                    (run_id, name, folder, now, now),
                ).fetchone()
                lease = Lease(run_id, fence)
                driven = Driven(lease=lease, name=name, folder=folder, created_at=created_at, locks=held)
                driven.begin(self._db, self._seal)
                driven.highest = newest_number(self._db, run_id, driven.control, last_seq)
            self._held[lease] = driven
            undo.pop_all()
        return lease

    async def release(self, lease: Lease, *, status: str) -> None:
        """Stop being the driver. The status is recorded unless another driver took over meanwhile.

        A run that is still "new", of which nothing was recorded, is forgotten.
        """
        try:
            self._keep_hold(writing=True)
            await self._last_look(lease)
            with self._write(durable=True):
                if status == "new":
                    self._db.execute(_FORGET, (lease.run_id, lease.token))
                self._db.execute(
                    "UPDATE runs SET status = ?, updated_at = ? WHERE run_id = ? AND fence = ?",
                    (_text(status), self._clock.now(), lease.run_id, lease.token),
                )
        finally:
            if (driven := self._held.pop(lease, None)) is not None:
                driven.locks.close()

    async def _last_look(self, lease: Lease) -> None:
        """Tell before leaving what was done to the record."""
        driven = self._held.get(lease)
        if driven is not None:
            driven.leave()
            with suppress(LeaseLost):
                await self.append(lease.run_id, [], lease=lease)

    async def runs(self) -> list[RunRow]:
        """All runs that began or are about to, the one touched last first."""
        with spoken_errors(self._path):
            rows = self._db.execute(_LIST).fetchall()
        return [
            RunRow(
                run_id=run_id,
                name=name,
                folder=folder,
                created_at=created_at,
                updated_at=updated_at,
                status=status,
                alive=alive,
            )
            for run_id, name, folder, created_at, updated_at, status, began in rows
            if (alive := self._locks.holder(run_id) is not None) or began
        ]

    async def save_snapshot(self, lease: Lease, seq: int, state: bytes) -> None:
        """Keep a disposable copy of the folded state up to `seq`; only the newest is kept."""
        # From now on the events before it are not needed any more: a good moment to look whether it is on the disk.
        self._next_look = 0.0
        self._keep_hold(writing=True)
        with self._write(durable=False):
            self._place(lease.run_id, lease)
            put_snapshot(self._db, self._seal, lease.run_id, seq, state)
        if lease in self._held:
            self._held[lease].saved = seq

    async def load_snapshot(self, run_id: str) -> tuple[int, bytes] | None:
        """The newest snapshot of a run: (seq, state). One that was tampered with is none."""
        run_id = _text(run_id)
        if not self._held:
            self._key.look_again()
        with spoken_errors(self._path):
            row = self._db.execute("SELECT seq, state, seal FROM snapshots WHERE run_id = ?", (run_id,)).fetchone()
        return row[:2] if row is not None and self._seal.is_snapshot(run_id, *row) else None

    async def trim_trace(self, lease: Lease, *, keep_bytes: int, keep_seconds: float) -> int:
        """Remove the oldest trace events beyond these bounds; returns how many."""
        before = self._clock.now() - keep_seconds
        removed, more = 0, True
        while more:
            with self._write(durable=False):
                self._place(lease.run_id, lease)
                step = trim_step(self._db, lease.run_id, keep_bytes=keep_bytes, before=before)
            removed, more = removed + step.removed, step.more
            await asyncio.sleep(0)  # others have their turn between two steps
        return removed

    async def trim_ended(self, *, before: float, most: int) -> int:
        """Remove the trace of runs nobody drives or touched since then, about `most` events; returns how many."""
        removed = 0
        with self._write(durable=False):
            clear_locks(self._locks.directory, before)
            ended = ended_runs(self._db, before)
        for run_id in ended:
            more = self._locks.holder(run_id) is None
            while more and removed < most:
                with self._write(durable=False):
                    step = ended_step(self._db, run_id, before=before)
                removed, more = removed + step.removed, step.more
                await asyncio.sleep(0)
        return removed

    async def close(self) -> None:
        """Give up all leases and the file. Harmless when done twice."""
        while self._held:
            self._held.popitem()[1].locks.close()
        self._files = ()
        self._db.close()

    def _place(self, run_id: str, lease: Lease | None) -> tuple[int, int]:
        """The newest number of a run, and that of its newest control event, for a writer who may write."""
        row = self._db.execute(
            "SELECT last_seq, fence, name, folder, created_at, status FROM runs WHERE run_id = ?", (run_id,)
        ).fetchone()
        driven = self._held.get(lease) if lease is not None and lease.run_id == run_id else None
        if driven is not None:
            self._keep_place(driven, row)
        elif row is None:
            raise RunNotFound(f"there is no run {run_id} in {self._path}: check the id and the store")
        elif lease is not None and (lease.run_id, lease.token) != (run_id, row[1]):
            raise LeaseLost(f"another driver took over run {run_id} (lease {lease.token}, now {row[1]})")
        control = driven.control if driven is not None else last_control(self._db, self._seal, run_id)
        last = newest_number(self._db, run_id, control, row[0] if row is not None else 0)
        return max(last, driven.highest if driven is not None else 0), control

    def _keep_place(self, driven: Driven, row: tuple[Any, ...] | None) -> None:
        """Who holds the lock at its path is the driver, whatever the list of runs says."""
        fence = row[1] if row is not None else None
        if fence != driven.lease.token and not driven.locks.are_at_their_paths():
            run_id, token = driven.lease.run_id, driven.lease.token
            raise LeaseLost(f"another driver took over run {run_id} (lease {token}, now {fence})")
        driven.audit(self._db, self._seal)
        driven.mend(self._db, row, self._clock.now())


def _text(text: str) -> str:
    """Text from outside as SQLite can hold it: arguments may carry lone surrogates."""
    return text.encode("utf-8", "replace").decode()
