"""Seals: how a store tells its own rows from rows that somebody else wrote, and notices rows that are gone.

Every control row carries a keyed hash of itself and the number of the control row before it. The key lies beside the
store, readable by its user alone: whoever reads it can forge. The seal keeps out those who do not go that far.
"""

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from untildone.core.dataclass import dataclass
from untildone.errors import StoreError

KEY_FILE = "seal.key"
KEY_SIZE = 32
SEAL_SIZE = 16

Row = tuple[int, float, str, str, int, bytes, int, bytes]
"""seq, at, kind, type, version, data, prev, seal"""


class Seal:
    """Makes and checks seals with one key."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        # Copied for each seal: setting up a keyed hash takes longer than hashing.
        self._events = blake2b(key=key, digest_size=SEAL_SIZE, person=b"event")
        self._snapshots = blake2b(key=key, digest_size=SEAL_SIZE, person=b"snapshot")

    def of_event(self, run_id: str, row: Sequence[Any], prev: Any) -> bytes:
        """The seal of a control row: seq, at, kind, type, version, data."""
        seq, at, kind, type_name, version, data = row
        return _finished(self._events.copy(), (run_id, seq, prev, at, kind, type_name, version), data)

    def of_snapshot(self, run_id: str, seq: int, state: bytes) -> bytes:
        """The seal of a saved state."""
        return _finished(self._snapshots.copy(), (run_id, seq), state)

    def is_event(self, run_id: str, row: Sequence[Any]) -> bool:
        """Whether a control row, exactly as it stands in the table, was written by who has the key."""
        return isinstance(row[5], bytes) and self.of_event(run_id, row[:6], row[6]) == row[7]

    def is_snapshot(self, run_id: str, seq: Any, state: Any, seal: Any) -> bool:
        """Whether a saved state was written by who has the key."""
        return isinstance(state, bytes) and self.of_snapshot(run_id, seq, state) == seal


def _finished(seal: blake2b, head: tuple[Any, ...], body: bytes) -> bytes:
    # `repr` keeps the values of the head apart, its length keeps it and the body apart.
    front = repr(head).encode()
    seal.update(b"%d %b%b" % (len(front), front, body))
    return seal.digest()


@dataclass(frozen=True, slots=True)
class Checked:
    """What control rows turned out to be."""

    good: list[Row]
    forged: list[tuple[int, str]]
    """Numbers and types of rows without a true seal."""
    missing: list[int]
    """Numbers of rows that once stood before one of the good ones."""


def check(seal: Seal, run_id: str, rows: Iterable[Row], after: int) -> Checked:
    """Tell true control rows from others. `rows` are all with a number above `after`, in order."""
    found = Checked([], [], [])
    last = after
    for row in rows:
        if not seal.is_event(run_id, row):
            found.forged.append((row[0], row[3]))
            continue
        if row[6] > last:
            found.missing.append(row[6])
        last = row[0]
        found.good.append(row)
    return found


def seal_all(connection: sqlite3.Connection, seal: Seal) -> None:
    """Seal every control row and saved state as it stands: what was written before there were seals."""
    for (run_id,) in connection.execute("SELECT DISTINCT run_id FROM events WHERE kind = 'control'").fetchall():
        sealed = []
        prev = 0
        rows = (
            "SELECT seq, at, kind, type, version, data FROM events WHERE run_id = ? AND kind = 'control' ORDER BY seq"
        )
        for row in connection.execute(rows, (run_id,)):
            sealed.append((prev, seal.of_event(run_id, row, prev), run_id, row[0]))
            prev = row[0]
        connection.executemany("UPDATE events SET prev = ?, seal = ? WHERE run_id = ? AND seq = ?", sealed)
    copies = connection.execute("SELECT run_id, seq, state FROM snapshots").fetchall()
    connection.executemany(
        "UPDATE snapshots SET seal = ? WHERE run_id = ?",
        [(seal.of_snapshot(run_id, seq, state), run_id) for run_id, seq, state in copies],
    )


def key_of(folder: Path) -> bytes | None:
    """The key of the store in this folder; None when there is none yet."""
    try:
        key = (folder / KEY_FILE).read_bytes()
    except FileNotFoundError:
        return None
    if len(key) != KEY_SIZE:
        raise StoreError(
            f"{folder / KEY_FILE} is not the key of a store: put back the true one, or remove it, and what is in the "
            "store will be taken as it is"
        )
    return key


def make_key(folder: Path) -> bytes:
    """The key of the store in this folder, made if there is none; two who make one at once get the same."""
    while (key := key_of(folder)) is None:
        fresh = _fresh_file(folder, os.urandom(KEY_SIZE))
        try:
            with suppress(FileExistsError):
                os.link(fresh, folder / KEY_FILE)
        finally:
            fresh.unlink(missing_ok=True)
    return key


def put_back_key(folder: Path, key: bytes) -> None:
    """Make this the key again, whatever lies in its place."""
    _fresh_file(folder, key).replace(folder / KEY_FILE)


class KeyFile:
    """The key of a store, and whether it still lies where it belongs."""

    def __init__(self, folder: Path, ours: bytes | None = None) -> None:
        """Take the key that is there; if there is none, put `ours` there or make one."""
        self._folder = folder
        if ours is not None and key_of(folder) is None:
            put_back_key(folder, ours)
        self.seal = Seal(make_key(folder))
        self._mark = self._marks()

    def keep(self) -> bool:
        """Put our key back if it was taken away or changed; whether that was so."""
        if self._marks() == self._mark:
            return False
        changed = self._content() != self.seal.key
        if changed:
            put_back_key(self._folder, self.seal.key)
        self._mark = self._marks()
        return changed

    def look_again(self) -> None:
        """Take the key that is there now: a driver may have put back the true one."""
        if (marks := self._marks()) != self._mark and len(key := self._content()) == KEY_SIZE:
            self._mark, self.seal = marks, Seal(key)

    def _content(self) -> bytes:
        try:
            return (self._folder / KEY_FILE).read_bytes()
        except OSError:
            return b""

    def _marks(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._folder / KEY_FILE)  # noqa: PTH116 - asked twenty times a second
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _fresh_file(folder: Path, content: bytes) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{KEY_FILE}.", dir=folder)  # readable by its user alone
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return Path(name)
