"""What git, or whoever uses it, has not finished yet."""

from pathlib import Path

_MARKS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}


def under_way_in(git_dir: Path) -> str:
    """The operation that is in progress in a tree, as git calls it; "" for none."""
    return next((what for mark, what in _MARKS.items() if (git_dir / mark).exists()), "")
