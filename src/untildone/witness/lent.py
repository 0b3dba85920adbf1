"""Whether folders that are shared with fresh checkouts are what they were before the agent began to work.

They are the agent's to write to, and the programs that judge its work lie there. Sizes and times tell a change, and of
programs the content: times can be set. Caches change by themselves and are left out.
"""

import hashlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

_CACHES = frozenset({"__pycache__", ".cache", ".vite", ".pytest_cache"})
_PROGRAMS = frozenset({"bin", ".bin", "Scripts"})
_MOST_FILES = 300_000
_MOST_BYTES = 1 << 20


class Lent:
    """What was lent, remembered in a file for as long as the run lasts."""

    def __init__(self, tree: Path, folders: Sequence[str], memory: Path) -> None:
        """`memory` is written at the first look, before any work."""
        self._tree = tree
        self._folders = folders
        self._memory = memory

    def remember(self) -> None:
        """Note what is there, unless that was done before."""
        if self._folders and not self._memory.is_file():
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            self._memory.write_text(json.dumps(self._look()))

    def changed(self) -> list[str]:
        """What is not as it was, as a path below the tree; nothing if nobody noted how it was."""
        try:
            before: dict[str, str] = json.loads(self._memory.read_text())
        except (OSError, ValueError):
            return []
        now = self._look()
        return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))

    def _look(self) -> dict[str, str]:
        """For all that lies directly in a folder, or is a program of it, what its state comes to."""
        sums: dict[str, str] = {}
        seen = 0
        for folder in self._folders:
            for at, below, names in os.walk(self._tree / folder):
                below[:] = sorted(name for name in below if name not in _CACHES)
                place = Path(at)
                is_programs = place.name in _PROGRAMS
                for name in sorted(names):
                    seen += 1
                    if seen > _MOST_FILES:
                        return sums
                    key = self._key(folder, place / name, alone=is_programs)
                    state = _state(place / name, content=is_programs)
                    sums[key] = hashlib.sha256(f"{sums.get(key, '')}\0{place / name}\0{state}".encode()).hexdigest()
        return sums

    def _key(self, folder: str, file: Path, *, alone: bool) -> str:
        below = file.relative_to(self._tree / folder)
        return str(Path(folder) / (below if alone else below.parts[0]))


def _state(file: Path, *, content: bool) -> str:
    try:
        found = file.lstat()
        if stat.S_ISLNK(found.st_mode):
            return f"link {file.readlink()}"
        if content and stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_BYTES:
            return f"{found.st_mode} {hashlib.sha256(file.read_bytes()).hexdigest()}"
    except OSError:
        return "gone"
    return f"{found.st_mode} {found.st_size} {found.st_mtime_ns}"
