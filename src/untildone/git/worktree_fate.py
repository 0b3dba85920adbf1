"""Which worktrees may go. Pure: every rule is here, and nothing else is."""

from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line

_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """A working tree of a repository, as it was found."""

    path: Path
    head: str | None = None
    branch: str | None = None
    base: str | None = None
    """The branch its work is meant for."""
    run_id: str = ""
    """The run whose branch it has; empty: none's."""
    ours: bool = False
    """It was made for a run, not by the user."""
    main: bool = False
    """The repository's own tree."""
    live: bool = False
    """A run is being driven in it at this moment."""
    locked: bool = False
    """By `git worktree lock`."""
    gone: bool = False
    """Its folder does not exist any more."""
    dirty: int = 0
    """Files with uncommitted changes."""
    unmerged: int = 0
    """Commits that the base does not have."""
    under_way: str = ""
    """A merge or rebase that is not finished."""
    size: int = 0
    """Bytes."""
    only_here: tuple[str, ...] = ()
    """Ignored files and hidden edits that are nowhere else."""
    plain: bool = False
    """A folder without git, or a copy of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What may become of a worktree, and why."""

    tree: Worktree
    reclaimable: bool
    why: str


def judge(tree: Worktree) -> Fate:
    """Whether a worktree may be removed: only one of ours that nobody uses and that holds nothing of its own."""
    keep = next((why for holds, why in _reasons_to_keep(tree) if holds), None)
    if keep is not None:
        return Fate(tree=tree, reclaimable=False, why=keep)
    why = "its folder is gone already" if tree.gone else f"all of it is in {tree.base}; the branch is kept"
    return Fate(tree=tree, reclaimable=True, why=why)


def _reasons_to_keep(tree: Worktree) -> list[tuple[bool, str]]:
    """First match wins: what is not ours is none of our business, whatever its state."""
    there = not tree.gone
    return [
        (tree.main, "it is the repository's own tree"),
        (not tree.ours, "it was not made by untildone"),
        (tree.live, "a run is at work in it"),
        (tree.locked, "it is locked: `git worktree unlock` frees it"),
        (there and bool(tree.under_way), f"a {tree.under_way} is in progress in it"),
        (there and tree.dirty > 0, f"{_count(tree.dirty, 'file')} not committed"),
        (there and bool(tree.only_here), f"it holds what is nowhere else: {_few(tree.only_here)}"),
        (there and tree.base is None, "nobody knows where its work is to go: there is no base branch"),
        (there and tree.unmerged > 0, f"{_count(tree.unmerged, 'commit')} not in {tree.base}"),
    ]


def _count(number: int, what: str) -> str:
    return f"1 {what} is" if number == 1 else f"{number} {what}s are"


def _few(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(one_line(name) for name in names[:_NAMED]) + more
