"""A store whose files are taken away or spoilt while it is open: noticing it, and putting everything back.

SQLite goes on writing into a deleted file as if nothing had happened, and all of it is gone when the process ends.
As long as the connection is open its content can still be read, so nothing needs to be lost.
"""

import os
import sqlite3
import tempfile
from collections.abc import Collection
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from untildone.core.dataclass import dataclass
from untildone.errors import StoreError
from untildone.store.schema import SIDE_FILES, open_database
from untildone.store.seal import Seal

FileId = tuple[int, int]


_RUNS = "SELECT run_id, name, folder, created_at, updated_at, status, fence, last_seq FROM runs"
_PUT_RUN = """INSERT OR REPLACE INTO runs (run_id, name, folder, created_at, updated_at, status, fence, last_seq)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_EVENTS = "SELECT run_id, seq, at, kind, type, version, data, prev, seal FROM events WHERE run_id = ? ORDER BY seq"
_EVENT = "SELECT at, kind, type, version, data FROM events WHERE run_id = ? AND seq = ?"
_PUT_EVENT = """INSERT OR IGNORE INTO events (run_id, seq, at, kind, type, version, data, prev, seal)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_PUT_SNAPSHOT = "INSERT OR REPLACE INTO snapshots (run_id, seq, state, seal) VALUES (?, ?, ?, ?)"


def file_ids(path: Path) -> tuple[FileId | None, ...]:
    """Which files lie at the store's path: the database and its side files. SQLite never changes them while open."""
    return tuple(_file_id(Path(f"{path}{end}")) for end in ("", *SIDE_FILES))


def same_files(known: tuple[FileId | None, ...], now: tuple[FileId | None, ...]) -> bool:
    """Whether what was there is there still. A side file that was not yet there may have come."""
    return all(old is None or old == new for old, new in zip(known, now, strict=True))


def make_way(path: Path, known: Collection[FileId | None]) -> Path | None:
    """Take away what is left of the lost database, so that a new one does not take it for its own.

    Returns where the database file itself was moved to, if that was still there and only its side files were gone.
    """
    spoilt = _file_id(path) in known
    aside = path.with_name(f"{path.name}.spoilt")
    if spoilt:
        path.replace(aside)
    for end in SIDE_FILES:
        side = Path(f"{path}{end}")
        if spoilt or _file_id(side) in known:
            side.unlink(missing_ok=True)
    return aside if spoilt else None


def move_aside(path: Path) -> Path:
    """Keep whatever lies in the store's place under another name, with its side files; returns the new one."""
    aside = next(place for n in count(1) if not (place := path.with_name(f"{path.name}.spoilt-{n}")).exists())
    path.replace(aside)
    for end in SIDE_FILES:
        side = Path(f"{path}{end}")
        if side.exists():
            side.replace(f"{aside}{end}")
    return aside


def open_in_place_of_anything(path: Path) -> sqlite3.Connection:
    """Open the store; what is none and lies in its place is moved aside. StoreError when even that cannot be done."""
    try:
        return open_database(path)
    except StoreError:
        if not path.exists():
            raise
        try:
            move_aside(path)
        except OSError:
            pass
        else:
            return open_database(path)
        raise


@dataclass(frozen=True, slots=True)
class Merging:
    """Brings what only `lost` knows into `found`. Others may have made the new file and may be writing into it.

    Of a run that we drive our events are the true ones; what others added to it meanwhile is numbered after them.
    A run that another driver took up in the new file is theirs. Seals that are true under the key of the lost store
    are made anew with the key of the found one; no other row gets one.
    """

    lost: sqlite3.Connection
    found: sqlite3.Connection
    lost_seal: Seal
    found_seal: Seal

    def merge(self, driven: Collection[str]) -> None:
        """All runs, or an error."""
        for run in self.lost.execute(_RUNS).fetchall():
            if self._is_wanted(run, driven):
                self._merge_run(run)

    def salvage(self, driven: Collection[str]) -> None:
        """Every run that can still be read; `lost` is damaged."""
        try:
            runs = self.lost.execute(_RUNS).fetchall()
        except sqlite3.Error:
            return
        for run in runs:
            self.found.execute("SAVEPOINT run")
            try:
                if self._is_wanted(run, driven):
                    self._merge_run(run)
            except (sqlite3.Error, TypeError):
                self.found.execute("ROLLBACK TO run")
            self.found.execute("RELEASE run")

    def _is_wanted(self, run: tuple[Any, ...], driven: Collection[str]) -> bool:
        run_id, *_, fence, last = run
        there = self.found.execute("SELECT fence, last_seq FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return there is None or (fence >= there[0] and (run_id in driven or last > there[1]))

    def _merge_run(self, run: tuple[Any, ...]) -> None:
        run_id, *facts, last = run
        news = [row for row in self.found.execute(_EVENTS, (run_id,)).fetchall() if self._is_news(row)]
        old = self.lost.execute(_EVENTS, (run_id,)).fetchall()
        self.found.executemany("DELETE FROM events WHERE run_id = ? AND seq = ?", [row[:2] for row in news])
        self.found.executemany(_PUT_EVENT, [self._sealed_again(row) for row in old])
        control = max((row[1] for row in old if row[3] == "control"), default=0)
        for seq, row in enumerate(news, last + 1):
            self.found.execute(_PUT_EVENT, self._renumbered(row, seq, control))
            control = seq if row[3] == "control" else control
        self.found.execute(_PUT_RUN, (run_id, *facts, last + len(news)))
        saved = "SELECT seq, state, seal FROM snapshots WHERE run_id = ?"
        for seq, state, seal in self.lost.execute(saved, (run_id,)):
            if self.lost_seal.is_snapshot(run_id, seq, state, seal):
                put = (run_id, seq, state, self.found_seal.of_snapshot(run_id, seq, state))
                self.found.execute(_PUT_SNAPSHOT, put)

    def _is_news(self, row: tuple[Any, ...]) -> bool:
        there: tuple[Any, ...] | None = self.lost.execute(_EVENT, row[:2]).fetchone()
        return there != row[2:7]

    def _sealed_again(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        if row[3] != "control" or not self.lost_seal.is_event(row[0], row[1:]):
            return row
        return (*row[:8], self.found_seal.of_event(row[0], row[1:7], row[7]))

    def _renumbered(self, row: tuple[Any, ...], seq: int, prev: int) -> tuple[Any, ...]:
        run_id, _, *content = row[:7]
        if row[3] != "control":
            return (run_id, seq, *content, None, None)
        true = self.found_seal.is_event(run_id, row[1:])
        return (run_id, seq, *content, prev, self.found_seal.of_event(run_id, (seq, *content), prev) if true else None)


def put_snapshot(db: sqlite3.Connection, seal: Seal, run_id: str, seq: int, state: bytes) -> None:
    """Save a state, sealed."""
    db.execute(_PUT_SNAPSHOT, (run_id, seq, state, seal.of_snapshot(run_id, seq, state)))


def copy_elsewhere(lost: sqlite3.Connection) -> Path:
    """The last resort: a copy of everything in a private folder of its own; returns the file."""
    place = Path(tempfile.mkdtemp(prefix="untildone-rescued-")) / "untildone.db"
    with closing(sqlite3.connect(place)) as copy:
        lost.backup(copy)
    return place


def _file_id(path: Path) -> FileId | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - asked twenty times a second by every follower
    except OSError:
        return None
    return found.st_dev, found.st_ino
