"""Where checks run: only the commit is seen, at the path of the agent's tree.

The system is seen read-only. Homes, folders for temporary files and the working trees of the repository are replaced;
the user's toolchains are lent read-only.
"""

import os
import pwd
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from untildone.errors import WorkspaceError
from untildone.ports.delivery import Bind, Checkout, Enter
from untildone.sandbox.bubblewrap import Probe, enclosed
from untildone.sandbox.toolchains import OUTPUT, Surroundings, lent_from_trees, linked_from, toolchains
from untildone.sandbox.view import TEMPORARY, Mount, View

_SYSTEM = frozenset(
    {
        "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "run", "sbin", "snap",
        "srv", "sys", "usr", "var",
    }
)  # fmt: skip
"""Folders at the root that belong to the system; what lies in another one belongs to somebody."""
_HOMES = ("/home", "/root")
_UNSET = (*OUTPUT, "TMPDIR", "TMP", "TEMP", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
"""They name places that are not there, or not writable; without them programs use the fresh ones."""


class CleanRoom:
    """ports.Enclosure."""

    def __init__(self, probe: Probe, *, env: Mapping[str, str], own: Sequence[Path], network: bool = True) -> None:
        """`env` is what commands get; `own` are the folders of untildone, which no command sees."""
        self._probe = probe
        self._env = env
        self._own = tuple(_real(folder) for folder in own)
        self._network = network

    def borrowed(self, checkout: Checkout) -> tuple[Bind, ...]:
        """ports.Enclosure."""
        return lent_by_path(self._env, checkout)

    def enter(self, checkout: Checkout, *, lent: Sequence[Bind] = (), programs: Sequence[str] = ()) -> Enter:
        """Make the fresh folders; WorkspaceError when there is no room for them."""
        words = enclosed(self._view(checkout, lent, programs), program=self._probe.program)
        return partial(_in_folder, words)

    def _view(self, checkout: Checkout, lent: Sequence[Bind], programs: Sequence[str]) -> View:
        trees = tuple(_real(tree) for tree in checkout.trees)
        home = _real(Path(self._env.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir))
        fresh = _fresh_folders(Path(checkout.around))
        seen_home = home
        if home == Path("/") or not home.is_dir() or any(home.is_relative_to(tree) for tree in trees):
            seen_home = Path("/tmp/home")  # noqa: S108 - in the fresh one
        hidden = _hidden(trees, home if seen_home == home else None, (*self._own, Path(checkout.around)))
        around = Surroundings(home=home, hidden=hidden, trees=trees, own=self._own)
        mounts = {place: Mount(place=str(place), kind="empty") for place in hidden}
        mounts |= {place: Mount(place=str(place), kind="write", source=str(made)) for place, made in fresh.items()}
        mounts[seen_home] = Mount(place=str(seen_home), kind="write", source=f"{checkout.around}/home")
        # The programs of an environment that is lent are links to those of a toolchain.
        reached = [str(target) for bind in lent for target in linked_from(Path(bind.source))]
        for place in toolchains(self._env, [*programs, *reached], around):
            mounts[place] = Mount(place=str(place), kind="read", source=str(place))
        for tree in trees:
            if is_free(tree, trees, Path(checkout.top)):
                mounts[tree] = Mount(place=str(tree), kind="write", source=checkout.top)
        for bind in (*lent, *checkout.git):
            kind: Literal["read", "write"] = "write" if bind.writable else "read"
            mounts[Path(bind.place)] = Mount(place=bind.place, kind=kind, source=bind.source)
        env: list[tuple[str, str | None]] = [(name, None) for name in _UNSET if name in self._env]
        return View(
            mounts=tuple(mounts.values()), env=(*env, ("HOME", str(seen_home))), network=self._network,
            root=os.geteuid() == 0, as_user=self._probe.as_user,
        )  # fmt: skip


def lent_by_path(env: Mapping[str, str], checkout: Checkout) -> tuple[Bind, ...]:
    """Folders of the trees that PATH or the active environment leads to, where the checkout has nothing."""
    trees = [_real(tree) for tree in checkout.trees]
    found = lent_from_trees(env, trees)
    fitting = [str(place) for place in found if _fits(place, trees, Path(checkout.top))]
    return tuple(Bind(source=place, place=place) for place in fitting)


def _in_folder(words: tuple[str, ...], folder: str) -> tuple[str, ...]:
    return (*words, "--chdir", folder, "--")


def _fresh_folders(around: Path) -> dict[Path, Path]:
    """Folders on the disk, so that what the setup leaves there is there for the checks; by where they are seen."""
    try:
        (around / "home").mkdir(mode=0o700, exist_ok=True)
        for name in TEMPORARY.values():
            (around / name).mkdir(exist_ok=True)
            (around / name).chmod(0o1777)
    except OSError as trouble:
        raise WorkspaceError(f"cannot make fresh folders in {around}: {trouble.strerror or trouble}") from trouble
    return {_real(place): around / name for place, name in TEMPORARY.items() if os.path.isdir(place)}  # noqa: PTH112


def _hidden(trees: Sequence[Path], home: Path | None, own: Sequence[Path]) -> tuple[Path, ...]:
    """Folders that are replaced: homes, temporary files, what lies beside the trees, and our own."""
    named = [*map(_real, (*_HOMES, *TEMPORARY)), *([home] if home else []), *own]
    beside = [place for place in map(_around_tree, trees) if place is not None]
    hidden = [place for place in dict.fromkeys((*named, *beside)) if place.is_dir()]
    # What lies in a tree is gone with it.
    return tuple(place for place in hidden if not any(place.is_relative_to(tree) and place != tree for tree in trees))


def _around_tree(tree: Path) -> Path | None:
    """What may hold more of the agent's work: the folder at the root that holds the tree, or in the system's, its own.

    None where that is a folder of the system's.
    """
    root, first, *deeper = (*tree.parts, "")
    place = tree.parent if first in _SYSTEM else Path(root, first)
    return place if place != Path("/") and not (first in _SYSTEM and len(deeper) <= 2) else None  # noqa: PLR2004


def is_free(tree: Path, trees: Sequence[Path], top: Path) -> bool:
    """Whether the checkout can be seen at a tree: one inside of another needs a folder there, and no link."""
    inside = [tree.relative_to(other) for other in trees if tree != other and tree.is_relative_to(other)]
    return all(_is_folder_or_nothing(top, below) for below in inside)


def _fits(place: Path, trees: Sequence[Path], top: Path) -> bool:
    """Whether the commit has nothing at a place in a tree, and no link on the way there."""
    inside = [place.relative_to(tree) for tree in trees if place.is_relative_to(tree)]
    below = min(inside, key=lambda path: len(path.parts))
    place = top / below
    is_empty = not os.path.lexists(place) or (place.is_dir() and not place.is_symlink() and not any(place.iterdir()))
    return is_empty and _is_folder_or_nothing(top, below)


def _is_folder_or_nothing(top: Path, below: Path) -> bool:
    place = top / below
    nearest = next(folder for folder in (place, *place.parents) if os.path.lexists(folder))
    return Path(os.path.realpath(nearest)) == nearest and nearest.is_dir()


def _real(path: Path | str) -> Path:
    return Path(os.path.realpath(path))
