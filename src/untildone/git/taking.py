"""Taking a folder up again: what lies there uncommitted is the run's own if the run left it so, else a human's."""

from collections.abc import Sequence
from itertools import count

from untildone.errors import WorkspaceError
from untildone.git.index_file import with_entries
from untildone.git.merging import Conflict, three_way, tree_of
from untildone.git.repository import Repository
from untildone.git.snapshot import commit_tree, create_first, refs_of, save_tree, saved_states

_OF_THE_RUN = ("start", "left-", "found-")


async def strange_files(
    repository: Repository, run_id: str, dirty: Sequence[bytes], *, head: str | None, leave_out: Sequence[bytes]
) -> tuple[list[bytes], str]:
    """Which of these uncommitted files are not as the run left them, and a commit of the tree as it is now."""
    now = await save_tree(repository, parent=head, message="What was found", leave_out=leave_out)
    listed = await repository.git("for-each-ref", "--format=%(refname) %(tree)", refs_of(run_id))
    refs = (line.split(" ") for line in listed.text.split("\n") if line)
    known = {tree for ref, tree in refs if _is_of_the_run(ref.removeprefix(f"{refs_of(run_id)}/"))}
    if (await repository.git("rev-parse", f"{now}^{{tree}}")).text in known:
        return [], now
    # On another branch than at that time the rest of the tree differs: what counts is what is uncommitted.
    found = [await _differing(repository, now, left, dirty) for left in await _left_last(repository, run_id)]
    return min(found, key=len, default=list(dirty)), now


async def mark_left(repository: Repository, run_id: str, commit: str) -> str:
    """Remember a tree as what the run left behind when it stopped."""
    return await create_first(repository, (f"{refs_of(run_id)}/left-{number}" for number in count(1)), commit)


async def mark_stop(repository: Repository, run_id: str, commit: str) -> str:
    """Keep the tree of a stop, for the next driver to compare with."""
    return await create_first(repository, (f"{refs_of(run_id)}/stop-{number}" for number in count(1)), commit)


async def mark_found(repository: Repository, run_id: str, commit: str) -> str:
    """Keep the work of a human's that is to go along with the run's."""
    return await create_first(repository, (f"{refs_of(run_id)}/found-{number}" for number in count(1)), commit)


async def with_others_work(repository: Repository, run_id: str, base: str, left: str, now: str) -> str | None:
    """`base` with what people changed between the tree that the run left and the one found now; None: nothing.

    A file that the run changed too is theirs as they left it, if the two changes cannot be told apart.
    """
    asked = await repository.git("diff-tree", "-r", "-z", "--raw", "--no-renames", left, now, check=False)
    if asked.code or not asked.out:
        return None
    try:
        tree = await three_way(repository, left, base, now)
    except WorkspaceError:
        tree = Conflict(())  # an old git cannot merge without a working tree
    if isinstance(tree, Conflict):
        tree = await with_entries(repository, base, _raw_entries(asked.out))
    if tree == await tree_of(repository, base):
        return None
    said = f"{base[:10]} with what people changed while the run was stopped"
    commit = await commit_tree(repository, tree, parents=[base], message=said)
    await create_first(repository, (f"{refs_of(run_id)}/base-{number}" for number in count(1)), commit)
    return commit


def _raw_entries(raw: bytes) -> list[bytes]:
    """What `diff-tree --raw -z` says of the new side, as `update-index --index-info` reads it."""
    words = raw.split(b"\0")[:-1]
    pairs = zip(words[::2], words[1::2], strict=True)
    return [b"%b %b\t%b" % (facts.split(b" ")[1], facts.split(b" ")[3], path) for facts, path in pairs]


def _is_of_the_run(name: str) -> bool:
    return name[:1].isdigit() or name.startswith(_OF_THE_RUN)


async def _left_last(repository: Repository, run_id: str) -> list[str]:
    """The trees that may be the last one the run left: after an iteration, and at a stop."""
    own = [state.commit for state in await saved_states(repository, run_id) if not state.seen]
    pattern = f"{refs_of(run_id)}/left-*"
    stops = await repository.git(
        "for-each-ref", "--sort=-version:refname", "--count=1", "--format=%(objectname)", pattern
    )
    return [*own[-1:], *stops.text.split()]


async def _differing(repository: Repository, now: str, left: str, dirty: Sequence[bytes]) -> list[bytes]:
    answer = await repository.git("diff-tree", "-r", "-z", "--no-renames", "--name-only", left, now)
    names = {*answer.out.split(b"\0")}
    return [path for path in dirty if path in names]
