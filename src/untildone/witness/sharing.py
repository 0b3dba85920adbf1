"""Folders that a fresh checkout borrows from the tree: read-only where checks are enclosed, else by a link."""

import os
from collections.abc import Sequence
from pathlib import Path

from untildone.errors import CommitUnfit, WorkspaceError
from untildone.ports.delivery import Bind
from untildone.witness.leading_back import leads_back


def shared(folders: Sequence[str], *, tree: Path, room: Path) -> list[Bind]:
    """What of the tree is lent, and where it is seen. CommitUnfit when a folder is not there, or part of the commit."""
    return [Bind(source=str(_source(folder, tree, room)), place=str(tree.resolve() / folder)) for folder in folders]


def link(folders: Sequence[str], *, tree: Path, room: Path) -> None:
    """The same without an enclosure: by links in the checkout, through which checks can write."""
    pairs = [(_source(folder, tree, room), room / folder) for folder in folders]
    for source, _ in pairs:
        if back := leads_back(source, tree.resolve()):
            raise CommitUnfit(
                f"{source.name}/{back} leads back to {tree}: checks would see the tree there instead of the commit; "
                "do not share it, prepare the checkout with --setup"
            )
    try:
        for source, place in pairs:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(source)
    except OSError as trouble:
        raise WorkspaceError(f"cannot share with {room}: {trouble.strerror or trouble}") from trouble


def _source(folder: str, tree: Path, room: Path) -> Path:
    """Where it is in the tree. In the room its place must be inside, though links in a commit may lead anywhere."""
    name = os.path.normpath(folder)
    if Path(name).is_absolute() or name == "." or ".." in Path(name).parts:
        raise CommitUnfit(f"--share {folder} must name a folder below {tree}")
    source, place = tree / name, room / name
    if not source.exists():
        raise CommitUnfit(f"{folder} is to be shared with fresh checkouts, and is not in {tree}: make it there first")
    if os.path.lexists(place):
        raise CommitUnfit(f"{folder} is part of the commit: only what git ignores can be shared with fresh checkouts")
    if not place.parent.resolve().is_relative_to(room.resolve()):
        raise CommitUnfit(f"{folder} cannot be shared: a folder above it is a link that leads out of the checkout")
    return source.resolve()
