"""What an agent in a sandbox can leave in its folder for git outside: pipes by names that git reads, and repositories.

A folder with HEAD, objects and refs is a repository to git, and its settings may name a program.
"""

import os
from contextlib import suppress
from pathlib import Path

from untildone.core.dataclass import dataclass

MOST_FOLDERS = 200_000
"""That are looked into."""
ASIDE = ".not-for-git"
"""What is added to a name, so that git does not know it any more."""

_READ = frozenset({".gitattributes", ".gitignore", ".gitmodules", ".mailmap"})
_REPOSITORY = frozenset({"HEAD", "objects", "refs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OddFiles:
    """What was found in a folder."""

    special: tuple[str, ...]
    """No plain files, in place of files that git reads: it would wait for ever."""
    repositories: tuple[str, ...]
    """Folders that are repositories by themselves."""


def find_odd(top: Path) -> OddFiles:
    """One look at all folders, those of git apart."""
    special: list[str] = []
    repositories: list[str] = []
    waiting, looked = [str(top)], 0
    while waiting and looked < MOST_FOLDERS:
        looked += 1
        folder, names = waiting.pop(), set[str]()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                names.add(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    waiting += [entry.path] if entry.name != ".git" else []
                elif entry.name in _READ and not entry.is_symlink() and not entry.is_file(follow_symlinks=False):
                    special.append(entry.path)
        if names >= _REPOSITORY:
            repositories.append(folder)
    return OddFiles(special=tuple(special), repositories=tuple(repositories))


def put_aside(place: str) -> None:
    """Give it a name that git does not know."""
    with suppress(OSError):
        os.replace(place, f"{place}{ASIDE}")  # noqa: PTH105 - a name as it was found
