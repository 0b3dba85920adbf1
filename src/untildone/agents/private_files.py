"""Settings that may hold keys, handed to Claude Code as files: every user of the machine can read a command line."""

import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from untildone.agents.environment import RUN_MARKER, STORE_MARKER
from untildone.core.redaction import is_written_out
from untildone.errors import AgentError

FOLDER = "private"


class PrivateFiles:
    """The files of one agent, which only its user can read; one that a killed driver left is written anew."""

    def __init__(self, env: Mapping[str, str], agent: str, folder: Path | None = None) -> None:
        """`folder`: where an agent in a sandbox can read them."""
        store = env.get(STORE_MARKER)
        self._folder = folder or (Path(store, FOLDER) if store else Path(tempfile.gettempdir()))
        self._stem = f"untildone-{env.get(RUN_MARKER, os.getpid())}-{agent}"
        self._written: list[Path] = []

    def in_place_of(self, given: Iterable[str]) -> tuple[str, ...]:
        """The same settings, with the path of a file for each that is written out. AgentError on a full disk."""
        return tuple(self._kept(one) if is_written_out(one) else one for one in given)

    def remove(self) -> None:
        """Remove them: the process that reads them has ended."""
        while self._written:
            with suppress(OSError):
                self._written.pop().unlink()

    def _kept(self, text: str) -> str:
        path = self._folder / f"{self._stem}-{len(self._written)}.json"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            # Made anew and never followed: in a folder for everybody a link may wait under this name.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            self._written.append(path)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as trouble:
            raise AgentError(f"{path} cannot be written: {trouble.strerror}") from trouble
        return str(path)
