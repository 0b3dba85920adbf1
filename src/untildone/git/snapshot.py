"""Saving uncommitted work under a private ref, without touching tree, index, HEAD, stash or branches."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from untildone.git.commit import add_all
from untildone.git.repository import NO_HOOKS, PRIVATE_IDENTITY, Repository
from untildone.git.run import disk_trouble


def refs_of(run_id: str) -> str:
    """Where the snapshots of a run are kept."""
    return f"refs/untildone/{re.sub(r'[^A-Za-z0-9_-]+', '-', run_id)}"


def start_ref(run_id: str) -> str:
    """The tree as the run found it. Its presence tells that the run has begun."""
    return f"{refs_of(run_id)}/start"


async def save_tree(
    repository: Repository, *, parent: str | None, message: str, leave_out: Sequence[bytes] = ()
) -> str:
    """Write the whole tree as it is now into a commit that belongs to no branch; returns its hash."""
    with disk_trouble("cannot save the tree"), tempfile.TemporaryDirectory(prefix="untildone-") as folder:
        index = Path(folder) / "index"
        if repository.index.exists():
            shutil.copy2(repository.index, index)  # so that only what changed must be read again
        await add_all(repository, leave_out=leave_out, index=index)
        tree = (await repository.git(*NO_HOOKS, "write-tree", env={"GIT_INDEX_FILE": str(index)})).text
    parents = () if parent is None else ("-p", parent)
    made = await repository.git(
        *PRIVATE_IDENTITY, "commit-tree", tree, *parents, stdin=message.encode("utf-8", "replace")
    )
    return made.text


async def set_ref(repository: Repository, ref: str, commit: str) -> None:
    """Make a ref that does not exist yet."""
    await repository.git(*NO_HOOKS, "update-ref", ref, commit, "")


async def has_ref(repository: Repository, ref: str) -> bool:
    """Whether this ref exists."""
    return (await repository.git("rev-parse", "-q", "--verify", ref, check=False)).code == 0


async def free_ref(repository: Repository, wanted: str) -> str:
    """`wanted`, or the same with -2, -3 ... if it is taken."""
    folder = wanted.rpartition("/")[0]
    taken = set((await repository.git("for-each-ref", "--format=%(refname)", folder)).text.split("\n"))
    return free_name(wanted, taken)


def free_name(wanted: str, taken: set[str]) -> str:
    """The first of `wanted`, `wanted`-2, `wanted`-3 ... that is not taken."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name
