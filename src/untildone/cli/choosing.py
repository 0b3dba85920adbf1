"""Which run a command is about: the one that was named, or the one a person in this folder means."""

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from untildone.cli.streams import say
from untildone.core.figures import count
from untildone.core.printable import one_line
from untildone.engine.journal import load_state
from untildone.errors import RunNotFound, UsageError
from untildone.git.kin import Kin, kin_of
from untildone.ports import EventLog, RunRow

_GONE_LOOKED_AT = 20
"""Runs whose folder is gone tell where they belonged only in their own log: so many of the newest are asked."""


async def find_run(
    log: EventLog, wanted: str | None, folder: Path, *, acting: bool = False, but: Collection[str] = ()
) -> RunRow:
    """A run by id, by the beginning of its id, or by name; without any, the one that belongs to this folder.

    That is one in a worktree of the same repository too: one that is at work before all others, else the newest.
    What may surprise about the choice is said. `acting`: the run is to be changed, so nothing is guessed: UsageError.
    `but`: ids of runs that are not meant.
    """
    rows = [row for row in await log.runs() if row.run_id not in but]
    rows.sort(key=lambda row: row.created_at, reverse=True)
    if wanted is not None:
        return _named(rows, wanted)
    here = os.path.realpath(folder)
    near = await _near(log, rows, here)
    if not near:
        raise RunNotFound(f'no run in {here} yet: start one with `untildone run "GOAL" -m 5`, or see `untildone ls`')
    living = [row for row in near if row.alive]
    found = next((row for row in living if row.folder == here), (living or near)[0])
    others = [one_line(row.name) for row in living if row is not found]
    if others and acting and found.folder != here:
        names = ", ".join((one_line(found.name), *others))
        raise UsageError(f"{count(len(living), 'run')} are running in this repository: name the one you mean ({names})")
    if others:
        say(f"this is {one_line(found.name)}; also running in this repository: {', '.join(others)}")
    elif found.folder != here:
        say(f"this is {one_line(found.name)}, in {one_line(found.folder)}")
    return found


def _named(rows: Sequence[RunRow], wanted: str) -> RunRow:
    found = [row for row in rows if wanted in {row.run_id, row.name}] or [
        row for row in rows if row.run_id.startswith(wanted)
    ]
    if not found:
        raise RunNotFound(f"no run called {wanted!r}: `untildone ls` shows all runs")
    return found[0]


async def _near(log: EventLog, rows: Sequence[RunRow], here: str) -> Sequence[RunRow]:
    """The runs a person here may mean, newest first: of this worktree, of this folder in any tree, or of all trees."""
    mine = kin_of(Path(here))
    if mine is None:
        return [row for row in rows if row.folder == here]
    places = {folder: kin_of(Path(folder)) for folder in {row.folder for row in rows}}
    family = [(row, kin) for row in rows if (kin := places[row.folder]) is not None and kin.common == mine.common]
    this_tree = [row for row, kin in family if kin.top == mine.top]
    if mine.is_linked and this_tree:
        return this_tree
    same_place = [row for row, kin in family if kin.below == mine.below]
    newest = same_place[0].created_at if same_place else 0.0
    gone = await _gone(log, (row for row in rows if row.created_at > newest and not Path(row.folder).is_dir()), mine)
    return [*gone, *same_place] or [row for row, _ in family]


async def _gone(log: EventLog, rows: Iterable[RunRow], mine: Kin) -> list[RunRow]:
    """Those that worked in a worktree of this repository which was removed since."""
    found = []
    for row, _ in zip(rows, range(_GONE_LOOKED_AT), strict=False):
        made_for = (await load_state(log, row.run_id)).spec.repository
        kin = kin_of(Path(made_for)) if made_for else None
        if kin is not None and kin.common == mine.common:
            found.append(row)
    return found
