"""What a command sees of this machine, whichever kind of sandbox shows it."""

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from untildone.core.dataclass import dataclass
from untildone.errors import AgentError

TEMPORARY = {"/tmp": "tmp", "/var/tmp": "var-tmp"}  # noqa: S108 - these are replaced
"""Folders for temporary files, and what their replacements are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Something that is seen at a place."""

    place: str
    kind: Literal["empty", "read", "write", "link"]
    source: str = ""
    """What is seen there; for a link, where it leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a command sees of this machine."""

    mounts: tuple[Mount, ...] = ()
    whole_system: bool = True
    """Below the mounts lies all of the machine, read-only; otherwise nothing does."""
    env: tuple[tuple[str, str | None], ...] = ()
    """Variables that are set, or with None taken away."""
    network: bool = True
    root: bool = False
    """It is root who runs the command."""
    as_user: bool = False
    """In a namespace of users of its own."""
    around: str = ""
    """The folder of the sandbox, where what is in the way of a mount is put aside; elsewhere it is the user's."""


def held(mounts: Iterable[Mount]) -> tuple[Mount, ...]:
    """The same, outer ones first, with a mount for each folder that may be written and leads to one of them.

    A mount can be neither renamed nor removed inside: so nothing inside decides where the next process finds another.
    """
    found: dict[str, Mount] = {}
    for mount in sorted(mounts, key=lambda one: len(Path(one.place).parts)):
        for folder in reversed(Path(mount.place).parents):
            around = found.get(str(folder.parent))
            if str(folder) not in found and around is not None and around.kind == "write":
                source = str(Path(around.source, folder.name))
                found[str(folder)] = Mount(place=str(folder), kind="write", source=source)
        found[mount.place] = mount
    return tuple(sorted(found.values(), key=lambda one: len(Path(one.place).parts)))


def make_places(view: View) -> None:
    """Make what is mounted on, where it lies in a folder that may be written; to be done before each start.

    An engine would make it as root. AgentError if something else is there that is the user's.
    """
    by_place = {mount.place: mount for mount in view.mounts}
    for mount in sorted(view.mounts, key=lambda one: len(Path(one.place).parts)):
        around = by_place.get(str(Path(mount.place).parent))
        if around is None or around.kind != "write":
            continue
        point = Path(around.source, Path(mount.place).name)
        is_itself = mount.source == str(point)
        if not is_itself or mount.kind == "write":
            _make_place(point, wants_folder=is_itself or mount.kind == "empty" or _is_folder(mount.source), view=view)


def _make_place(point: Path, *, wants_folder: bool, view: View) -> None:
    try:
        mode = point.lstat().st_mode
    except FileNotFoundError:
        mode = 0
    try:
        if mode and (stat.S_ISLNK(mode) or stat.S_ISDIR(mode) != wants_folder):
            if not view.around or not point.is_relative_to(view.around):
                what = "folder" if wants_folder else "file"
                raise AgentError(f"{point} is no {what} of its own: an agent in a sandbox needs one there")
            put_aside(point)
            mode = 0
        if not mode:
            point.mkdir(mode=0o700) if wants_folder else point.touch(mode=0o600, exist_ok=False)
    except OSError as trouble:
        raise AgentError(f"cannot make {point} for the sandbox: {trouble.strerror or trouble}") from trouble


def put_aside(place: Path) -> None:
    """Rename what an agent has left where something else belongs, whatever it is: it goes with the sandbox."""
    place.rename(place.with_name(f"{place.name}.{secrets.token_hex(4)}"))


def _is_folder(place: str) -> bool:
    return os.path.isdir(place)  # noqa: PTH112 - a link counts
