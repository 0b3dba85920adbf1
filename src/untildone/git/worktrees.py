"""Worktrees for runs: made on a new branch, listed with what is in them, removed only when nothing would be lost."""

import os
import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from untildone.core.policy import NOTES_FILE
from untildone.errors import WishRefused
from untildone.git.branch import Origin, branches, default_branch, origins_of, remember_origin, slug
from untildone.git.only_here import only_here
from untildone.git.plain_forks import plain_trees, remove_plain
from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.room_entries import common_folder, forget_entry
from untildone.git.run import disk_trouble
from untildone.git.status import STATUS, parse_status
from untildone.git.under_way import under_way_in
from untildone.git.worktree_fate import Fate, Worktree, judge

INCLUDE_FILE = ".worktreeinclude"
"""Names ignored files, in the syntax of .gitignore, that a new worktree needs too: settings, keys, test data."""

_MARK = "untildone-worktree"
"""A file in git's own folder of a worktree: it was made for a run. Git deletes it together with the worktree."""


def default_place(repository: Repository, branch: str, *, folder: Path | None = None) -> Path:
    """Where the worktree of a branch goes: beside the repository, in a folder that is named for it."""
    # Of a worktree: beside the repository it belongs to, not beside itself.
    common = common_folder(repository.git_dir)
    home = common.parent if common.name == ".git" and common != repository.git_dir else repository.top
    parent = folder or home.parent / f"{home.name}-worktrees"
    return parent / slug(branch)


async def add(repository: Repository, branch: str, *, base: str | None = None, place: Path | None = None) -> Worktree:
    """A worktree on a new branch from `base` (default: the branch that is checked out), with its ignored files.

    WorkspaceError when the branch or the folder exists: nothing of the user's is ever taken over.
    """
    if repository.private:
        raise WishRefused(f"{repository.top} is not a git repository: `git init` makes it one")
    await _refuse_bad_name(repository, branch)
    path = place or default_place(repository, branch)
    if os.path.lexists(path):
        raise WishRefused(f"{path} exists already: choose another branch, or remove it")
    current = (await repository.git("symbolic-ref", "-q", "--short", "HEAD", check=False)).text
    start = base or current or "HEAD"
    if (await repository.git("rev-parse", "-q", "--verify", f"{start}^{{commit}}", check=False)).code:
        raise WishRefused(f"there is no commit {start} to begin with: name another base, or commit something first")
    with disk_trouble(f"cannot make {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    await repository.git(*NO_HOOKS, "worktree", "add", "-q", "--no-track", "-b", branch, str(path), start)
    meant_for = "" if start == "HEAD" else start
    await make_ours(repository, path, branch, base=meant_for)
    with disk_trouble(f"cannot copy the files that {INCLUDE_FILE} names to {path}"):
        await _copy_ignored(repository, path)
    return Worktree(path=path, branch=branch, base=meant_for or None, ours=True)


async def make_ours(repository: Repository, path: Path, branch: str, *, base: str) -> None:
    """Remember that a worktree was made for a run. One that a crash leaves unmarked is never removed."""
    with disk_trouble(f"cannot set up {path}"):
        (linked(repository, path).git_dir / _MARK).touch()
    await remember_origin(repository, branch, Origin(base=base))


def linked(repository: Repository, path: Path) -> Repository:
    """Another tree of the same repository."""
    text = (path / ".git").read_text(errors="surrogateescape")
    git_dir = Path(os.path.realpath(path / text.removeprefix("gitdir: ").rstrip("\n")))
    return replace(repository, top=path, git_dir=git_dir, index=git_dir / "index", fence=None)


async def ls(repository: Repository, *, live: Collection[str] = ()) -> list[Worktree]:
    """All trees of a repository, its own first. `live`: the folders in which runs are being driven right now."""
    answer = await repository.git("worktree", "list", "--porcelain", "-z")
    entries = [entry for entry in os.fsdecode(answer.out).split("\0\0") if entry.strip("\0")]
    origins = await origins_of(repository)
    fallback = await default_branch(repository, None)
    return [
        await _look(repository, _parse(entry, main=number == 0), origins, fallback, live)
        for number, entry in enumerate(entries)
    ]


async def reclaimable(repository: Repository, *, live: Collection[str] = ()) -> list[Fate]:
    """What would be removed, and why the others would not."""
    if repository.private:
        return await plain_trees(repository, live=live)
    return [judge(tree) for tree in await ls(repository, live=live)]


async def remove(repository: Repository, path: Path, *, live: Collection[str] = ()) -> Fate:
    """Remove one worktree, judged anew; its branch is kept. Nothing is removed if the fate says no."""
    if repository.private:
        return await remove_plain(repository, path, live=live)
    wanted = os.path.realpath(path)
    trees = [tree for tree in await ls(repository, live=live) if os.path.realpath(tree.path) == wanted]
    if not trees:
        raise WishRefused(f"{path} is no worktree of {repository.top}: `untildone worktrees ls` shows them")
    fate = judge(trees[0])
    if fate.reclaimable:
        if fate.tree.gone:
            # Not by `prune`: it forgets every tree that is away, also one of the user's on a disk that is not mounted.
            forget_entry(repository.git_dir, fate.tree.path)
        else:
            # Without --force: git looks once more, and refuses if something changed since we did.
            await repository.git(*NO_HOOKS, "worktree", "remove", str(fate.tree.path))
    return fate


async def _refuse_bad_name(repository: Repository, branch: str) -> None:
    if (await repository.git("check-ref-format", "--branch", branch, check=False)).code or branch.startswith("-"):
        raise WishRefused(f"{branch!r} is no name for a branch: use letters, digits, - and /")
    if await branches(repository, f"refs/heads/{branch}"):
        raise WishRefused(f"branch {branch} exists already: a worktree gets a new one, choose another name")


async def _copy_ignored(repository: Repository, path: Path) -> None:
    """Copy what INCLUDE_FILE names, of the files that git ignores; no other file, and none outside of the tree."""
    if not (repository.top / INCLUDE_FILE).is_file():
        return
    others = ("ls-files", "-z", "--others", "--ignored")
    ignored = await repository.git(*others, "--exclude-standard")
    named = await repository.git(*others, f"--exclude-from={INCLUDE_FILE}")
    inside = path.resolve()
    for name in sorted({*ignored.out.split(b"\0")} & {*named.out.split(b"\0")} - {b""}):
        source, target = repository.top / os.fsdecode(name), path / os.fsdecode(name)
        # The commit may have a link where the user's tree has a folder.
        if target.parent.resolve().is_relative_to(inside) and not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def _parse(entry: str, *, main: bool) -> Worktree:
    facts = dict(line.partition(" ")[::2] for line in entry.strip("\0").split("\0"))
    head = facts.get("HEAD", "")
    return Worktree(
        path=Path(facts["worktree"]),
        head=head if head.strip("0") else None,
        branch=facts["branch"].removeprefix("refs/heads/") if "branch" in facts else None,
        main=main,
        locked="locked" in facts,
        gone="prunable" in facts,
    )


async def _look(
    repository: Repository,
    tree: Worktree,
    origins: dict[str, Origin],
    fallback: str | None,
    live: Collection[str],
) -> Worktree:
    origin = origins.get(tree.branch or "", Origin())
    base = origin.base or fallback
    known = replace(tree, base=base, run_id=origin.run_id, live=_is_live(tree.path, live))
    if tree.gone or not tree.path.is_dir():
        # Only git's own note of it is left; whose it was can still be told by the branch.
        return replace(known, gone=True, ours=bool(origin.base or origin.run_id))
    if tree.main:
        return known
    there = linked(repository, tree.path)
    status = parse_status((await there.git(*STATUS, "--ignore-submodules=none")).out)
    return replace(
        known,
        ours=(there.git_dir / _MARK).exists(),
        dirty=len(status.paths),
        under_way=under_way_in(there.git_dir),
        unmerged=await _unmerged(repository, tree.head, base),
        size=_size(tree.path),
        only_here=tuple(await only_here(there, repository.top, brought=INCLUDE_FILE, spared=NOTES_FILE)),
    )


async def _unmerged(repository: Repository, head: str | None, base: str | None) -> int:
    """How many commits the base does not have; none if merging them would change nothing (they were squashed)."""
    if head is None or base is None:
        return 0
    counted = await repository.git("rev-list", "--count", head, "--not", base, "--", check=False)
    if counted.code:
        return 1  # no such base: nobody can say that all is there
    if counted.text == "0":
        return 0
    merged = await repository.git("merge-tree", "--write-tree", base, head, check=False)
    tree = await repository.git("rev-parse", "-q", "--verify", f"{base}^{{tree}}", check=False)
    return 0 if merged.code == 0 and merged.text.partition("\n")[0] == tree.text else int(counted.text)


def _is_live(path: Path, live: Collection[str]) -> bool:
    place = Path(os.path.realpath(path))
    return any(Path(folder).is_relative_to(place) for folder in live)


def _size(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - quicker by far for many files
            except OSError:
                continue  # it has just gone
    return total
