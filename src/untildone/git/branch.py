"""Which branch a run's commits go to: never the repository's default branch, unless nobody asked to spare it."""

import re
from hashlib import sha256

from untildone.core.printable import one_line
from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.snapshot import free_name
from untildone.git.status import Status

_SHORT = 10
_OWNER = "untildone-run"
_SLUG_BYTES = 100
"""A branch name is a file name too, and git needs room in it for a suffix of its own."""


async def settle_on_branch(
    repository: Repository, status: Status, *, run_id: str, name: str, prefix: str, wanted: bool
) -> list[str]:
    """Switch to the run's branch if the default branch is checked out; returns lines that tell the user."""
    current = status.branch
    if current is None:
        short = (status.head or "")[:_SHORT]
        return [f"HEAD is detached at {short}: commits go there; `git switch -c NAME` names them"]
    if not wanted or not await _is_default(repository, current):
        return [f"commits go to branch {current}", *await _strangers_branch(repository, current, run_id)]
    if status.head is None:
        return [f"the repository has no commit yet: commits go to branch {current}"]
    return [await _take_own_branch(repository, current, run_id=run_id, wanted=prefix + _slug(name))]


async def _take_own_branch(repository: Repository, current: str, *, run_id: str, wanted: str) -> str:
    own = await _branch_of(repository, run_id)
    if own is not None:
        await repository.git("switch", "-q", own)
        return f"back on this run's branch {own} (from {current})"
    taken = (await repository.git("for-each-ref", "--format=%(refname:strip=2)", "refs/heads")).text.split("\n")
    branch = free_name(wanted, set(taken))
    # No file changes, so there is nothing a checkout hook could have to do.
    await repository.git(*NO_HOOKS, "switch", "-q", "-c", branch)
    # Kept with the branch, so that git forgets it when the user deletes the branch.
    await repository.git("config", f"branch.{branch}.{_OWNER}", run_id)
    return f"commits go to the new branch {branch} (from {current})"


async def _is_default(repository: Repository, branch: str) -> bool:
    remote = await repository.git("symbolic-ref", "-q", "refs/remotes/origin/HEAD", check=False)
    if remote.code == 0:
        return remote.text.removeprefix("refs/remotes/origin/") == branch
    configured = await repository.git("config", "--get", "init.defaultBranch", check=False)
    return branch in {configured.text, "main", "master"}


async def _branch_of(repository: Repository, run_id: str) -> str | None:
    asked = await repository.git("config", "-z", "--get-regexp", rf"^branch\..*\.{_OWNER}$", check=False)
    pairs = (entry.partition("\n") for entry in asked.text.split("\0"))
    names = (key.removeprefix("branch.").removesuffix(f".{_OWNER}") for key, _, owner in pairs if owner == run_id)
    return next(names, None)


async def _strangers_branch(repository: Repository, branch: str, run_id: str) -> list[str]:
    """Two goals on one branch cannot be told apart or merged one by one any more."""
    owner = (await repository.git("config", "--get", f"branch.{branch}.{_OWNER}", check=False)).text
    if owner in {"", run_id}:
        return []
    note = (
        f"{branch} is the branch of another run ({one_line(owner, 40)}): this run's commits go on top of that run's; "
        "for a branch of its own, switch to the default branch before you start it"
    )
    return [note]


def _slug(name: str) -> str:
    slug = re.sub(r"[^\w-]+", "-", name).strip("-") or "run"
    if len(slug.encode()) <= _SLUG_BYTES:
        return slug
    # Names that differ only further on must not get the same branch.
    cut = slug.encode()[:_SLUG_BYTES].decode(errors="ignore").rstrip("-")
    return f"{cut}-{sha256(name.encode('utf-8', 'replace')).hexdigest()[:4]}"
