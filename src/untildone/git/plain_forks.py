"""Forks of a folder without git: plain copies, remembered in the private history they were taken from."""

import os
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from untildone.git.commit import add_all
from untildone.git.repository import Repository
from untildone.git.run import disk_trouble
from untildone.git.worktree_fate import Fate, Worktree

_KEY = "untildone.fork"


async def remember_fork(repository: Repository, place: Path, commit: str) -> None:
    """Know it again later; it was made from this commit."""
    await repository.git("config", "--add", _KEY, f"{commit} {place}")


async def plain_trees(repository: Repository, *, live: Collection[str] = ()) -> list[Fate]:
    """The folder itself, then every fork of it: one may go if it holds nothing but what it was made from."""
    own = Worktree(path=repository.top, main=True, plain=True)
    fates = [Fate(tree=own, reclaimable=False, why="it is the folder itself")]
    asked = await repository.git("config", "-z", "--get-all", _KEY, check=False)
    for entry in os.fsdecode(asked.out).split("\0"):
        commit, _, place = entry.partition(" ")
        if place:
            fates.append(await _judge(repository, Path(place), commit, live))
    return fates


async def remove_plain(repository: Repository, place: Path, *, live: Collection[str] = ()) -> Fate:
    """Remove a fork, judged anew; what it was made from stays in the history."""
    fate = next(fate for fate in await plain_trees(repository, live=live) if fate.tree.path == place)
    if fate.reclaimable:
        with disk_trouble(f"cannot remove {place}"):
            shutil.rmtree(place, ignore_errors=fate.tree.gone)
        await repository.git("config", "--fixed-value", "--unset-all", _KEY, f"{fate.tree.head} {place}")
    return fate


async def _judge(repository: Repository, place: Path, commit: str, live: Collection[str]) -> Fate:
    here = Path(os.path.realpath(place))
    tree = Worktree(
        path=place,
        head=commit,
        ours=True,
        plain=True,
        gone=not place.is_dir(),
        live=any(Path(folder).is_relative_to(here) for folder in live),
    )
    if tree.gone:
        return Fate(tree=tree, reclaimable=True, why="its folder is gone already")
    if tree.live:
        return Fate(tree=tree, reclaimable=False, why="a run is at work in it")
    tree = replace(tree, dirty=await _changed(repository, place, commit))
    if tree.dirty:
        files = "1 file is" if tree.dirty == 1 else f"{tree.dirty} files are"
        return Fate(tree=tree, reclaimable=False, why=f"{files} not as in what it was made from")
    return Fate(tree=tree, reclaimable=True, why="it holds nothing but what it was made from")


async def _changed(repository: Repository, place: Path, commit: str) -> int:
    """How many files differ, ignored ones included: nobody else has them."""
    there = replace(repository, top=place)
    with disk_trouble(f"cannot look into {place}"), tempfile.TemporaryDirectory(prefix="untildone-") as folder:
        index = Path(folder) / "index"
        env = {"GIT_INDEX_FILE": str(index)}
        await there.git("read-tree", commit, env=env)
        ignored = await there.git("ls-files", "-z", "--others", "--ignored", "--exclude-standard", env=env)
        await add_all(there, index=index)
        differing = await there.git("diff-index", "-z", "--cached", "--name-only", commit, env=env)
    return len([*ignored.out.split(b"\0")[:-1], *differing.out.split(b"\0")[:-1]])
