"""The event log in one SQLite file for all runs of a user. Any number of processes may read and append."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from untildone.core.codec import decode, event_kind, event_type, event_version, stored_form
from untildone.core.events import ContinuousWarning, Event, Record
from untildone.errors import LeaseLost, RunBusy, RunNotFound, StoreError
from untildone.ports import Clock, Lease, RunRow
from untildone.store.lease import Locks, real_folder
from untildone.store.restore import FileId, copy_elsewhere, file_ids, make_way, merge, same_files
from untildone.store.schema import open_database, spoken_errors, transaction

POLL_SECONDS = 0.05
FOLLOW_BATCH = 500

# The index is named because the planner may prefer the primary key, which would walk over every trace event.
_READ_CONTROL = """SELECT seq, at, kind, type, version, data FROM events INDEXED BY events_control
    WHERE run_id = ? AND seq > ? AND kind = 'control' ORDER BY seq LIMIT ?"""
_READ_ALL = """SELECT seq, at, kind, type, version, data FROM events
    WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?"""
_NO_LIMIT = -1
_INSERT = "INSERT INTO events (run_id, seq, at, kind, type, version, data) VALUES (?, ?, ?, ?, ?, ?, ?)"


class SqliteLog:
    """An EventLog on SQLite."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._db = open_database(path)
        self._locks = Locks(path.parent / "locks")
        self._held: dict[Lease, ExitStack] = {}
        self._followers: set[asyncio.Event] = set()
        self._durable: bool | None = None
        self._files: tuple[FileId | None, ...] = file_ids(path)
        self._warning: ContinuousWarning | None = None
        self._rescued: Path | None = None

    async def append(self, run_id: str, events: Sequence[Event], *, lease: Lease | None = None) -> list[Record]:
        """Append all or nothing, durably if any is a control event.

        A driver whose store had to be put back gets a warning about it recorded before its own events.
        """
        run_id = _text(run_id)
        durable = any(event_kind(event) == "control" for event in events)
        if durable:
            self._keep_hold(writing=True)
        if lease is not None and self._warning is not None:
            events, self._warning = (self._warning, *events), None
        stored = [(event, *stored_form(event)) for event in events]
        now = self._clock.now()
        with self._write(durable=durable):
            last = self._last_seq(run_id, lease)
            rows = [
                (run_id, seq, now, event_kind(event), event_type(event), event_version(event), data)
                for seq, (event, data, _) in enumerate(stored, last + 1)
            ]
            self._db.executemany(_INSERT, rows)
            self._db.execute(
                "UPDATE runs SET last_seq = ?, updated_at = ? WHERE run_id = ?", (last + len(rows), now, run_id)
            )
        for follower in self._followers:
            follower.set()
        return [Record(seq=seq, at=now, event=back) for seq, (_, _, back) in enumerate(stored, last + 1)]

    async def read(self, run_id: str, *, after: int = 0, trace: bool = False, limit: int | None = None) -> list[Record]:
        """Records with seq > after, in order; none for a run that is not there."""
        query = _READ_ALL if trace else _READ_CONTROL
        with spoken_errors(self._path):
            rows = self._db.execute(query, (_text(run_id), after, _NO_LIMIT if limit is None else limit)).fetchall()
        return [
            Record(seq=seq, at=at, event=decode(type_name, version, kind, data))
            for seq, at, kind, type_name, version, data in rows
        ]

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
                if len(records) < FOLLOW_BATCH:
                    await self._change(appended, version)
        finally:
            self._followers.discard(appended)

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
                held = undo.enter_context(self._locks.take(run_id, name=name, folder=folder, now=now))
                (fence,) = self._db.execute(
                    """INSERT INTO runs (run_id, name, folder, created_at, updated_at, status, fence)
                        VALUES (?, ?, ?, ?, ?, 'running', 1)
                        ON CONFLICT (run_id) DO UPDATE SET fence = fence + 1, name = excluded.name,
                            folder = excluded.folder, updated_at = excluded.updated_at, status = excluded.status
                        RETURNING fence""",
                    (run_id, name, folder, now, now),
                ).fetchone()
            lease = Lease(run_id, fence)
            self._held[lease] = held
            undo.pop_all()
        return lease

    async def release(self, lease: Lease, *, status: str) -> None:
        """Stop being the driver. The status is recorded unless another driver took over meanwhile."""
        try:
            self._keep_hold(writing=True)
            with self._write(durable=True):
                self._db.execute(
                    "UPDATE runs SET status = ?, updated_at = ? WHERE run_id = ? AND fence = ?",
                    (_text(status), self._clock.now(), lease.run_id, lease.token),
                )
        finally:
            self._held.pop(lease, ExitStack()).close()

    async def runs(self) -> list[RunRow]:
        """All runs, the one touched last first."""
        with spoken_errors(self._path):
            rows = self._db.execute(
                """SELECT run_id, name, folder, created_at, updated_at, status FROM runs
                    ORDER BY updated_at DESC, rowid DESC"""
            ).fetchall()
        return [
            RunRow(
                run_id=run_id,
                name=name,
                folder=folder,
                created_at=created_at,
                updated_at=updated_at,
                status=status,
                alive=self._locks.holder(run_id) is not None,
            )
            for run_id, name, folder, created_at, updated_at, status in rows
        ]

    async def save_snapshot(self, lease: Lease, seq: int, state: bytes) -> None:
        """Keep a disposable copy of the folded state up to `seq`; only the newest is kept."""
        with self._write(durable=False):
            self._last_seq(lease.run_id, lease)
            self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (lease.run_id, seq, state))

    async def load_snapshot(self, run_id: str) -> tuple[int, bytes] | None:
        """The newest snapshot of a run: (seq, state)."""
        with spoken_errors(self._path):
            row: tuple[int, bytes] | None = self._db.execute(
                "SELECT seq, state FROM snapshots WHERE run_id = ?", (_text(run_id),)
            ).fetchone()
        return row

    async def close(self) -> None:
        """Give up all leases and the file. Harmless when done twice."""
        while self._held:
            self._held.popitem()[1].close()
        self._files = ()
        self._db.close()

    def _keep_hold(self, *, writing: bool) -> None:
        """Notice that the files were deleted or replaced: an agent can do that, and SQLite does not mind."""
        if not self._files or same_files(self._files, now := file_ids(self._path)):
            return
        if writing or self._held:
            self._put_back()
        elif now[0] is not None and now[0] != self._files[0]:
            self._change_to(open_database(self._path))  # its driver has put it back

    def _put_back(self) -> None:
        """Go on with a new file that holds everything. StoreError, naming a copy, when there cannot be one."""
        try:
            with spoken_errors(self._path):
                spoilt = make_way(self._path, self._files)
                found = open_database(self._path)
                try:
                    with transaction(found):
                        merge(self._db, found, {lease.run_id for lease in self._held})
                        self._lock_again(found)
                except BaseException:
                    found.close()
                    raise
                if spoilt is not None:
                    spoilt.unlink(missing_ok=True)
        except RunBusy as taken:
            raise LeaseLost(f"{self._path} was deleted or replaced, and meanwhile {taken}") from taken
        except StoreError as refused:
            raise StoreError(
                f"{self._path} was deleted or replaced while runs were being recorded and cannot be put back, so "
                f"nothing more can be recorded: {refused}; {self._rescue()}"
            ) from refused
        self._change_to(found)
        self._warning = ContinuousWarning(
            message=f"{self._path} was deleted or replaced while this run was at work; all that was in it is back"
        )

    def _lock_again(self, found: sqlite3.Connection) -> None:
        """The lock files may have gone with the folder; without them a second driver would not be refused."""
        for lease in list(self._held):
            row = found.execute("SELECT name, folder, fence FROM runs WHERE run_id = ?", (lease.run_id,)).fetchone()
            if row is not None and row[2] == lease.token:
                self._held[lease].close()
                self._held[lease] = self._locks.take(lease.run_id, name=row[0], folder=row[1], now=self._clock.now())

    def _change_to(self, found: sqlite3.Connection) -> None:
        self._db.close()
        self._db, self._files, self._durable = found, file_ids(self._path), None
        for follower in self._followers:
            follower.set()

    def _rescue(self) -> str:
        try:
            self._rescued = self._rescued or copy_elsewhere(self._db)
        except (sqlite3.Error, OSError) as trouble:
            return f"what was in it is lost ({trouble})"
        return f"a copy of what was in it is {self._rescued}"

    @contextmanager
    def _write(self, *, durable: bool) -> Iterator[None]:
        with spoken_errors(self._path):
            if self._durable is not durable:
                # FULL waits for the disk. NORMAL may lose the newest appends when the power fails, never
                # order or integrity, and the next FULL commit makes everything before it durable too.
                self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            with transaction(self._db):
                yield

    def _last_seq(self, run_id: str, lease: Lease | None) -> int:
        """The newest number of a run, for a writer who may write."""
        row: tuple[int, int] | None = self._db.execute(
            "SELECT last_seq, fence FROM runs WHERE run_id = ?", (run_id,)
        ).fetchone()
        if row is None:
            raise RunNotFound(f"there is no run {run_id} in {self._path}: check the id and the store")
        last, fence = row
        if lease is not None and (lease.run_id, lease.token) != (run_id, fence):
            raise LeaseLost(f"another driver took over run {run_id} (lease {lease.token}, now {fence})")
        return last


def _text(text: str) -> str:
    """Text from outside as SQLite can hold it: arguments may carry lone surrogates."""
    return text.encode("utf-8", "replace").decode()
