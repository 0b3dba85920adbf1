"""Going back to the tree after an earlier iteration, or taking it elsewhere. What is there now is saved first."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line
from untildone.errors import WishRefused, WorkspaceError
from untildone.git.branch import Origin, branches, origins_of
from untildone.git.commit import add_all
from untildone.git.iteration_branch import HERE, Place, number_in, place_of
from untildone.git.plain_forks import remember_fork
from untildone.git.recorded import record_seen
from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.run import disk_trouble
from untildone.git.snapshot import SavedState, commit_tree, copy_index, create_first, refs_of, saved_states
from untildone.git.status import Status, stamp_all
from untildone.git.under_way import under_way_in
from untildone.git.unfit import find_unfit
from untildone.git.worktrees import linked, make_ours

_SHORT = 10
_GITLINK = b"160000"
# A submodule has commits and uncommitted work of its own, which no snapshot of ours holds.
_ALONE = (*NO_HOOKS, "-c", "submodule.recurse=false")


@dataclass(frozen=True, slots=True, kw_only=True)
class WentBack:
    """What a rewind did."""

    commit: str
    """The snapshot that is in the tree now."""
    saved: str
    """The private ref that holds the tree as it was before."""
    branch: str | None
    lines: tuple[str, ...] = ()
    """To tell the user."""


async def rewind(
    repository: Repository, run_id: str, target: SavedState, *, branch: str | None = None, prefix: str | None = None
) -> WentBack:
    """Make tree, index and branch as they were after an iteration. The caller holds the run's lease.

    `branch`: the one the run worked on, where that is known. `prefix`: every iteration had a branch of its own that
    begins with it; the one of the target is checked out then, and no other is moved.
    Ignored files, submodules, repositories inside the repository and files too large for a snapshot stay as they are.
    WorkspaceError when it is refused: then nothing was changed.
    """
    status = await refuse_if_unfit(repository, run_id, branch=branch, prefix=prefix)
    place = HERE if prefix is None else await place_of(repository, status, target, prefix=prefix, run_id=run_id)
    async with _index_of_all(repository, status, target) as (index, tree):
        saved = await _save(repository, status, tree, run_id, target)
        try:
            await repository.git(*_ALONE, "read-tree", "-m", "-u", tree, target.commit, env=_using(index))
            await _bring_back_ignored(repository, tree, target.commit, index)
            await _move_head(repository, status.head, target.head, place)
        except WorkspaceError as refused:
            raise WorkspaceError(f"{refused}; what was there is saved as {saved}") from refused
    if target.head is not None:
        newest = max((s.number for s in await saved_states(repository, run_id)), default=target.number)
        await record_seen(repository, run_id, replace(target, number=newest), target.head)
    lines = [*place.lines, *await _left_alone(repository, tree, target.commit)]
    there = status.branch if place is HERE else place.branch
    return WentBack(commit=target.commit, saved=saved, branch=there, lines=tuple(lines))


async def fork(
    repository: Repository, target: SavedState, *, place: Path, branch: str, base: str | None = None
) -> Path:
    """The tree of an iteration in a new worktree on a new branch; of a plain folder, in a new plain folder."""
    if os.path.lexists(place):
        raise WishRefused(f"{place} exists already: choose another place")
    with disk_trouble(f"cannot make {place}"):
        place.parent.mkdir(parents=True, exist_ok=True)
    if repository.private:
        return await _copy_out(repository, target, place)
    start = target.head or target.commit
    await repository.git(*_ALONE, "worktree", "add", "-q", "--no-track", "-b", branch, str(place), start)
    await make_ours(repository, place, branch, base=base or await _base_of(repository))
    new = linked(repository, place)
    if target.head is None:
        await _move_head(new, start, None)
    elif target.head != target.commit:
        with tempfile.TemporaryDirectory(prefix="untildone-") as folder:
            index = Path(folder) / "index"
            copy_index(new, index)
            await new.git(*_ALONE, "read-tree", "-m", "-u", target.head, target.commit, env=_using(index))
    return place


async def refuse_if_unfit(
    repository: Repository, run_id: str, *, branch: str | None = None, prefix: str | None = None
) -> Status:
    """The tree as it is; WorkspaceError when a rewind would be refused there."""
    status = await _status(repository)
    what = under_way_in(repository.git_dir) or ("merge" if status.unmerged else "")
    if what:
        raise WishRefused(f"a {what} is in progress in {repository.top}: finish it, or `git {what} --abort`, first")
    if repository.private:
        return status
    is_own = prefix is not None and (not status.branch or number_in(status.branch, prefix, run_id) is not None)
    if branch is not None and status.branch != branch and not is_own:
        here = f"branch {status.branch}" if status.branch else "a detached HEAD"
        way = f"`git switch {branch}`, where the run worked, first"
        if not await branches(repository, f"refs/heads/{branch}"):
            way = f"and branch {branch}, where the run worked, is gone: `untildone fork` takes the tree elsewhere"
        raise WishRefused(f"{repository.top} is on {here} now: {way}")
    owner = (await origins_of(repository)).get(status.branch or "", Origin()).run_id
    if owner not in {"", run_id}:
        raise WorkspaceError(
            f"branch {status.branch} belongs to another run by now ({one_line(owner, 40)}): fork instead"
        )
    return status


@asynccontextmanager
async def _index_of_all(repository: Repository, status: Status, target: SavedState) -> AsyncIterator[tuple[Path, str]]:
    """An index beside the real one, with all that is there now, and its tree."""
    stamps = stamp_all(os.fsencode(repository.top), status.paths)
    leave_out = [*status.nested, *(await find_unfit(repository, stamps)).paths]
    with disk_trouble("cannot save the tree"), tempfile.TemporaryDirectory(prefix="untildone-") as folder:
        index = Path(folder) / "index"
        copy_index(repository, index)
        await add_all(repository, leave_out=leave_out, index=index)
        tree = await _write_tree(repository, index)
        hidden = await _hidden(repository, tree, target.commit)
        if hidden:
            # Ignored by now, but not at that time: it is about to be replaced, so it must be saved too.
            names = ("--pathspec-from-file=-", "--pathspec-file-nul")
            paths = b"\0".join(b":(top,literal)" + path for path in hidden)
            await repository.git(*_ALONE, "add", "-f", *names, env=_using(index), stdin=paths)
            tree = await _write_tree(repository, index)
        yield index, tree


async def _write_tree(repository: Repository, index: Path) -> str:
    return (await repository.git(*NO_HOOKS, "write-tree", env=_using(index))).text


async def _hidden(repository: Repository, tree: str, target: str) -> list[bytes]:
    """Files of the target that are on disk although the tree of all that git sees does not have them."""
    top = os.fsencode(repository.top)
    added = (path for kind, path, _ in await _differences(repository, tree, target) if kind == b"A")
    return [path for path in added if os.path.lexists(top + b"/" + path)]


async def _bring_back_ignored(repository: Repository, tree: str, target: str, index: Path) -> None:
    """What the target ignores was no part of it, so it cannot be said that it did not exist then."""
    top = os.fsencode(repository.top)
    differing = await _differences(repository, tree, target)
    gone = [
        path for kind, path, is_module in differing if kind == b"D" and not is_module and not _behind_link(top, path)
    ]
    if not gone:
        return
    names = b"\0".join(gone)
    answer = await repository.git("check-ignore", "-z", "--no-index", "--stdin", stdin=names, check=False)
    if answer.out:
        await repository.git(*_ALONE, "read-tree", tree, env=_using(index))
        await repository.git(*_ALONE, "checkout-index", "-z", "--stdin", env=_using(index), stdin=answer.out)


def _behind_link(top: bytes, path: bytes) -> bool:
    """Whether a folder on the way to a file is a link by now: git refuses to say anything about such a path."""
    parts = path.split(b"/")[:-1]
    return any(os.path.islink(b"/".join((top, *parts[: depth + 1]))) for depth in range(len(parts)))  # noqa: PTH114 - raw bytes


async def _differences(repository: Repository, old: str, new: str) -> list[tuple[bytes, bytes, bool]]:
    """(kind, path, whether it is a submodule) of each path that differs."""
    answer = await repository.git("diff-tree", "-r", "-z", "--no-renames", "--raw", old, f"{new}^{{tree}}")
    words = answer.out.split(b"\0")[:-1]
    pairs = zip(words[::2], words[1::2], strict=True)
    return [
        (facts.rsplit(b" ", 1)[1], path, _GITLINK in facts.split(b" ", 2)[0] + facts.split(b" ", 2)[1])
        for facts, path in pairs
    ]


async def _save(repository: Repository, status: Status, tree: str, run_id: str, target: SavedState) -> str:
    """Keep tree, index and HEAD of this moment under a ref of their own, as `git stash` would write them."""
    message = f"The tree before it was rewound to iteration {target.number}"
    parents = [status.head] if status.head else []
    if status.head is not None:
        with tempfile.TemporaryDirectory(prefix="untildone-") as folder:
            index = Path(folder) / "index"
            copy_index(repository, index)  # a copy: even `write-tree` would write into the real one
            staged = await _write_tree(repository, index)
        if staged != (await repository.git("rev-parse", f"{status.head}^{{tree}}")).text:
            parents.append(await commit_tree(repository, staged, parents=parents, message="What was staged"))
    commit = await commit_tree(repository, tree, parents=parents, message=message)
    names = (f"{refs_of(run_id)}/before-rewind-{number}" for number in count(1))
    return await create_first(repository, names, commit)


async def _move_head(repository: Repository, old: str | None, new: str | None, place: Place = HERE) -> None:
    """Move the branch that is checked out, or HEAD itself, and make the index fit; the tree is there already."""
    if place.branch is not None:
        message = ("-m", "untildone: rewind")
        await repository.git(*NO_HOOKS, "symbolic-ref", *message, "HEAD", f"refs/heads/{place.branch}")
        old = new  # it stands there already
    elif place.detached and new is not None:
        await repository.git(*NO_HOOKS, "update-ref", "--no-deref", "-m", "untildone: rewind", "HEAD", new)
        old = new
    if new is None:
        if old is not None:
            await repository.git(*NO_HOOKS, "update-ref", "-d", "HEAD", old)
        await repository.git(*_ALONE, "read-tree", "--empty")
        return
    if old != new:
        await repository.git(*NO_HOOKS, "update-ref", "-m", "untildone: rewind", "HEAD", new, old or "")
    await repository.git(*_ALONE, "read-tree", "--reset", new)
    await repository.git(*_ALONE, "update-index", "-q", "--refresh", check=False)


async def _left_alone(repository: Repository, tree: str, target: str) -> list[str]:
    moved = [os.fsdecode(path) for _, path, is_module in await _differences(repository, tree, target) if is_module]
    return [f"submodule {one_line(path)} was left as it is: `git submodule update` moves it too" for path in moved]


async def _copy_out(repository: Repository, target: SavedState, place: Path) -> Path:
    with disk_trouble(f"cannot make {place}"), tempfile.TemporaryDirectory(prefix="untildone-") as folder:
        place.mkdir()
        index = Path(folder) / "index"
        await repository.git("read-tree", target.commit, env=_using(index))
        await replace(repository, top=place).git("checkout-index", "-a", "-q", env=_using(index))
    await remember_fork(repository, place, target.commit)
    return place


async def _base_of(repository: Repository) -> str:
    """What the branch here is meant for is what a fork of it is meant for."""
    current = (await repository.git("symbolic-ref", "-q", "--short", "HEAD", check=False)).text
    return (await origins_of(repository)).get(current, Origin()).base or current


async def _status(repository: Repository) -> Status:
    return await repository.status()


def _using(index: Path) -> dict[str, str]:
    return {"GIT_INDEX_FILE": str(index)}
