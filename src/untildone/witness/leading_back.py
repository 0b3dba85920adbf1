"""What leads from places that checks use back to the tree: they would see the agent's files, not the commit's.

Only where checks cannot be enclosed: in an enclosure the path of the tree means the commit.
"""

import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

_PATHS = ("lib*/python*/site-packages/*.pth", "lib*/python*/site-packages/__editable__*.py", "Lib/site-packages/*.pth")
"""How Python remembers a project that was installed as a link to its folder."""
_LINKS = ("*", "@*/*")
"""Where npm and similar tools put links to the packages of the same repository."""
_MOST_BYTES = 1 << 20


def leads_back(folder: Path, tree: Path) -> str:
    """What in a folder leads to other places of the tree; "" for nothing."""
    return next(chain(_installed(folder, tree), _linked(folder, tree)), "")


def installed_into(tree: Path, env: Mapping[str, str]) -> str:
    """An editable install of the tree in an environment that is active or on the PATH; "" for none."""
    named = [env.get("VIRTUAL_ENV", ""), *map(os.path.dirname, env.get("PATH", "").split(os.pathsep))]
    for folder in dict.fromkeys(name for name in named if len(name) > 1):
        for found in _installed(Path(folder), tree):
            return f"{folder}/{found}"
    return ""


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


def _linked(folder: Path, tree: Path) -> Iterator[str]:
    for link in chain.from_iterable(map(folder.glob, _LINKS)):
        target = link.resolve()
        if link.is_symlink() and target.is_relative_to(tree) and not target.is_relative_to(folder):
            yield str(link.relative_to(folder))
