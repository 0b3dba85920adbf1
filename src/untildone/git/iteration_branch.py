"""A branch of its own for each iteration: `PREFIXiteration-N/DATE-HASH`."""

import re
from collections.abc import Mapping
from hashlib import sha256

from untildone.core.dataclass import dataclass
from untildone.git.base import Base
from untildone.git.branch import Origin, branches, origins_of, remember_origin
from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.snapshot import SavedState
from untildone.git.status import Status

_NAME = re.compile(r"iteration-(\d+)/\d{4}-\d\d-\d\d-([0-9a-f]{8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is checked out after a rewind."""

    branch: str | None = None
    """Another branch than the present one, which stays where it is."""
    detached: bool = False
    """No branch at all."""
    lines: tuple[str, ...] = ()
    """To tell the user."""


HERE = Place()
"""The branch that is checked out anyway: it is moved."""


def branch_name(prefix: str, run_id: str, number: int, day: str) -> str:
    """The branch of an iteration. The hash tells whose it is, so that a driver that died half-way knows it again."""
    return f"{prefix}iteration-{number}/{day}-{_mark(run_id, number)}"


def number_in(branch: str | None, prefix: str, run_id: str) -> int | None:
    """Which iteration of this run a branch was made for."""
    name = _NAME.fullmatch((branch or "").removeprefix(prefix))
    return int(name[1]) if name and name[2] == _mark(run_id, int(name[1])) else None


async def place_of(repository: Repository, status: Status, target: SavedState, *, prefix: str, run_id: str) -> Place:
    """The branch of the iteration that is gone back to, if it is as that iteration left it; otherwise none at all."""
    if target.number and number_in(status.branch, prefix, run_id) == target.number:
        return HERE
    names = [name for name in await branches(repository) if number_in(name, prefix, run_id) == target.number]
    for name in names if target.number else ():
        branch = Base(repository, name)
        if await branch.tip() == target.head and await branch.checked_out_in() is None:
            return Place(branch=name)
    if target.head is None:
        return HERE
    line = (
        f"no branch stands where iteration {target.number} left it: HEAD is detached at {target.head[:10]}, "
        "and the next iteration begins a branch there"
    )
    return Place(detached=True, lines=(line,))


async def begin_branch(
    repository: Repository, status: Status, *, prefix: str, run_id: str, number: int, base: str | None, day: str
) -> str | None:
    """Switch to the branch of this iteration; None where there is no commit yet to begin with. Safe to repeat."""
    current = number_in(status.branch, prefix, run_id)
    if status.head is None or current == number:
        return status.branch if current == number else None
    origins = await origins_of(repository)
    is_empty = current is not None and _is_empty(status, origins)
    fresh = base if current is not None and not is_empty and await _has_landed(repository, status, base) else None
    source = _source(status, origins)[0] if is_empty else fresh or status.branch or ""
    start = status.head if fresh is None else (await repository.git("rev-parse", f"refs/heads/{fresh}")).text
    branch = branch_name(prefix, run_id, number, day)
    # Remembered first: a driver that dies before the switch makes the same branch again.
    await remember_origin(repository, branch, Origin(run_id=run_id, base=base or "", began=f"{source} {start}"))
    hooks = NO_HOOKS if fresh is None else ()  # where no file changes there is nothing a checkout hook could do
    await repository.agents.git(*hooks, "switch", "-q", "--no-track", "-c", branch, start)
    if is_empty and status.branch is not None:
        await _drop(repository, status.branch)
    return branch


async def take_back_empty(repository: Repository, status: Status, *, prefix: str, run_id: str) -> str | None:
    """Leave and delete the branch of an iteration that committed nothing; returns the branch that is current now."""
    if number_in(status.branch, prefix, run_id) is None or status.branch is None:
        return status.branch
    origins = await origins_of(repository)
    source, start = _source(status, origins)
    tip = await repository.git("rev-parse", "-q", "--verify", f"refs/heads/{source}", check=False)
    if not source or start != status.head or tip.text != status.head:
        return status.branch  # something was committed, here or on the branch it came from
    gone = await repository.agents.git(*NO_HOOKS, "switch", "-q", source, check=False)
    if gone.code:
        return status.branch  # it is checked out elsewhere by now
    await _drop(repository, status.branch)
    return source


def _is_empty(status: Status, origins: Mapping[str, Origin]) -> bool:
    return _source(status, origins)[1] == status.head


def _source(status: Status, origins: Mapping[str, Origin]) -> tuple[str, str]:
    source, _, start = origins.get(status.branch or "", Origin()).began.rpartition(" ")
    return source, start


async def _has_landed(repository: Repository, status: Status, base: str | None) -> bool:
    """Whether the base has all of this branch's work, merged or squashed, and a switch to it takes nothing along."""
    if base is None or status.head is None or status.paths:
        return False
    tree = await repository.git("rev-parse", "-q", "--verify", f"refs/heads/{base}^{{tree}}", check=False)
    merged = await repository.git("merge-tree", "--write-tree", f"refs/heads/{base}", status.head, check=False)
    return tree.code == 0 and merged.code == 0 and merged.text.partition("\n")[0] == tree.text


async def _drop(repository: Repository, branch: str) -> None:
    # The commit it points to is the one that is checked out, so nothing can be lost.
    await repository.git(*NO_HOOKS, "branch", "-q", "-D", branch, check=False)


def _mark(run_id: str, number: int) -> str:
    return sha256(f"{run_id}/{number}".encode("utf-8", "replace")).hexdigest()[:8]
