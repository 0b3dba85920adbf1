"""Going on after the work was merged elsewhere: the branch learns that the base has it, and no file changes."""

from untildone.git.base import fast_forward
from untildone.git.commit import find_identity
from untildone.git.merging import is_ancestor, tree_of
from untildone.git.repository import NO_HOOKS, Repository


async def rejoin(repository: Repository, merged: str) -> bool:
    """Make a merge on the base part of the branch's history; whether the branch has it now.

    A squashed or rebased merge is another commit with the same content: without this, the next work on the same
    lines would conflict with what it is built on. Only where both hold exactly the same files.
    """
    head = (await repository.git("rev-parse", "--verify", "HEAD")).text
    known = await repository.git("cat-file", "-e", f"{merged}^{{commit}}", check=False)
    if known.code:
        return False
    if await is_ancestor(repository, merged, head):
        return True
    tree = await tree_of(repository, head)
    if tree != await tree_of(repository, merged):
        return False
    if not await is_ancestor(repository, head, merged):
        identity = await find_identity(repository)
        parents = ("-p", head, "-p", merged)
        message = f"Go on from {merged[:10]}, which holds the same\n".encode()
        merged = (await repository.git(*NO_HOOKS, *identity, "commit-tree", tree, *parents, stdin=message)).text
    await fast_forward(repository, merged)
    return True
