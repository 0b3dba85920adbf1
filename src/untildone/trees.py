"""Where runs work besides the folder they were started in: worktrees of their own, forks, and the way back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.core.figures import git_command
from untildone.core.policy import BOXED, AgentOptions, RunSpec
from untildone.core.printable import one_line
from untildone.errors import UsageError, WorkspaceError
from untildone.git.branch import branches, slug
from untildone.git.difference import difference
from untildone.git.discard import discard, remove_all_gone
from untildone.git.filters import without_programs_of_trees
from untildone.git.repository import Repository, open_repository
from untildone.git.rewind import WentBack, fork, refuse_if_unfit, rewind
from untildone.git.rooms import sweep_abandoned
from untildone.git.snapshot import SavedState, free_name, save_tree, saved_states, state_after
from untildone.git.worktree_fate import Fate
from untildone.git.worktrees import add, default_place, remove
from untildone.ports import EventLog
from untildone.store.leftovers import BOXES, CACHES, ROOMS, clear_leftovers

FOLDERS = "folders"
"""Where in the store the history of plain folders is kept."""
TRIM_AT_START = 200_000
"""Events of old runs that one start removes at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A folder that was made for a run."""

    folder: Path
    """Where the agent works: what corresponds to the folder that was asked for."""
    top: Path
    """The repository's own tree."""
    branch: str | None


async def repository_of(folder: Path, store: Path, options: AgentOptions | None = None) -> Repository:
    """The repository a folder belongs to, its own or a private one. `options`: of the agent that works there."""
    repository = await open_repository(folder, private=store / FOLDERS)
    is_boxed = options is not None and (options.sandbox in {"auto", *BOXED} or options.image)
    return await without_programs_of_trees(repository) if is_boxed else repository


async def make_worktree(folder: Path, wish: str, spec: RunSpec, store: Path, *, parent: str | None = None) -> Placed:
    """A worktree as `--worktree [BRANCH[:BASE]]` asks for it, beside the repository or in `parent`."""
    repository = await repository_of(folder, store, spec.options)
    named, _, base = wish.partition(":")
    branch = named or free_name(spec.branch_prefix + slug(spec.name), await branches(repository))
    await _refuse_without_tasks(repository, folder, spec, base or spec.landing.base or "HEAD")
    place = default_place(repository, branch, folder=_absolute(parent, folder))
    made = await add(repository, branch, base=base or spec.landing.base, place=place)
    return Placed(folder=_within(made.path, folder, repository), top=repository.top, branch=branch)


async def _refuse_without_tasks(repository: Repository, folder: Path, spec: RunSpec, start: str) -> None:
    """A worktree has what is committed: a list of tasks that is not would be missing there."""
    if spec.task_file is None or repository.private:
        return
    path = (folder.resolve() / spec.task_file).relative_to(repository.top)
    if (await repository.git("cat-file", "-e", f"{start}:{path.as_posix()}", check=False)).code:
        raise UsageError(f"{spec.task_file} is not committed, so a worktree would not have it: commit it first")


def planned_worktree(wish: str, spec: RunSpec) -> str:
    """What `--worktree` would make, in words."""
    named, _, base = wish.partition(":")
    start = base or spec.landing.base
    from_where = f"from {start}" if start else "from the branch that is checked out"
    return f"a new one on the new branch {named or spec.branch_prefix + slug(spec.name)}, {from_where}"


async def snapshot_after(spec: RunSpec, run_id: str, number: int, store: Path) -> tuple[Repository, SavedState]:
    """The tree as an iteration left it; 0 is the tree the run began with."""
    repository = await repository_of(Path(spec.cwd), store, spec.options)
    states = await saved_states(repository, run_id)
    found = state_after(states, number)
    if found is None:
        raise UsageError(f"no tree of this run is kept in {repository.top}: its private refs are gone")
    return repository, found


async def changes_of_rewind(
    repository: Repository, run_id: str, target: SavedState, *, branch: str | None, prefix: str | None = None
) -> list[str]:
    """What a rewind would do to files, a line each. Nothing is changed; what is there is only written down.

    WorkspaceError where it would be refused.
    """
    await refuse_if_unfit(repository, run_id, branch=branch, prefix=prefix)
    head = (await repository.git("rev-parse", "-q", "--verify", "HEAD", check=False)).text or None
    present = await save_tree(repository, parent=head, message="What a rewind would change")
    found = await difference(repository, present, target.commit)
    words = {"created": "brings back", "modified": "changes", "deleted": "removes"}
    lines = [f"{words.get(change.change_type, 'changes')} {one_line(change.file_path)}" for change in found.files]
    more = found.files_changed - len(found.files)
    return [*lines, f"and {more} more"] if more > 0 else lines


async def go_back(
    repository: Repository, run_id: str, target: SavedState, *, branch: str | None, prefix: str | None = None
) -> WentBack:
    """Put tree, index and branch back. The caller holds the run's lease."""
    return await rewind(repository, run_id, target, branch=branch, prefix=prefix)


async def make_fork(
    repository: Repository,
    target: SavedState,
    spec: RunSpec,
    *,
    name: str,
    parent: str | None = None,
    base: str | None = None,
) -> Placed:
    """The tree of an iteration in a new worktree on a new branch, meant for `base`."""
    folder = Path(spec.cwd)
    wanted = spec.branch_prefix + slug(name)
    branch = wanted if repository.private else free_name(wanted, await branches(repository))
    place = default_place(repository, branch, folder=_absolute(parent, folder))
    made = await fork(repository, target, place=place, branch=branch, base=base)
    return Placed(
        folder=_within(made, folder, repository), top=repository.top, branch=None if repository.private else branch
    )


def git_words(repository: Repository) -> str:
    """How a person calls git for this tree: the history of a folder without git lies elsewhere."""
    return git_command(str(repository.git_dir) if repository.private else "", str(repository.top))


def lasting_folder(spec: RunSpec, branch: str | None) -> Path | None:
    """Where a run is to be found: its own folder, or where that is gone, what corresponds to it in its repository."""
    folder = Path(spec.cwd)
    if folder.is_dir():
        return folder
    if spec.repository is None or not Path(spec.repository).is_dir():
        return None
    # The worktree was named for its branch: what came below it lies below the repository too.
    parts, name = folder.parts, slug(branch) if branch else ""
    below = Path(*parts[parts.index(name) + 1 :]) if name in parts else Path()
    place = Path(spec.repository) / below
    return place if place.is_dir() else Path(spec.repository)


async def tidy_worktree(spec: RunSpec, store: Path, live: Sequence[str]) -> Fate | None:
    """Remove the worktree that was made for a run, if nothing would be lost; None: it has none."""
    if spec.repository is None:
        return None
    repository = await repository_of(Path(spec.repository), store, spec.options)
    own = (await repository_of(Path(spec.cwd), store)).top
    return await remove(repository, own, live=live)


async def sweep_rooms(log: EventLog, store: Path) -> int:
    """Remove the fresh checkouts of runs that were killed and never taken up again; returns how many there were."""

    async def living() -> set[str]:
        return {row.run_id for row in await log.runs() if row.alive}

    return await sweep_abandoned(store / ROOMS, living)


@asynccontextmanager
async def tidying(log: EventLog, store: Path, before: float) -> AsyncIterator[None]:
    """While a run works, what is left of runs that ended before a moment goes."""
    work = asyncio.create_task(_tidy(log, store, before))
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)  # no reason to spoil a run


async def _tidy(log: EventLog, store: Path, before: float) -> None:
    await asyncio.to_thread(clear_leftovers, store, before)
    for kept in (BOXES, CACHES):
        await asyncio.to_thread(_leave_boxes, store / kept, before)
    await sweep_rooms(log, store)
    await log.trim_ended(before=before, most=TRIM_AT_START)


def _within(top: Path, folder: Path, repository: Repository) -> Path:
    """The same folder in another tree."""
    below = folder.resolve().relative_to(repository.top)
    if not (top / below).is_dir():
        raise WorkspaceError(f"{below} is in no commit, so that {top} does not have it: commit it, or start at the top")
    return top / below


def _absolute(parent: str | None, folder: Path) -> Path | None:
    return (folder / Path(parent).expanduser()).absolute() if parent else None


def _leave_boxes(folder: Path, before: float) -> None:
    """Remove what agents in sandboxes had for a home, of runs that nobody went on with."""
    remove_all_gone(folder)
    for box in folder.glob("[!.]*"):
        with suppress(OSError):
            if box.stat().st_mtime < before:
                discard(box, into=folder)
