"""Whether what checks use from outside of the commit is what it was before the agent began to work.

Shared folders and active environments are the agent's to write to, and the programs that judge its work lie there.
Sizes and times tell a change, and of programs the content: times can be set. Caches change by themselves and are left
out.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from untildone.core.findings import LentChange

_CACHES = frozenset({"__pycache__", ".cache", ".vite", ".pytest_cache"})
_PROGRAMS = frozenset({"bin", ".bin", "Scripts"})
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_STORES = ("registry/src", "git/checkouts", "pkg/mod")
"""Where cargo and Go keep the sources of packages, below a folder that is on the PATH or named by a variable."""
_PACKAGE = re.compile(r"@|-\d+\.\d")
"""In the name of a package's folder there: `serde-1.0.2`, `errors@v0.9.1`."""
_MOST_FILES = 300_000
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_BEGINNERS = frozenset({"!", "{", "if", "then", "else", "elif", "while", "until", "do", "time", "exec", "env"})
_SEPARATING = frozenset(";&|()")
_MOST_BYTES = 1 << 20


class Lent:
    """What was lent, remembered in a file for as long as the run lasts."""

    def __init__(self, tree: Path, folders: Sequence[str], commands: Sequence[str], memory: Path) -> None:
        """`commands`: the programs that they name are looked at, too. `memory` is written at the first look."""
        self._tree = tree
        self._folders = folders
        self._commands = commands
        self._memory = memory

    def remember(self) -> None:
        """Note what is there, unless that was done before."""
        if (self._folders or self._commands) and not self._memory.is_file():
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            self._memory.write_text(json.dumps(self._look()))

    def changed(self) -> list[LentChange]:
        """What is not as it was, as a path below the tree; empty if it is not known how it was."""
        try:
            before: dict[str, str] = json.loads(self._memory.read_text())
        except (OSError, ValueError):
            return []
        now = self._look()
        differing = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        return [LentChange(name, was_there=name in before) for name in differing]

    def _look(self) -> dict[str, str]:
        """For all that lies directly in a folder, is a program or a package of it, what its state comes to."""
        named = [entry for command in self._commands for entry in named_programs(command, os.environ).items()]
        sums = {name: _program_state(path) for name, path in named}
        seen = 0
        for folder in self._folders:
            for at, below, names in os.walk(self._tree / folder):
                place = Path(at)
                # What the go command keeps beside the sources of packages changes whenever it runs.
                left_out = _CACHES | {"cache"} if at.endswith("pkg/mod") else _CACHES
                below[:] = sorted(name for name in below if name not in left_out)
                is_programs = place.name in _PROGRAMS
                # A package may be a link to its folder: that is looked at as a link, and not gone into.
                for name in sorted([*names, *(name for name in below if (place / name).is_symlink())]):
                    seen += 1
                    if seen > _MOST_FILES:
                        return sums
                    key = self._key(folder, place / name, alone=is_programs)
                    state = _state(place / name, content=is_programs)
                    sums[key] = hashlib.sha256(f"{sums.get(key, '')}\0{place / name}\0{state}".encode()).hexdigest()
        return sums

    def _key(self, folder: str, file: Path, *, alone: bool) -> str:
        below = file.relative_to(self._tree / folder)
        if alone:
            return str(Path(folder) / below)
        installed = next((at for at, name in enumerate(below.parts[:-1]) if name in _PACKAGES), -1)
        if folder.endswith(_STORES):
            installed = next((at for at, name in enumerate(below.parts) if _PACKAGE.search(name)), 1) - 1
        return str(Path(folder, *below.parts[: installed + 2]))


def watched(env: Mapping[str, str], tree: Path) -> list[str]:
    """Folders that checks use because they are on the PATH: virtual environments, and what lies in the tree."""
    found = [Path(entry).parent for entry in env.get("PATH", "").split(os.pathsep) if entry.startswith("/")]
    # Not pathlib: it raises for a folder of the PATH that this user may not look into.
    environments = {folder for folder in found if os.path.isfile(folder / "pyvenv.cfg")}  # noqa: PTH113
    inside = [
        str(folder) for folder in found if folder in environments or (folder != tree and folder.is_relative_to(tree))
    ]
    active = env.get("VIRTUAL_ENV", "")
    roots = [*found, *(Path(env[name]) for name in ("CARGO_HOME", "GOPATH") if env.get(name, "").startswith("/"))]
    stores = [str(root / store) for root in roots for store in _STORES if os.path.isdir(root / store)]  # noqa: PTH112
    modules = env.get("GOMODCACHE", "")
    stores += [modules] if modules.endswith(_STORES) else []
    return list(dict.fromkeys([*([active] if active.startswith("/") else []), *inside, *stores]))


def named_programs(command: str, env: Mapping[str, str]) -> dict[str, str | None]:
    """The programs that a shell command names, and where they are; None: not there. Not what lies in the project."""
    lexer = shlex.shlex(command.replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: dict[str, str | None] = {}
    begins = True
    try:
        for word in lexer:
            if set(word) <= _SEPARATING or word in _BEGINNERS:
                begins = True
            elif begins and not _ASSIGNED.match(word):
                begins = False
                path = str(Path(word).expanduser()) if word.startswith("~/") else word
                if "/" not in path or path.startswith("/"):
                    found[word] = shutil.which(path, path=env.get("PATH"))
    except ValueError:  # quotes that do not end: the shell will say so
        pass
    return found


def _program_state(path: str | None) -> str:
    if path is None:
        return "gone"
    real = os.path.realpath(path)
    return f"{real} {_state(Path(real), content=True)}"


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
