"""All that checks print, kept as files: the evidence behind a verdict."""

import os
import re
from contextlib import suppress
from itertools import count
from pathlib import Path

LOG_CAP = 4 << 20
"""Bytes kept of what one run of a check prints: the last ones."""
KEPT = 200
"""Logs of one run; the oldest go first."""

_NAME_CHARS = 60


class CheckLog:
    """One file for one check of one commit, however often it is run there."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @property
    def path(self) -> str:
        """Where it is; empty when it could not be written: a full disk must not change a verdict."""
        return "" if self._path is None else str(self._path)

    def add(self, command: str, output: str, exit_code: int | None, seconds: float) -> None:
        """Write down one run of the check."""
        if self._path is None:
            return
        ended = "did not end in time" if exit_code is None else f"exit {exit_code}"
        gap = "" if output.endswith("\n") or not output else "\n"
        try:
            with self._path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(f"$ {command}\n{output}{gap}[{ended}, {seconds:.1f} s]\n")
        except OSError:
            self._path = None


class LogFolder:
    """The logs of one run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, commit: str | None, check: str) -> CheckLog:
        """A new file named for a commit (None: the tree as it lies there) and a check."""
        stem = f"{commit[:12] if commit else 'tree'}-{_slug(check)}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._forget_oldest()
            for number in count(1):
                path = self._folder / (f"{stem}.log" if number == 1 else f"{stem}-{number}.log")
                with suppress(FileExistsError):
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
                    return CheckLog(path)
        except OSError:
            pass
        return CheckLog(None)

    def _forget_oldest(self) -> None:
        logs = list(self._folder.glob("*.log"))
        if len(logs) < KEPT:
            return
        logs.sort(key=lambda log: log.stat().st_mtime)
        for log in logs[: len(logs) - KEPT + 1]:
            log.unlink(missing_ok=True)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:_NAME_CHARS] or "check"
