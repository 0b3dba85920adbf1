"""Which folders belong to one repository: told from git's own files, without starting git."""

import os
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.git.plain_file import line
from untildone.git.repository import holds_home, project_root
from untildone.git.room_entries import common_folder

_LONGEST = 4096
"""No path is longer, so that a file that holds more is none of git's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kin:
    """A folder in a tree of a repository."""

    top: Path
    """The tree it is in."""
    common: Path
    """The git folder that all trees of the repository share."""
    below: Path
    """The way from the top to the folder: the same in every tree."""

    is_linked: bool
    """It is a worktree beside the repository's own tree."""


def kin_of(folder: Path) -> Kin | None:
    """Where a folder stands; None for one that is in no repository, or is not there."""
    place = Path(os.path.realpath(folder))
    top = project_root(place) if place.is_dir() else place
    mark = top / ".git"
    # A home that is kept in git (dotfiles) makes no family of all that is below it.
    if not mark.exists() or (top != place and holds_home(top)):
        return None
    own = _git_folder(top, mark)
    common = Path(os.path.realpath(common_folder(own)))
    return Kin(top=top, common=common, below=place.relative_to(top), is_linked=common != Path(os.path.realpath(own)))


def _git_folder(top: Path, mark: Path) -> Path:
    if mark.is_dir():
        return mark
    try:
        named = line(mark, _LONGEST).removeprefix("gitdir:").strip()
    except OSError:
        return mark
    return Path(os.path.normpath(top / named))
