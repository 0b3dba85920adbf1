"""Who drives a run, on one machine: file locks that live and die with the process that holds them.

A lock is held by an open file, so `kill -9` frees it at once, and neither sleep, SIGSTOP nor a jump of the
clock can break it. A lock file without a holder is stale and simply taken. The text inside is only for messages.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from shlex import quote as shell_quote
from typing import Any
from urllib.parse import quote

from untildone.core.dataclass import dataclass
from untildone.errors import RunBusy, StoreError

# Someone asking "is it alive?" holds a lock for microseconds: only what stays locked this long is truly held.
PATIENCE_TRIES = 10
PATIENCE_PAUSE = 0.01

LOCKS_FOLDER = "locks"
HOLDER_TEXT_CAP = 1 << 16
START_TIME_FIELD = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """What a driver wrote into its locks about itself."""

    pid: int = 0
    started: int | None = None
    """The process's start time in clock ticks since boot, where the system tells: with the pid, its identity."""
    host: str = ""
    run_id: str = ""
    name: str = ""
    folder: str = ""
    store: str = ""
    since: float = 0.0

    def busy(self, asker: "Holder") -> RunBusy:
        """The refusal this holder is the reason for, told to another process that wants the run or the folder."""
        if not self.run_id:
            return RunBusy("another process drives this run or works in this folder: wait for it or stop it")
        which = self.run_id + (f" --store {shell_quote(self.store)}" if self.store not in {"", asker.store} else "")
        since = datetime.fromtimestamp(self.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        beside = ', or start yours beside it with `untildone run "GOAL" --worktree`'
        return RunBusy(
            f"run {self.name} ({self.run_id}) is running in {self.folder} (process {self.pid}, since {since}): "
            f'see it with `untildone status {which}`, tell it something with `untildone message {which} "TEXT"`, '
            f"stop it with `untildone stop {which}`{'' if asker.run_id == self.run_id else beside}"
        )


def real_folder(folder: str) -> str:
    """The one true path of a folder, as text any store can hold."""
    return os.fsencode(os.path.realpath(folder)).decode("utf-8", "replace")


def overlaps(one: str, other: str) -> bool:
    """Whether two real paths are the same folder or one lies inside the other."""
    ours, theirs = Path(one), Path(other)
    return ours.is_relative_to(theirs) or theirs.is_relative_to(ours)


def process_started(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None where there is no /proc or no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The command's name may hold spaces and brackets: count from behind it.
        return int(stat.rpartition(")")[2].split()[START_TIME_FIELD - 3])
    except (OSError, ValueError, IndexError):
        return None


class Held:
    """Locks that are held, until closed or until the process ends."""

    def __init__(self) -> None:
        self._files: list[tuple[Path, int]] = []

    def add(self, path: Path, fd: int) -> None:
        """Keep an open lock file."""
        self._files.append((path, fd))

    def are_at_their_paths(self) -> bool:
        """Whether whoever asks for these locks meets ours: not when somebody deleted or replaced the files."""
        return all(_is_at(path, fd) for path, fd in self._files)

    def close(self) -> None:
        """Free them. Harmless when done twice."""
        while self._files:
            os.close(self._files.pop()[1])


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))  # noqa: PTH116 - asked twenty times a second
    except OSError:
        return False


class Locks:
    """The lock files of one store, and those of folders, which all stores of a user share."""

    def __init__(self, directory: Path, shared: Path | None = None) -> None:
        self.directory = directory
        self._shared = shared or directory

    def take(self, run_id: str, *, name: str, folder: str, now: float) -> Held:
        """Lock a run and its folder; closing the result frees both. RunBusy names whoever holds one already.

        Two of these must not go on at the same moment: the caller holds the store's write lock.
        """
        holder = Holder(
            pid=os.getpid(),
            started=process_started(os.getpid()),
            host=os.uname().nodename,
            run_id=run_id,
            name=name,
            folder=folder,
            store=str(self.directory.parent),
            since=float(now),
        )
        held = Held()
        try:
            with _spoken_errors(self.directory):
                self.directory.mkdir(mode=0o700, exist_ok=True)
                _take(self._run_lock(run_id), holder, held)
                ours = self._folder_lock(folder)
                _take(ours, holder, held)
                # Only now: whoever starts in another store at this moment sees ours, or we see theirs.
                self._refuse_overlap(holder, ours)
        except BaseException:
            held.close()
            raise
        return held

    def holder(self, run_id: str) -> Holder | None:
        """Who drives this run at this moment."""
        return _holder(self._run_lock(run_id))

    def is_any_held(self) -> bool:
        """Whether any run of this store is driven at this moment."""
        return any(_holder(path) is not None for path in self.directory.glob("*.lock"))

    def _refuse_overlap(self, asker: Holder, ours: Path) -> None:
        for path in sorted(ours.parent.glob("folder-*.lock")):
            holder = _holder(path) if path != ours else None
            if holder is not None and overlaps(holder.folder, asker.folder):
                raise holder.busy(asker)

    def _run_lock(self, run_id: str) -> Path:
        # Quoted: an id is text from outside and must stay a file of this folder.
        return self.directory / f"{quote(run_id, safe='')}.lock"

    def _folder_lock(self, folder: str) -> Path:
        return self._folders() / f"folder-{sha256(folder.encode()).hexdigest()[:16]}.lock"

    def _folders(self) -> Path:
        """Where locks of folders are; with the store's own, where the user's home takes none."""
        try:
            self._shared.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return self.directory
        return self._shared if os.access(self._shared, os.W_OK | os.X_OK) else self.directory


def _take(path: Path, holder: Holder, held: Held) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    held.add(path, fd)
    for tries_left in reversed(range(PATIENCE_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if not tries_left:
                raise _read_holder(fd).busy(holder) from None
            time.sleep(PATIENCE_PAUSE)
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(asdict(holder)).encode(), 0)


def _holder(path: Path) -> Holder | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Shared: two who ask at once must not take each other for the holder.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(fd)
    except OSError:
        return None  # a disk that knows no locks: nobody can hold one there
    finally:
        os.close(fd)
    return None


def _read_holder(fd: int) -> Holder:
    """What the holder wrote; blanks if it has not written yet, or someone spoilt the file."""
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        text = json.loads(os.pread(fd, HOLDER_TEXT_CAP, 0))
        if isinstance(text, dict):
            wanted = {field.name: type(field.default) for field in fields(Holder)}
            known = {key: value for key, value in text.items() if key in wanted and key != "started"}
            known = {key: value for key, value in known.items() if isinstance(value, wanted[key])}
    return Holder(**known)


@contextmanager
def _spoken_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot lock in {directory}: {error.strerror or error}; "
            "the store needs a folder of its own on a local disk that you may write to"
        ) from error
