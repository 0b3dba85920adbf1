"""The database file: opening it, its tables and their migrations, and its troubles in plain words."""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path

from untildone.errors import StoreError, StoreSpoilt
from untildone.store.lease import LOCKS_FOLDER, Locks
from untildone.store.seal import Seal, key_of, make_key, seal_all

APPLICATION_ID = 0x756E7464  # "untd": tells our file from any other SQLite database
BUSY_SECONDS = 10.0
KEY_SECONDS = 1.0
SWITCH_PAUSE = 0.01
SIDE_FILES = ("-wal", "-shm")
"""What SQLite keeps beside a database that is open."""

# Numbered from 1; `user_version` says how many a file has had. Never edit one that was released: add another.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE runs (
            run_id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            folder TEXT NOT NULL,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            status TEXT NOT NULL,
            fence INTEGER NOT NULL,
            last_seq INTEGER NOT NULL DEFAULT 0
        )""",
        # A rowid table: payloads run to kilobytes, and WITHOUT ROWID made the file three times as large.
        """CREATE TABLE events (
            run_id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            at REAL NOT NULL,
            kind TEXT NOT NULL,
            type TEXT NOT NULL,
            version INTEGER NOT NULL,
            data BLOB NOT NULL,
            PRIMARY KEY (run_id, seq)
        )""",
        # Only the few events that decide: reading them costs the same however many others there are.
        "CREATE INDEX events_control ON events (run_id, seq) WHERE kind = 'control'",
        """CREATE TABLE snapshots (
            run_id TEXT PRIMARY KEY,
            seq INTEGER NOT NULL,
            state BLOB NOT NULL
        )""",
    ),
    # How far the trace of a run is gone, and how much of it is left: see `trim`.
    (
        """CREATE TABLE trims (
            run_id TEXT PRIMARY KEY,
            gone INTEGER NOT NULL,
            counted INTEGER NOT NULL,
            bytes INTEGER NOT NULL
        )""",
    ),
    (
        # Of control events only. `prev`: the number of the control event before this one.
        "ALTER TABLE events ADD COLUMN prev INTEGER",
        "ALTER TABLE events ADD COLUMN seal BLOB",
        "ALTER TABLE snapshots ADD COLUMN seal BLOB",
    ),
)
_SEALED_SINCE = 3
"""The migration after which every row that decides is sealed."""

_ADVICE = {
    "SQLITE_FULL": "the disk is full: free some space and try again; what was recorded before is safe",
    "SQLITE_IOERR": "the disk refused: check its space and health and try again; what was recorded before is safe",
    "SQLITE_BUSY": f"another process kept it locked for {BUSY_SECONDS:.0f} s: end that process or try again",
    "SQLITE_NOTADB": "it is not a database: move that file away or name another store; it was not touched",
    "SQLITE_CORRUPT": "it is damaged: move it away, or repair it with `sqlite3 FILE .recover`; it was not touched",
    "SQLITE_ERROR": "its tables were changed: move that file away or name another store; it was not touched",
    "SQLITE_READONLY": "it cannot be written: check who owns the file and its folder",
    "SQLITE_PERM": "it cannot be written: check who owns the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened: check who owns the file and its folder",
}


@contextmanager
def spoken_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system complain about into one line that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", None) or ""
        # Extended names such as SQLITE_IOERR_WRITE begin with the plain one.
        advice = _ADVICE.get("_".join(name.split("_")[:2]), "this should not happen: please report it")
        # Our own statements fit our own tables: whatever else SQLite calls an error means that these are not ours.
        spoilt = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CONSTRAINT")) or name == "SQLITE_ERROR"
        raise (StoreSpoilt if spoilt else StoreError)(f"the store {path} failed ({error}): {advice}") from error
    except OSError as error:
        raise StoreError(
            f"the store {path} cannot be used ({error.strerror or error}): name a folder that you may write to"
        ) from error


def open_database(path: Path) -> sqlite3.Connection:
    """Open the store's file, made and migrated as needed. StoreError says what is in the way."""
    with spoken_errors(path):
        _make_file(path)
        had_key = _has_key(path.parent)
        connection = connect(path)
    try:
        with spoken_errors(path):
            refuse_strangers(connection, path)
            _use_write_ahead_log(connection)
            migrate(connection, path)
            if not had_key:
                _seal_anew(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the file as it lies there."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    # Text that is none is somebody else's: it must be readable all the same, to be refused.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def _has_key(folder: Path) -> bool:
    """Whether the store has its key. A living driver puts back one that was deleted: that is waited for."""
    deadline = time.monotonic() + KEY_SECONDS
    while key_of(folder) is None:
        if time.monotonic() > deadline or not Locks(folder / LOCKS_FOLDER).is_any_held():
            return False
        time.sleep(SWITCH_PAUSE)
    return True


def _seal_anew(connection: sqlite3.Connection, path: Path) -> None:
    """Without its key a store cannot be told from a forged one: what is there is taken as it is."""
    with transaction(connection):
        seal_all(connection, Seal(make_key(path.parent)))


def is_ours(connection: sqlite3.Connection) -> bool:
    """Whether everything is declared as we did: no stranger may add a trigger or take away an index."""
    return _declared(connection) == _our_tables()


@cache
def _our_tables() -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as model:
        for statements in MIGRATIONS:
            for statement in statements:
                model.execute(statement)
        return _declared(model)


def _declared(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    # What SQLite makes for itself (keys, statistics) is left out: it decides nothing.
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY 1, 2"
    ).fetchall()


def mark_as_ours(connection: sqlite3.Connection) -> bool:
    """Put back the marks by which a store is known, if somebody changed them; whether that was so."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if (application, _version(connection)) == (APPLICATION_ID, len(MIGRATIONS)):
        return False
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    return True


def _make_file(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_orphans(path)
    # Agent output may hold secrets: nobody else reads it. SQLite gives its side files the same mode.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _remove_orphans(path: Path) -> None:
    """Side files without their database: someone deleted only that, and perhaps its driver has them open still.

    A new database would take them for its own and spoil both.
    """
    # Looked for in this order: whoever makes a store at this moment makes the database first.
    sides = [side for end in SIDE_FILES if (side := Path(f"{path}{end}")).exists()]
    if sides and not path.exists():
        for side in sides:
            side.unlink(missing_ok=True)


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Readers never wait for writers this way. The file remembers it, so the switch is made once."""
    deadline = time.monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            # Two who make a store at the same moment: SQLite refuses this one step without waiting.
            if time.monotonic() > deadline:
                raise
            time.sleep(SWITCH_PAUSE)


def refuse_strangers(connection: sqlite3.Connection, path: Path) -> None:
    """Leave a file alone that another program wrote, or a newer version of this one."""
    # In this order: another process may be making tables and id at this moment, in one commit.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if tables and application != APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program: name another store; it was not touched")
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer untildone (store version {version}, this one knows {len(MIGRATIONS)}): "
            "upgrade untildone or name another store"
        )


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring the tables up to date, all or nothing."""
    if _version(connection) == len(migrations):
        return
    with spoken_errors(path), transaction(connection):
        # Asked again: another process may have been faster.
        for number in range(_version(connection) + 1, len(migrations) + 1):
            for statement in migrations[number - 1]:
                connection.execute(statement)
            if number == _SEALED_SINCE:
                seal_all(connection, Seal(make_key(path.parent)))
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One write, all or nothing. The write lock is taken at once, so that what is read inside stays true."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself after some errors.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
