"""Saving the whole tree under private refs, without touching tree, index, HEAD, stash or branches.

A run's refs are made once and never move: `start`, then one for each iteration that left something new. Where the
tree is clean it is the commit itself; otherwise a commit that belongs to no branch and names the HEAD of its moment.
"""

import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.errors import WorkspaceError
from untildone.git.admission import Refused
from untildone.git.commit import add_all, take_out_new_repositories
from untildone.git.plain_file import copy_plain
from untildone.git.repository import NO_HOOKS, PRIVATE_EMAIL, Repository
from untildone.git.run import disk_trouble, first_line

_HEAD = "Untildone-Head"
_NO_HEAD = "none"
# By the environment: a person's GIT_COMMITTER_EMAIL or `committer.email` outdoes any `user.email` that is given.
BY_US = {
    f"GIT_{who}_{what}": said
    for who in ("AUTHOR", "COMMITTER")
    for what, said in (("NAME", "untildone"), ("EMAIL", PRIVATE_EMAIL))
}
"""The environment in which a commit is ours."""
HEAD_TRAILER = f"%(contents:trailers:key={_HEAD},valueonly)"
"""What git is asked for to tell a state that belongs to no branch."""
_LISTED = f"--format=%01%(refname)%00%(objectname)%00%(committeremail)%00{HEAD_TRAILER}%00"
_NAME = re.compile(r"(?P<seen>seen-)?(?P<number>start|\d+)(?:-(?P<again>\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """The tree at a moment of a run."""

    number: int
    """The iteration it was after; 0: as the run found it."""
    ref: str
    commit: str
    head: str | None
    """The commit that was checked out; None: there was none yet."""
    again: int = 1
    """One iteration may be tried several times."""
    seen: bool = False
    """Found by a later driver, not left by the iteration."""


def refs_of(run_id: str) -> str:
    """Where the snapshots of a run are kept."""
    return f"refs/untildone/{re.sub(r'[^A-Za-z0-9_-]+', '-', run_id)}"


def start_ref(run_id: str) -> str:
    """The tree as the run found it. Its presence tells that the run has begun."""
    return f"{refs_of(run_id)}/start"


def iteration_ref(run_id: str, number: int) -> str:
    """The tree as an iteration left it."""
    return f"{refs_of(run_id)}/{number}"


def seen_ref(run_id: str, number: int, again: int) -> str:
    """What a new driver found checked out after an iteration, where that is not what the iteration left."""
    return f"{refs_of(run_id)}/seen-{number}-{again}"


async def save_tree(
    repository: Repository, *, parent: str | None, message: str, leave_out: Sequence[bytes] = ()
) -> str:
    """Write the whole tree as it is now into a commit that belongs to no branch; returns its hash."""
    tree = await write_tree(repository, leave_out=leave_out, but=parent)
    return await commit_tree(repository, tree, parents=[parent] if parent else [], message=message)


async def write_tree(repository: Repository, *, leave_out: Sequence[bytes] = (), but: str | None = None) -> str:
    """The whole tree as it is now, as an object of the repository. `but`: a commit that has most of it."""
    agents = repository.agents
    with scratch_index(agents) as index:
        await add_all(agents, leave_out=leave_out, index=index)
        try:
            return await _written(repository, index, but)
        except Refused:
            if not await take_out_new_repositories(agents, index):
                raise
            return await _written(repository, index, but)


async def _written(repository: Repository, index: Path, but: str | None) -> str:
    tree = (await repository.agents.git(*NO_HOOKS, "write-tree", env={"GIT_INDEX_FILE": str(index)})).text
    return await repository.taken(tree, but)


@contextmanager
def scratch_index(repository: Repository) -> Iterator[Path]:
    """A copy of the index to work with, so that only what changed must be read again."""
    with disk_trouble("cannot save the tree"), ExitStack() as cleaning:
        if repository.real is None:
            folder = Path(cleaning.enter_context(tempfile.TemporaryDirectory(prefix="untildone-")))
            index = folder / "index"
        else:  # where a git inside finds it
            index = repository.git_dir / f"untildone-{secrets.token_hex(8)}"
            for left in (index, index.with_name(f"{index.name}.lock")):
                cleaning.callback(left.unlink, missing_ok=True)
        copy_index(repository, index)
        yield index


def copy_index(repository: Repository, place: Path) -> None:
    """A copy to work with, so that only what changed must be read again."""
    if repository.index.exists():
        copy_plain(repository.index, place)


async def commit_tree(repository: Repository, tree: str, *, parents: Sequence[str], message: str) -> str:
    """A commit that belongs to no branch; its first parent is remembered as the HEAD of this moment."""
    text = f"{message.rstrip()}\n\n{_HEAD}: {parents[0] if parents else _NO_HEAD}\n"
    flags = [word for parent in parents for word in ("-p", parent)]
    said = text.encode("utf-8", "replace")
    return (await repository.git("commit-tree", tree, *flags, stdin=said, env=BY_US)).text


async def create_ref(repository: Repository, wanted: str, commit: str) -> str:
    """Make `wanted`, or the same with -2, -3 ... where another commit has the name: no ref is ever moved."""
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    return await create_first(repository, names, commit, reuse=True)


async def create_first(repository: Repository, names: Iterable[str], commit: str, *, reuse: bool = False) -> str:
    """Make the first ref of these that does not exist; with `reuse`, one that is of this commit already will do.

    Names are tried instead of looked for: a list of all refs would grow with the run.
    """
    for ref in names:
        made = await repository.git(*NO_HOOKS, "update-ref", ref, commit, "", check=False)
        if made.code == 0:
            return ref
        held = await repository.git("rev-parse", "-q", "--verify", ref, check=False)
        if held.code:
            raise WorkspaceError(f"git cannot keep the work as {ref}: {first_line(made.err)}")
        if reuse and held.text == commit:
            return ref  # made by a driver that died before it could say so
    raise AssertionError("names do not run out")


async def saved_states(repository: Repository, run_id: str) -> list[SavedState]:
    """All that is saved of a run, in the order of its iterations."""
    folder = refs_of(run_id)
    listed = (await repository.git("for-each-ref", _LISTED, folder)).out.decode("utf-8", "replace")
    found = (_parse(entry, folder) for entry in listed.split("\x01")[1:])
    return sorted((state for state in found if state), key=lambda state: (state.number, state.seen, state.again))


def state_after(states: Iterable[SavedState], number: int) -> SavedState | None:
    """The tree after this iteration: one that changed nothing has none of its own, so an earlier one may be it."""
    fitting = [state for state in states if state.number <= number and not state.seen]
    return max(fitting, key=lambda state: (state.number, state.again), default=None)


async def has_ref(repository: Repository, ref: str) -> bool:
    """Whether this ref exists."""
    return (await repository.git("rev-parse", "-q", "--verify", ref, check=False)).code == 0


def free_name(wanted: str, taken: set[str]) -> str:
    """The first of `wanted`, `wanted`-2, `wanted`-3 ... that is not taken."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name


def _parse(entry: str, folder: str) -> SavedState | None:
    ref, commit, committer, trailer = entry.split("\0")[:4]
    name = _NAME.fullmatch(ref.removeprefix(f"{folder}/"))
    if name is None:
        return None
    # Anybody may write such a trailer; only our own commits are believed to be about another commit.
    named = trailer.strip() if committer == f"<{PRIVATE_EMAIL}>" else ""
    return SavedState(
        number=0 if name["number"] == "start" else int(name["number"]),
        ref=ref,
        commit=commit,
        head=None if named == _NO_HEAD else named or commit,
        again=int(name["again"] or 1),
        seen=bool(name["seen"]),
    )
