"""Shared folders that lead back to the tree they come from: checks would see the agent's files, not the commit's."""

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

_PATHS = ("lib*/python*/site-packages/*.pth", "lib*/python*/site-packages/__editable__*.py", "Lib/site-packages/*.pth")
"""How Python remembers a project that was installed as a link to its folder."""
_LINKS = ("*", "@*/*")
"""Where npm and its like put links to the packages of the same repository."""
_MOST_BYTES = 1 << 20


def leads_back(folder: Path, tree: Path, *, bound: bool) -> str:
    """What in a folder leads to other places of the tree; "" for nothing.

    A relative link means the checkout's own files once the folder is bound there, and the tree's if it is linked to.
    """
    return next(chain(_installed(folder, tree), _linked(folder, tree, bound=bound)), "")


def _installed(folder: Path, tree: Path) -> Iterator[str]:
    for file in chain.from_iterable(map(folder.glob, _PATHS)):
        try:
            with file.open(errors="replace") as text:
                if any(_names(line, folder, tree) for line in text.read(_MOST_BYTES).splitlines()):
                    yield str(file.relative_to(folder))
        except OSError:
            continue


def _names(line: str, folder: Path, tree: Path) -> bool:
    """Whether a line names the tree, or something below it that is not in the shared folder itself."""
    rest = line.replace(str(folder), "")
    return f"{tree}{os.sep}" in rest or rest.rstrip("'\"}) ,").endswith(str(tree))


def _linked(folder: Path, tree: Path, *, bound: bool) -> Iterator[str]:
    for link in chain.from_iterable(map(folder.glob, _LINKS)):
        if not link.is_symlink() or (bound and not link.readlink().is_absolute()):
            continue
        target = link.resolve()
        if target.is_relative_to(tree) and not target.is_relative_to(folder):
            yield str(link.relative_to(folder))
