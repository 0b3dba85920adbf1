"""Commits made or taken away behind the loop's back.

Every state of a run has a private ref, and a commit with a ref survives every reset, amend, rebase and garbage
collection. So history that the agent rewrote is noticed, and never lost.
"""

from itertools import count

from untildone.git.repository import Repository
from untildone.git.snapshot import SavedState, create_first, has_ref, seen_ref

_SHORT = 10


async def record_seen(repository: Repository, run_id: str, newest: SavedState | None, head: str) -> SavedState:
    """Remember what is checked out now, although no iteration of this run left it like that."""
    number = newest.number if newest else 0
    ref = await create_first(repository, (seen_ref(run_id, number, again) for again in count(1)), head)
    return SavedState(number=number, ref=ref, commit=head, head=head, seen=True)


async def lost_commit(repository: Repository, recorded: SavedState, head: str | None) -> str:
    """A line if the recorded commit is on no branch any more; nothing if all is well."""
    commit = recorded.head
    if commit is None or await contains(repository, head, commit):
        return ""
    asked = ("for-each-ref", "--count=1", f"--contains={commit}", "--format=%(refname)", "refs/heads", "refs/remotes")
    branches = await repository.git(*asked, check=False)
    if branches.code == 0 and branches.text:
        return ""
    short = commit[:_SHORT]
    lost = f"commit {short} that this run built on is on no branch any more (reset, amended or rebased)"
    if not await has_ref(repository, recorded.ref):
        return f"{lost}, and it could not be kept"
    return f"{lost}; it is kept by {recorded.ref}: `git branch NAME {short}` brings it back"


async def moved_line(repository: Repository, recorded: SavedState, head: str | None) -> str:
    """What to tell about a HEAD that is not the recorded commit; nothing if it is."""
    if recorded.head is None or recorded.head == head:
        return ""
    short = recorded.head[:_SHORT]
    if not await contains(repository, head, recorded.head):
        lost = await lost_commit(repository, recorded, head)
        return lost or f"this run's last commit {short} is not in what is checked out now"
    counted = (await repository.git("rev-list", "--count", f"{recorded.head}..{head}")).text
    made = "1 commit was" if counted == "1" else f"{counted} commits were"
    return f"{made} made since this run last recorded one ({short}): HEAD is now {(head or '')[:_SHORT]}"


async def contains(repository: Repository, head: str | None, commit: str) -> bool:
    """Whether a commit is in the history of another one."""
    if head is None:
        return False
    return (await repository.git("merge-base", "--is-ancestor", commit, head, check=False)).code == 0
