"""`--worktree`: a run that works in a tree of its own, and what becomes of that tree afterwards."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from untildone.cli.driving import opened
from untildone.cli.streams import say
from untildone.core.policy import RunSpec
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.engine.journal import load_state
from untildone.errors import UntildoneError
from untildone.ports import EventLog, RunRow


async def in_own_tree(spec: RunSpec, wish: str, store: Path, *, parent: str | None, new: bool) -> RunSpec:
    """The same run in a worktree: the one it has already, or a new one."""
    from untildone import trees

    folder = Path(spec.cwd)
    top = (await trees.repository_of(folder, store)).top
    if not new:
        async with opened(store) as log:
            known = await _unfinished(log, spec.name, str(top))
        if known is not None:
            return replace(spec, cwd=known.cwd, repository=known.repository)
    made = await trees.make_worktree(folder, wish, spec, store, parent=parent)
    say(f"works in the new worktree {made.folder} on branch {made.branch}")
    return replace(spec, cwd=str(made.folder), repository=str(made.top))


async def _unfinished(log: EventLog, name: str, top: str) -> RunSpec | None:
    """An unfinished run of this name in a worktree of this repository that is still there."""
    rows: Iterable[RunRow] = sorted(await log.runs(), key=lambda row: row.created_at, reverse=True)
    for row in rows:
        if row.name == name and row.status != "completed":
            found = (await load_state(log, row.run_id)).spec
            if found.repository == top and Path(found.cwd).is_dir():
                return found
    return None


async def tidy_up(log: EventLog, state: LoopState, store: Path) -> None:
    """After a run that is done: remove its worktree if it was asked for, or say why it stays."""
    if not state.spec.cleanup_worktree or state.spec.repository is None or state.phase != "completed":
        return
    from untildone import trees

    live = [row.folder for row in await log.runs() if row.alive]
    try:
        fate = await trees.tidy_worktree(state.spec, store, live)
    except UntildoneError as trouble:
        say(f"the worktree {state.spec.cwd} could not be removed: {one_line(str(trouble))}")
        return
    if fate is not None:
        said = f"removed: {fate.why}" if fate.reclaimable else f"kept: {fate.why}"
        say(f"worktree {fate.tree.path} {said}")
