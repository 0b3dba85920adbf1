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
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

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
        digests: dict[tuple[str, ...], Any] = {}
        for folder, below, is_program in islice(self._files(), _MOST_FILES):
            file = os.path.join(self._tree, folder, *below)  # noqa: PTH118 - there may be a hundred thousand of them
            digest = digests.setdefault(_key(folder, below, alone=is_program), hashlib.sha256())
            digest.update(os.fsencode(f"\0{file}\0{_state(file, content=is_program)}"))
        return sums | {str(Path(*key)): digest.hexdigest() for key, digest in digests.items()}

    def _files(self) -> Iterator[tuple[str, tuple[str, ...], bool]]:
        """Every file: in which lent folder, its path below that, and whether it is a program."""
        for folder in self._folders:
            root = self._tree / folder
            for at, below, names in os.walk(root):
                place = Path(at)
                # What the go command keeps beside the sources of packages changes whenever it runs.
                left_out = _CACHES | {"cache"} if at.endswith("pkg/mod") else _CACHES
                below[:] = sorted(name for name in below if name not in left_out)
                within = place.relative_to(root).parts
                # A package may be a link to its folder: that is looked at as a link, and not gone into.
                for name in sorted([*names, *(name for name in below if (place / name).is_symlink())]):
                    yield folder, (*within, name), place.name in _PROGRAMS


def _key(folder: str, below: tuple[str, ...], *, alone: bool) -> tuple[str, ...]:
    """The path of what a file is told by: the program, its package, or what lies directly in the folder."""
    if alone:
        return (folder, *below)
    installed = next((at for at, name in enumerate(below[:-1]) if name in _PACKAGES), -1)
    if folder.endswith(_STORES):
        installed = next((at for at, name in enumerate(below) if _PACKAGE.search(name)), 1) - 1
    return (folder, *below[: installed + 2])


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
    return f"{real} {_state(real, content=True)}"


def _state(file: str, *, content: bool) -> str:
    try:
        found = os.lstat(file)
        if stat.S_ISLNK(found.st_mode):
            return f"link {os.readlink(file)}"  # noqa: PTH115
        if content and stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_BYTES:
            return f"{found.st_mode} {hashlib.sha256(Path(file).read_bytes()).hexdigest()}"
    except OSError:
        return "gone"
    return f"{found.st_mode} {found.st_size} {found.st_mtime_ns}"
