"""What the driver of a run remembers about its own record, so that it notices what others do to it."""

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from untildone.core.codec import decode
from untildone.core.dataclass import dataclass
from untildone.core.events import StoreTampered
from untildone.errors import StoreSpoilt
from untildone.ports import Lease
from untildone.store.lease import Held
from untildone.store.schema import is_ours, mark_as_ours
from untildone.store.seal import Seal, check

# The index is named because the planner may prefer the primary key, which would walk over every trace event.
READ_CONTROL = """SELECT seq, at, kind, type, version, data, prev, seal FROM events INDEXED BY events_control
    WHERE run_id = ? AND seq > ? AND kind = 'control' ORDER BY seq LIMIT ?"""
_LAST_CONTROL = """SELECT seq, at, kind, type, version, data, prev, seal FROM events INDEXED BY events_control
    WHERE run_id = ? AND kind = 'control' ORDER BY seq DESC"""
_TAMPERED = """SELECT seq, at, kind, type, version, data, prev, seal FROM events INDEXED BY events_control
    WHERE run_id = ? AND kind = 'control' AND type = ?"""
_PUT_RUN = """INSERT OR REPLACE INTO runs (run_id, name, folder, created_at, updated_at, status, fence, last_seq)
    VALUES (?, ?, ?, ?, ?, 'running', ?, ?)"""

NO_LIMIT = -1
PLAUSIBLE = 1 << 20
"""More trace than this never stands between two control events: a number beyond it is nobody's."""
FULL_AUDIT_PAUSE = 10.0
"""Seconds between two looks at the whole record; several drivers of one store write all the time."""
NAMED = 5
NAME_CAP = 80
LISTED = 100
"""How many numbers, how much of each name and how many in all are written down about one deed."""


@dataclass(slots=True, kw_only=True)
class Driven:
    """A run we drive."""

    lease: Lease
    name: str
    folder: str
    created_at: float
    locks: Held
    highest: int = 0
    """The newest number given."""
    control: int = 0
    """The number of the newest control event."""
    saved: int = 0
    """Up to where the saved state reaches."""
    findings: list[StoreTampered] = field(default_factory=list)
    """What has to be told with the next append."""
    seen: int | None = None
    """SQLite's count of other connections' commits when the record was last looked at."""
    _whole_due: bool = False
    _whole_at: float = 0.0
    _told: set[Any] | None = None

    def find(self, detail: str, records: Sequence[int] = ()) -> None:
        """Remember to tell something, once."""
        finding = StoreTampered(detail=detail, records=tuple(records)[:LISTED])
        if finding not in self.findings:
            self.findings.append(finding)

    def begin(self, db: sqlite3.Connection, seal: Seal) -> None:
        """Take up the record as it stands."""
        run_id = self.lease.run_id
        row = db.execute("SELECT seq, state, seal FROM snapshots WHERE run_id = ?", (run_id,)).fetchone()
        if row is not None and seal.is_snapshot(run_id, *row):
            self.saved = row[0]
        elif row is not None:
            self.find("the saved state was changed: it is not used")
        self.seen = _foreign_commits(db)
        self._look(db, seal, self.saved)

    def audit(self, db: sqlite3.Connection, seal: Seal) -> None:
        """Look at the record again if somebody else wrote anything. StoreSpoilt when the tables are not ours."""
        commits = _foreign_commits(db)
        now = time.monotonic()
        if commits != self.seen:
            self.seen, self._whole_due = commits, True
            self._check_tables(db)
            self._check_saved(db, seal)
            self._look(db, seal, self.saved)
        if self._whole_due and now >= self._whole_at:
            self._whole_due, self._whole_at = False, now + FULL_AUDIT_PAUSE
            self._look(db, seal, 0)

    def is_seen_by(self, newcomer: sqlite3.Connection, db: sqlite3.Connection) -> bool:
        """Whether somebody who opens the file now finds what we find: we may be reading from memory alone."""
        wanted = (self.lease.run_id, self.saved, NO_LIMIT)
        ours = db.execute(READ_CONTROL, wanted).fetchall()
        saved = "SELECT seq, state, seal FROM snapshots WHERE run_id = ?"
        # In this order: what comes in between is only seen by the newcomer.
        ours_saved = db.execute(saved, wanted[:1]).fetchall()
        theirs = newcomer.execute(READ_CONTROL, wanted).fetchall()
        return (
            is_ours(newcomer)
            and theirs[: len(ours)] == ours
            and newcomer.execute(saved, wanted[:1]).fetchall() == ours_saved
        )

    def leave(self) -> None:
        """The next audit is the last: what is still to be looked at is looked at then."""
        self._whole_at = 0.0

    def mend(self, db: sqlite3.Connection, row: tuple[Any, ...] | None, now: float) -> None:
        """Put back this run's line in the list: while we hold its lock nobody else has any business there."""
        ours = (self.lease.token, self.name, self.folder, self.created_at, "running")
        last_seq = row[0] if row is not None else None
        if row is not None and row[1:] == ours and isinstance(last_seq, int) and last_seq >= self.highest:
            return
        what = "deleted" if row is None else "changed"
        self.find(f"this run's line in the list of runs was {what}: it is back as it was")
        put = (self.lease.run_id, self.name, self.folder, self.created_at, now, self.lease.token, self.highest)
        db.execute(_PUT_RUN, put)

    def _check_tables(self, db: sqlite3.Connection) -> None:
        if not is_ours(db):
            raise StoreSpoilt("the tables of the store were changed while a run was at work")
        if mark_as_ours(db):
            self.find("the marks by which the store is known were changed: they are back as they were")

    def _check_saved(self, db: sqlite3.Connection, seal: Seal) -> None:
        run_id = self.lease.run_id
        row = db.execute("SELECT seq, state, seal FROM snapshots WHERE run_id = ?", (run_id,)).fetchone()
        unharmed = not self.saved if row is None else row[0] == self.saved and seal.is_snapshot(run_id, *row)
        if not unharmed:
            self.find("the saved state was changed or deleted: it is saved anew", (self.saved,))

    def _look(self, db: sqlite3.Connection, seal: Seal, after: int) -> None:
        run_id = self.lease.run_id
        found = check(seal, run_id, db.execute(READ_CONTROL, (run_id, after, NO_LIMIT)), after)
        newest = found.good[-1][0] if found.good else after
        missing = [*found.missing, *([self.control] if newest < self.control else [])]
        self.control = max(self.control, newest)
        if found.forged or missing:
            self._tell(db, seal, found.forged, missing)

    def _tell(self, db: sqlite3.Connection, seal: Seal, forged: list[tuple[int, str]], missing: list[int]) -> None:
        if self._told is None:
            self._told = _already_told(db, seal, self.lease.run_id)
        changed = {seq for seq, _ in forged}
        forged = [(seq, kind) for seq, kind in forged if seq not in self._told]
        gone = [seq for seq in missing if seq not in changed | self._told]
        if forged:
            named = ", ".join(f"{seq} ({kind})"[:NAME_CAP] for seq, kind in forged[:NAMED])
            more = f" and {len(forged) - NAMED} more" if len(forged) > NAMED else ""
            numbers = [seq for seq, _ in forged if isinstance(seq, int)]
            self.find(f"records that untildone did not write, or not so, are ignored: {named}{more}", numbers)
        if gone:
            named = ", ".join(map(str, gone[:NAMED]))
            self.find(f"records were deleted: {named} and perhaps others before; the state is not touched by it", gone)
        self._told.update(changed, gone)


def _foreign_commits(db: sqlite3.Connection) -> int:
    commits: int = db.execute("PRAGMA data_version").fetchone()[0]
    return commits


def _already_told(db: sqlite3.Connection, seal: Seal, run_id: str) -> set[Any]:
    told: set[Any] = set()
    for row in db.execute(_TAMPERED, (run_id, StoreTampered.TYPE)):
        event = decode(row[3], row[4], row[2], row[5]) if seal.is_event(run_id, row) else None
        if isinstance(event, StoreTampered):
            told.update(event.records)
    return told


def last_control(db: sqlite3.Connection, seal: Seal, run_id: str) -> int:
    """The number of the newest true control event; 0 when there is none."""
    for row in db.execute(_LAST_CONTROL, (run_id,)):
        if seal.is_event(run_id, row):
            seq: int = row[0]
            return seq
    return 0


def newest_number(db: sqlite3.Connection, run_id: str, control: int, noted: Any) -> int:
    """The newest number given, by the table and as `noted`; one far beyond the newest control event is a trap."""
    top = control + PLAUSIBLE
    (used,) = db.execute("SELECT max(seq) FROM events WHERE run_id = ? AND seq <= ?", (run_id, top)).fetchone()
    return max(control, *(number for number in (used, noted, 0) if isinstance(number, int) and number <= top))
