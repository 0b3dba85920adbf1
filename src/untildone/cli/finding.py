"""Which loop inside Claude Code a command is about: the named one, or the one of the folder somebody stands in."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from untildone import loops
from untildone.cli.choosing import find_run
from untildone.cli.driving import opened
from untildone.core.printable import one_line
from untildone.engine.journal import load_state
from untildone.errors import StoreError, UsageError
from untildone.hook import register

if TYPE_CHECKING:
    from untildone.hook.register import Entry

NONE_HERE = "no loop is running in this folder: `untildone loop status` shows those of others"
_REPOSITORY = ".git"


@contextmanager
def writing() -> Iterator[None]:
    """What the system refuses to write is told in one line."""
    try:
        yield
    except OSError as refused:
        raise StoreError(
            f"{refused.filename or 'a file'} cannot be written: {refused.strerror or refused}"
        ) from refused


async def fold(store: Path) -> None:
    """Bring the log up to what hooks wrote down."""
    async with opened(store) as log:
        await loops.fold_notes(log, store, os.environ)


def loop_of(entries: "Sequence[Entry]", folder: Path) -> "Entry | None":
    """The loop of a folder: its own, or the nearest of those above it, or the only one below it.

    Never across the border of a repository. UsageError where several are below.
    """
    projects = {entry["project"]: entry for entry in entries}
    for place in (folder, *folder.parents):
        if str(place) in projects:
            return projects[str(place)]
        if _is_root(place):
            break
    root = _root_of(folder)
    below = [entry for name, entry in projects.items() if folder in Path(name).parents]
    below = [entry for entry in below if root is not None and _root_of(Path(entry["project"])) == root]
    if len(below) > 1:
        listed = ", ".join(f"{entry['loop']} in {entry['project']}" for entry in below)
        raise UsageError(one_line(f"several loops are running below this folder, name one: {listed}"))
    return below[0] if below else None


def _root_of(folder: Path) -> Path | None:
    return next((place for place in (folder, *folder.parents) if _is_root(place)), None)


def _is_root(place: Path) -> bool:
    return os.path.lexists(place / _REPOSITORY)


def at_work_here(store: Path, folder: Path) -> "Entry":
    """The loop of a folder. UsageError where none is at work."""
    entry = loop_of(register.entries(str(store)), folder)
    if entry is None:
        raise UsageError(NONE_HERE)
    return entry


async def at_work_named(store: Path, wanted: str, folder: Path) -> "Entry":
    """A loop by its id, by the beginning of its id, or by its name. UsageError where it is over, or is none."""
    async with opened(store) as log:
        await loops.fold_notes(log, store, os.environ)
        alive = loops.living(store)
        near = [loop for loop in alive if loop.startswith(wanted)]
        if wanted in alive or len(near) == 1:
            return alive[wanted if wanted in alive else near[0]]
        row = await find_run(log, wanted, folder)
        state = await load_state(log, row.run_id)
    if not state.spec.in_session:
        raise UsageError(f"{row.name} is no loop inside Claude Code: `untildone stop {row.name}` stops it")
    if row.run_id not in alive:
        raise UsageError(f"{row.name} is over already: `untildone loop history {row.run_id}` says how it ended")
    return alive[row.run_id]
