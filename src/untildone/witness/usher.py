"""The user's own commands around iterations, and the files that go into the prompt."""

import codecs
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from untildone.witness.command import run_command


class FolderUsher:
    """ports.Usher for one folder."""

    def __init__(self, cwd: Path | str, *, behind: Sequence[str] = ()) -> None:
        """`behind` is the program that ends a command should we die."""
        self._folder = Path(cwd).resolve()
        self._behind = behind

    async def call(self, command: str, facts: bytes, *, timeout: float) -> tuple[int | None, str]:
        """Run a shell command in the folder with `facts` on stdin."""
        result = await run_command(command, cwd=self._folder, timeout=timeout, stdin=facts, behind=self._behind)
        return result.exit_code, result.output_tail

    def read_text(self, path: str, *, cap: int) -> tuple[str, int] | None:
        """The first `cap` bytes as text and the full size; None when there is no such file to be read."""
        place = self._allowed(path)
        if place is None:
            return None
        try:
            # Not blocking: the agent could have put a named pipe where a file was.
            handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                return None
            data = os.read(handle, cap)
        finally:
            os.close(handle)
        return _as_text(data, whole=len(data) == found.st_size), found.st_size

    def _allowed(self, path: str) -> Path | None:
        """Where a path leads, unless it leaves the folder.

        The agent can replace any file of the folder by a link to a secret of the user's, and what is read here is
        sent to the model. Only an absolute path to somewhere else, which only the user can have given, may do so.
        """
        place = Path(os.path.normpath(self._folder / path))
        if Path(path).is_absolute() and not place.is_relative_to(self._folder):
            return place.resolve()
        try:
            real = place.resolve()
        except (OSError, RuntimeError):  # a loop of links
            return None
        return real if real.is_relative_to(self._folder) else None


def _as_text(data: bytes, *, whole: bool) -> str:
    # A character cut in two at the cap is left out; anything else that is not UTF-8 is shown as replaced.
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=whole)
    return text.replace("\x00", "\ufffd")
