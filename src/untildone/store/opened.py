"""A store that is open: its file, its key and its locks, kept or put back whatever others do to them."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from untildone.errors import LeaseLost, RunBusy, StoreError, StoreSpoilt
from untildone.ports import Clock, Lease
from untildone.store.driven import Driven
from untildone.store.lease import LOCKS_FOLDER, Locks
from untildone.store.restore import (
    FileId,
    Merging,
    copy_elsewhere,
    file_ids,
    make_way,
    move_aside,
    open_in_place_of_anything,
    put_snapshot,
    same_files,
)
from untildone.store.schema import connect, open_database, spoken_errors, transaction
from untildone.store.seal import KeyFile, Seal

LOOK_PAUSE = 1.0
"""Seconds between two looks at the file through other eyes."""


class OpenStore:
    """The part of the log that knows files."""

    def __init__(self, path: Path, clock: Clock, *, shared_locks: Path | None = None) -> None:
        self._path = path
        self._clock = clock
        self._db = open_database(path)
        with spoken_errors(path):
            self._key = KeyFile(path.parent)
        self._locks = Locks(path.parent / LOCKS_FOLDER, shared_locks)
        self._held: dict[Lease, Driven] = {}
        self._followers: set[asyncio.Event] = set()
        self._durable: bool | None = None
        self._files: tuple[FileId | None, ...] = file_ids(path)
        self._rescued: Path | None = None
        self._next_look = 0.0

    @property
    def _seal(self) -> Seal:
        return self._key.seal

    async def rebuild(self, lease: Lease, seq: int, state: bytes) -> None:
        """Go on in a new file that begins with this state, after StoreSpoilt."""
        driven = self._held.get(lease)
        if driven is None:
            raise LeaseLost(f"run {lease.run_id} is not driven any more (lease {lease.token})")
        with spoken_errors(self._path):
            ours = file_ids(self._path)[0] == self._files[0]
            # Another driver may have been faster.
            kept = f"what is left of it is {move_aside(self._path)}" if ours else "another file was put in its place"
            found = open_in_place_of_anything(self._path)
            try:
                with transaction(found):
                    runs = {lease.run_id for lease in self._held}
                    Merging(self._db, found, self._seal, self._seal).salvage(runs)
                    put_snapshot(found, self._seal, lease.run_id, seq, state)
            except BaseException:
                found.close()
                raise
        self._change_to(found)
        driven.saved = seq
        driven.find(f"{self._path} was spoilt: {kept}; this run goes on in a new one with all it knew")

    def _keep_hold(self, *, writing: bool) -> None:
        """Notice what an agent can do to the files, and SQLite does not mind: delete or replace them."""
        if not self._files:
            return
        if not same_files(self._files, now := file_ids(self._path)):
            if writing or self._held:
                self._put_back()
            elif now[0] is not None and now[0] != self._files[0]:
                self._change_to(open_database(self._path))  # its driver has put it back
        if self._held:
            with spoken_errors(self._path):
                self._keep_locks()
                if self._key.keep():
                    self._find("the key of the store was changed or deleted: it is back as it was")
            self._look_as_newcomer()

    def _look_as_newcomer(self) -> None:
        """Notice a file that was overwritten where it lies: SQLite goes on with what it has in memory."""
        if not self._held or not self._files or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_PAUSE
        with spoken_errors(self._path), closing(connect(self._path)) as newcomer:
            if not all(driven.is_seen_by(newcomer, self._db) for driven in self._held.values()):
                raise StoreSpoilt(f"the store {self._path} was overwritten while a run was at work")

    def _find(self, detail: str) -> None:
        for driven in self._held.values():
            driven.find(detail)

    def _keep_locks(self) -> None:
        """Without their files a second driver would not be refused."""
        if all(driven.locks.are_at_their_paths() for driven in self._held.values()):
            return
        with transaction(self._db):
            try:
                self._lock_again(self._db)
            except RunBusy as taken:
                raise LeaseLost(f"the locks of {self._path} were deleted, and meanwhile {taken}") from taken
        self._find("the lock files of this run were deleted or replaced: they are back")

    def _put_back(self) -> None:
        """Go on with a new file that holds everything. StoreError, naming a copy, when there cannot be one."""
        try:
            with spoken_errors(self._path):
                spoilt = make_way(self._path, self._files)
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                key = KeyFile(self._path.parent, self._seal.key)
                found = open_in_place_of_anything(self._path)
                try:
                    with transaction(found):
                        Merging(self._db, found, self._seal, key.seal).merge({lease.run_id for lease in self._held})
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
        self._key = key
        self._change_to(found)
        self._find(f"{self._path} was deleted or replaced while this run was at work; all that was in it is back")

    def _lock_again(self, found: sqlite3.Connection) -> None:
        """The lock files may have gone with the folder; without them a second driver would not be refused."""
        for lease, driven in list(self._held.items()):
            if driven.locks.are_at_their_paths():
                continue
            row = found.execute("SELECT fence FROM runs WHERE run_id = ?", (lease.run_id,)).fetchone()
            driven.locks.close()
            if row is not None and row[0] != lease.token:
                del self._held[lease]  # another driver came and went: the run is not ours any more
                continue
            driven.locks = self._locks.take(lease.run_id, name=driven.name, folder=driven.folder, now=self._clock.now())

    def _change_to(self, found: sqlite3.Connection) -> None:
        self._db.close()
        self._db, self._files, self._durable = found, file_ids(self._path), None
        for driven in self._held.values():
            driven.seen = None
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
