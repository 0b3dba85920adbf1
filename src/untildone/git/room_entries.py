"""Git's own notes of worktrees that lie in our folders: read and removed as files, since `prune` knows no ours."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from untildone.git.plain_file import line


def common_folder(git_dir: Path) -> Path:
    """The git folder that all worktrees of a repository share."""
    try:
        named = line(git_dir / "commondir")
    except OSError:
        return git_dir
    return Path(os.path.normpath(git_dir / named))


def _entries_below(git_dir: Path, folder: Path, *, name: str) -> list[Path]:
    """The entries of worktrees below a folder; also one called so that a killed git left without a word."""
    return [entry for entry in _entries(git_dir) if _lies_below(entry, folder, name)]


def forget_entries(git_dir: Path, folder: Path, *, name: str) -> int:
    """Remove these entries as git does it: with their locks, and with the folder of all entries if none is left."""
    found = _entries_below(git_dir, folder, name=name)
    for number, entry in enumerate(found):
        # Renamed first: half removed it would not say any more where it belongs, but its name still does.
        gone = entry.with_name(f"{name}-gone-{number}")
        with suppress(OSError):
            entry = entry.rename(gone)  # noqa: PLW2901 - it is the same one
        shutil.rmtree(entry, ignore_errors=True)
    with suppress(OSError):  # there are others, or there never were any
        (common_folder(git_dir) / "worktrees").rmdir()
    return len(found)


def forget_entry(git_dir: Path, tree: Path) -> None:
    """Remove the entry of one worktree whose folder is gone, and no other."""
    for entry in _entries(git_dir):
        with suppress(OSError):
            place = line(entry / "gitdir")
            if place == f"{tree}/.git" and not (entry / "locked").exists():
                shutil.rmtree(entry)
    with suppress(OSError):
        (common_folder(git_dir) / "worktrees").rmdir()


def lock(entry: Path, reason: str) -> None:
    """Say why nobody should touch it."""
    (entry / "locked").write_text(f"{reason}\n")


def _entries(git_dir: Path) -> list[Path]:
    try:
        return list((common_folder(git_dir) / "worktrees").iterdir())
    except OSError:
        return []  # there are none


def _lies_below(entry: Path, folder: Path, name: str) -> bool:
    try:
        place = line(entry / "gitdir")
    except FileNotFoundError:
        return entry.name.startswith(name)
    except OSError:
        return False
    return Path(place).is_relative_to(folder) if place else entry.name.startswith(name)
