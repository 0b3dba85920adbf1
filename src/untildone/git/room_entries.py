"""Git's own notes of worktrees: read and removed as files, since `prune` removes those of other people too."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from untildone.git.plain_file import line

_MOST_ALTERNATES = 16


def common_folder(git_dir: Path) -> Path:
    """The git folder that all worktrees of a repository share."""
    try:
        named = line(git_dir / "commondir")
    except OSError:
        return git_dir
    return Path(os.path.normpath(git_dir / named))


def forget_entry(git_dir: Path, tree: Path) -> None:
    """Remove the entry of one worktree whose folder is gone, and no other."""
    for entry in _entries(git_dir):
        with suppress(OSError):
            place = line(entry / "gitdir")
            if place == f"{tree}/.git" and not (entry / "locked").exists():
                shutil.rmtree(entry)
    with suppress(OSError):
        (common_folder(git_dir) / "worktrees").rmdir()


def checked_out_in(git_dir: Path) -> list[Path]:
    """Every folder in which a repository is checked out right now, as its own notes say."""
    common = common_folder(git_dir)
    # A bare repository, and that of a submodule, lie beside no tree.
    places = [common.parent] if common.name == ".git" else []
    for entry in _entries(git_dir):
        with suppress(OSError):
            mark = os.path.normpath(entry / line(entry / "gitdir"))  # newer git may write it from the entry on
            places.append(Path(mark).parent)
    return [place for place in places if place.is_dir()]


def alternates(objects: Path) -> list[Path]:
    """Other folders that a folder of objects takes more from."""
    found: dict[Path, None] = {}
    waiting = [objects]
    while waiting and len(found) < _MOST_ALTERNATES:
        around = waiting.pop()
        with suppress(OSError):
            for written in line(around / "info/alternates").split("\n"):
                place = Path(os.path.normpath(around / written))
                if written and place.is_dir() and place not in found:
                    found[place] = None
                    waiting.append(place)
    return list(found)


def _entries(git_dir: Path) -> list[Path]:
    try:
        return list((common_folder(git_dir) / "worktrees").iterdir())
    except OSError:
        return []  # there are none
