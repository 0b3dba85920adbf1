"""The folder a rehearsal happens in. One that was killed leaves its own behind; the next one removes it."""

import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from untildone.errors import UsageError

PREFIX = "untildone-rehearsal-"
KEPT_PREFIX = "untildone-kept-"
"""What the user wants to keep has another name: nobody removes it."""


class Evidence:
    """A folder that outlives us, made only when there is something to keep."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def folder(self) -> Path:
        """The folder, which is there from now on."""
        self._folder = self._folder or Path(tempfile.mkdtemp(prefix=KEPT_PREFIX))
        return self._folder

    def drop(self) -> None:
        """Remove it after all."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """While inside, SIGTERM and a hangup are a Ctrl+C: what was started is ended and what was made removed."""
    # Whoever wants it to survive its terminal says so with nohup.
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]

    def end(number: int, frame: object) -> None:  # noqa: ARG001 - Python's signature
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)  # often both come: the second must not spoil the leaving
        signal.raise_signal(signal.SIGINT)

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            if signal.getsignal(number) is end:
                signal.signal(number, signal.SIG_DFL)


@contextmanager
def undisturbed() -> Iterator[None]:
    """While inside, a Ctrl+C changes nothing: it is short, and clears up."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def scratch_folder(*, keep: bool) -> Iterator[Path]:
    """A folder for one rehearsal, removed at its end unless it is to be kept."""
    try:
        _clear_abandoned(Path(tempfile.gettempdir()))
        folder = Path(tempfile.mkdtemp(prefix=KEPT_PREFIX if keep else PREFIX))
    except OSError as trouble:
        raise UsageError(
            f"there is no folder for temporary files ({trouble.strerror}): name one with TMPDIR"
        ) from trouble
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as long as we live nobody takes it for abandoned
        yield folder
    finally:
        with undisturbed():
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _clear_abandoned(temp: Path) -> None:
    for folder in temp.glob(f"{PREFIX}*"):
        with suppress(OSError):
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    # The user's own, and no link to something else: anybody may write into a folder for temporary files.
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # An empty one was made this very moment, and its maker is about to lock it.
        if os.fstat(lock).st_uid == os.geteuid() and any(folder.iterdir()):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
