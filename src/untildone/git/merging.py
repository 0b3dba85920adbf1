"""Merged commits made in the object store alone: no working tree, no index and no branch is touched."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from untildone.core.dataclass import dataclass
from untildone.errors import WorkspaceError
from untildone.git.commit import find_identity
from untildone.git.landings import Landing
from untildone.git.repository import NO_HOOKS, PRIVATE_IDENTITY, Repository
from untildone.git.run import GitResult, first_line

Strategy = Literal["squash", "merge", "rebase"]

OLDEST_GIT = (2, 38)

_VERSION = re.compile(r"(\d+)\.(\d+)")
_CONFLICT = 1
_AUTHOR = re.compile(rb"^author (.*) <(.*)> (\d+ [+-]\d+)$", re.MULTILINE)
_ENCODING = re.compile(rb"^encoding (.+)$", re.MULTILINE)
# Auxiliary commits are the same whenever they are made, so that repeating a merge adds nothing to the repository.
_TIMELESS = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a run wants to bring to a base."""

    run_id: str
    commit: str
    message: str
    strategy: Strategy
    name: str = ""
    """What people call the run."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two histories that git cannot bring together by itself."""

    files: tuple[str, ...]


async def require_merge_tree(repository: Repository) -> None:
    """WorkspaceError when this git cannot merge without a working tree."""
    said = (await repository.git("version")).text
    found = _VERSION.search(said)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        oldest = ".".join(map(str, OLDEST_GIT))
        raise WorkspaceError(f"landing by merge needs git {oldest} or newer, here is {said!r}: update git")


async def merge_onto(
    repository: Repository, tip: str, work: Work, landings: Sequence[Landing], *, verified: bool = True
) -> Landing | Conflict:
    """The commit that `tip` becomes with this work in it; `tip` itself when there is nothing to add.

    `landings` are the earlier ones of the same run.
    """
    tree = await _combined(repository, tip, work.commit, landings)
    if isinstance(tree, Conflict):
        return tree
    if tree == await tree_of(repository, tip):
        return Landing(commit=work.commit, onto=tip, merged=tip, verified=verified)
    merged = await _replayed(repository, tip, work, landings) if work.strategy == "rebase" else None
    if merged is None:
        parents = (tip, work.commit) if work.strategy == "merge" else (tip,)
        merged = await _commit(repository, tree, parents, work.message.encode("utf-8", "replace"))
    return Landing(commit=work.commit, onto=tip, merged=merged, verified=verified)


async def genuine(repository: Repository, landings: Sequence[Landing]) -> list[Landing]:
    """Those, newest first, whose merged commit really holds the work: whoever can write a ref can claim a landing."""
    found: list[Landing] = []
    for one in reversed(landings):
        tree = await tree_of(repository, one.merged)
        holds = await _merged_tree(repository, one.merged, one.commit) == tree
        # What others have changed since an earlier landing is no contradiction: compare as the landing itself did.
        holds = holds or (bool(found) and await _combined(repository, one.merged, one.commit, found[::-1]) == tree)
        if holds and await is_ancestor(repository, one.onto, one.merged):
            found.append(one)
    return found[::-1]


async def undone(repository: Repository, tip: str, landing: Landing, message: str) -> str | Conflict:
    """A commit on `tip` that takes a landing back, and nothing that came after it."""
    tree = await three_way(repository, landing.merged, tip, landing.onto)
    if isinstance(tree, Conflict):
        return tree
    return await _commit(repository, tree, (tip,), message.encode("utf-8", "replace"))


async def tree_of(repository: Repository, commit: str) -> str:
    """The hash of a commit's tree."""
    return (await repository.git("rev-parse", "--verify", f"{commit}^{{tree}}")).text


async def is_ancestor(repository: Repository, commit: str, of: str) -> bool:
    """Whether `of` contains `commit`."""
    asked = await repository.git("merge-base", "--is-ancestor", commit, of, check=False)
    if asked.code not in (0, 1):
        raise WorkspaceError(f"git cannot compare {commit[:10]} and {of[:10]}: {first_line(asked.err)}")
    return asked.code == 0


async def brings_nothing(repository: Repository, tip: str, commit: str) -> bool:
    """Whether all that `commit` holds is in `tip` already, squashed or not."""
    if await is_ancestor(repository, commit, tip):
        return True
    try:
        return await _merged_tree(repository, tip, commit) == await tree_of(repository, tip)
    except WorkspaceError:
        return False  # an old git cannot tell


async def _combined(repository: Repository, tip: str, commit: str, landings: Sequence[Landing]) -> str | Conflict:
    """The tree of both. A squashed landing is part of the tip although its history does not say so: now it does."""
    mine = [one for one in landings if await is_ancestor(repository, one.commit, commit)]
    lost = [one for one in mine if one.reverted]
    if lost and not await is_ancestor(repository, tip, commit):
        # History says that what was taken back is there already. Compare with what the work was built on instead.
        ancestor = (await repository.git("merge-base", lost[0].onto, lost[0].commit)).text
        return await three_way(repository, ancestor, tip, commit)
    there = [one.commit for one in mine if not one.reverted]
    ours = await _auxiliary(repository, tip, (tip, *there)) if there else tip
    return await _merged_tree(repository, ours, commit)


async def three_way(repository: Repository, ancestor: str, ours: str, theirs: str) -> str | Conflict:
    """The classic merge with a given ancestor (`merge-tree --merge-base` is younger than the git people have)."""
    sides = [await _auxiliary(repository, side, (ancestor,)) for side in (ours, theirs)]
    return await _merged_tree(repository, *sides)


async def _merged_tree(repository: Repository, ours: str, theirs: str) -> str | Conflict:
    asked = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    answer = await repository.git(*NO_HOOKS, *asked, check=False)
    tree, *files = os.fsdecode(answer.out).rstrip("\0").split("\0")
    if answer.code == 0:
        return tree
    if answer.code == _CONFLICT and files:
        return Conflict(tuple(dict.fromkeys(files)))
    raise WorkspaceError(f"git cannot merge {theirs[:10]} into {ours[:10]}: {first_line(answer.err)}")


async def _replayed(repository: Repository, tip: str, work: Work, landings: Sequence[Landing]) -> str | None:
    """The run's own commits one by one on top of `tip`; None when they are no line, or do not apply one by one."""
    there = [f"^{one.commit}" for one in landings if not one.reverted]
    listed = await repository.git("rev-list", "--reverse", "--topo-order", "--parents", work.commit, f"^{tip}", *there)
    lines = [line.split() for line in listed.text.splitlines()]
    if any(len(line) != 2 for line in lines):  # noqa: PLR2004 - a commit and its only parent
        return None
    top = tip
    for commit, parent in lines:
        if parent == top:
            top = commit  # nothing came in between: the very same commit
            continue
        tree = await three_way(repository, parent, top, commit)
        if isinstance(tree, Conflict):
            return None
        if tree != await tree_of(repository, top):
            top = await _copied(repository, commit, tree, top)
    return top


async def _copied(repository: Repository, commit: str, tree: str, parent: str) -> str:
    """The same author, date and words on another tree."""
    raw = (await repository.git("cat-file", "commit", commit)).out
    header, _, message = raw.partition(b"\n\n")
    author, encoding = _AUTHOR.search(header), _ENCODING.search(header)
    env = {}
    if author is not None:
        name, mail, date = map(os.fsdecode, author.groups())
        env = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": mail, "GIT_AUTHOR_DATE": f"@{date}"}
    written_in = ("-c", f"i18n.commitEncoding={os.fsdecode(encoding[1])}") if encoding else ()
    return await _commit(repository, tree, (parent,), message, env=env, options=written_in)


async def _auxiliary(repository: Repository, tree_from: str, parents: Sequence[str]) -> str:
    """A commit that only tells git what to compare; nothing refers to it, so git throws it away some day."""
    named = [word for parent in parents for word in ("-p", parent)]
    args = (*PRIVATE_IDENTITY, "commit-tree", f"{tree_from}^{{tree}}", *named)
    return (await repository.git(*args, stdin=b"auxiliary\n", env=_TIMELESS)).text


async def _commit(
    repository: Repository,
    tree: str,
    parents: Sequence[str],
    message: bytes,
    *,
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> str:
    identity = await find_identity(repository)
    signed = await repository.git("config", "--type=bool", "--get", "commit.gpgSign", check=False)
    sign = ("-S",) if signed.text == "true" else ()
    named = [word for parent in parents for word in ("-p", parent)]
    made: GitResult = await repository.git(
        *identity, *options, "commit-tree", *sign, tree, *named, stdin=message, env=env
    )
    return made.text
