"""What of a repository an agent in a sandbox may write, and what not: whatever makes git start a program later."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.git.plain_file import line
from untildone.git.room_entries import common_folder

_DEEPEST = 8
"""Submodules within submodules are looked for this deep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Folders and files of a repository, by what an agent may do to them."""

    writable: tuple[Path, ...]
    fixed: tuple[Path, ...]
    """In those, what is only read: hooks, settings, and where other working trees are."""


def reach(tree: Path) -> Reach:
    """What an agent at work in a tree needs of its repository. A folder in none is simply its own."""
    mark = tree / ".git"
    git_dir = _git_dir(mark)
    if git_dir is None:
        return Reach(writable=(tree,), fixed=())
    common = common_folder(git_dir)
    # Bound to itself, a folder can be neither moved away nor replaced.
    writable = dict.fromkeys((tree, common, git_dir) if mark.is_dir() or common != git_dir else (tree, git_dir))
    fixed = [*_fixed_in(common), *_fixed_in(git_dir), *([mark] if mark.is_file() else [])]
    fixed += [entry for entry in _listed(common / "worktrees") if entry != git_dir]
    fixed += [place for module in _modules(common / "modules", _DEEPEST) for place in _fixed_in(module)]
    return Reach(writable=tuple(writable), fixed=tuple(dict.fromkeys(fixed)))


def _git_dir(mark: Path) -> Path | None:
    if mark.is_dir():
        return mark
    with suppress(OSError, ValueError):
        return Path(os.path.normpath(mark.parent / line(mark).removeprefix("gitdir:").strip()))
    return None


def _fixed_in(git_dir: Path) -> list[Path]:
    """`hooks` even where there are none: nobody may put some there."""
    names = ("config", "config.worktree", "commondir", "gitdir")
    return [git_dir / "hooks", *(place for name in names if (place := git_dir / name).exists())]


def _modules(folder: Path, depth: int) -> Iterator[Path]:
    for place in _listed(folder) if depth else []:
        if (place / "HEAD").is_file():
            yield place
            yield from _modules(place / "modules", depth - 1)
        elif place.is_dir():
            yield from _modules(place, depth - 1)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
