"""Other repositories in a folder that is lent: git that is started in them obeys their settings and runs their hooks.

So they are held fast as they were before an agent came, and their settings, which may hold logins, are hidden.
"""

import json
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MOST_FOLDERS = 50_000
"""That are looked into, those at the top first."""
MOST_HELD = 200
_DEEPEST = 8
"""Submodules within submodules are looked for this deep."""
_SETTINGS = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"

Held = tuple[Path, Path, bool]
"""Source, place, and whether it may be written."""


def hold(top: Path, files: Path, *, itself: bool = False) -> list[Held]:
    """What is to be mounted. What was found at first is kept in `files`, since later ones may be the agent's.

    `itself`: the folder may be a repository too.
    """
    held: list[Held] = []
    for mark in _marks(top, files / "git-below.json"):
        if (mark.parent == top and not itself) or mark.is_symlink() or not mark.exists():
            continue
        held += [(place, place, True) for place in mark.parents if place != top and top in place.parents]
        held.append((mark, mark, False))
        hidden = [mark / "config", *settings_in(mark / "modules")] if mark.is_dir() else []
        held += [(no_settings(files), config, False) for config in hidden if config.is_file()]
    return held


def settings_in(modules: Path, depth: int = _DEEPEST) -> Iterator[Path]:
    """The settings of submodules, and of theirs."""
    try:
        places = sorted(modules.iterdir()) if depth else []
    except OSError:
        return
    for place in places:
        if (place / "HEAD").is_file():
            if (place / "config").is_file():
                yield place / "config"
            yield from settings_in(place / "modules", depth - 1)
        elif place.is_dir():
            yield from settings_in(place, depth - 1)


def _marks(top: Path, kept: Path) -> list[Path]:
    """The .git of each; looked for once."""
    known: dict[str, list[str]] = {}
    with suppress(OSError, ValueError):
        known = json.loads(kept.read_text("utf-8", "surrogateescape"))
    if str(top) not in known:
        known[str(top)] = _found(top)
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = kept.with_name(f"{kept.name}.new")
        beside.write_text(json.dumps(known), "utf-8", "surrogateescape")
        beside.replace(kept)
    return [Path(mark) for mark in known[str(top)]]


def _found(top: Path) -> list[str]:
    found: list[str] = []
    waiting, looked = deque([str(top)]), 0
    while waiting and looked < MOST_FOLDERS and len(found) < MOST_HELD:
        looked += 1
        with suppress(OSError), os.scandir(waiting.popleft()) as entries:
            for entry in entries:
                if entry.name == ".git":
                    found.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return found


def no_settings(files: Path) -> Path:
    """A file that is shown in place of settings: git in a submodule needs none of them."""
    file = files / "git-module"
    if not file.exists():
        file.write_text(_SETTINGS, "utf-8")
    return file
