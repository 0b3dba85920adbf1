"""The newest commit of a run, remembered under a private ref.

With it a HEAD that moved while nobody looked is noticed, and history that the agent rewrote is not lost: a commit
with a ref survives every reset, amend, rebase and garbage collection.
"""

from itertools import count

from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.snapshot import refs_of

_SHORT = 10


async def recorded_commit(repository: Repository, run_id: str) -> str | None:
    """The commit that was the newest when this run last looked."""
    asked = await repository.git("rev-parse", "-q", "--verify", _ref(run_id), check=False)
    return asked.text if asked.code == 0 else None


async def record_commit(repository: Repository, run_id: str, commit: str) -> None:
    """Remember `commit` as the newest one. If git refuses, only the comfort of it is lost."""
    await repository.git(*NO_HOOKS, "update-ref", _ref(run_id), commit, check=False)


async def lost_commit(repository: Repository, run_id: str, commit: str, head: str | None) -> str:
    """A line if `commit` is on no branch any more, and then keep it; nothing if all is well."""
    if await _contains(repository, head, commit):
        return ""
    asked = ("for-each-ref", "--count=1", f"--contains={commit}", "--format=%(refname)", "refs/heads", "refs/remotes")
    branches = await repository.git(*asked, check=False)
    if branches.code == 0 and branches.text:
        return ""
    lost = f"commit {commit[:_SHORT]} that this run built on is on no branch any more (reset, amended or rebased)"
    kept = await _free_kept_ref(repository, run_id)
    if (await repository.git(*NO_HOOKS, "update-ref", kept, commit, "", check=False)).code:
        return f"{lost}, and it could not be kept"
    return f"{lost}; it is kept as {kept}: `git branch NAME {kept}` brings it back"


async def moved_line(repository: Repository, run_id: str, recorded: str, head: str | None) -> str:
    """What to tell about a HEAD that is not the recorded commit; nothing if it is."""
    if head == recorded:
        return ""
    if not await _contains(repository, head, recorded):
        lost = await lost_commit(repository, run_id, recorded, head)
        return lost or f"this run's last commit {recorded[:_SHORT]} is not in what is checked out now"
    counted = (await repository.git("rev-list", "--count", f"{recorded}..{head}")).text
    made = "1 commit was" if counted == "1" else f"{counted} commits were"
    return f"{made} made since this run last recorded one ({recorded[:_SHORT]}): HEAD is now {(head or '')[:_SHORT]}"


async def _contains(repository: Repository, head: str | None, commit: str) -> bool:
    if head is None:
        return False
    return (await repository.git("merge-base", "--is-ancestor", commit, head, check=False)).code == 0


async def _free_kept_ref(repository: Repository, run_id: str) -> str:
    folder = refs_of(run_id)
    taken = set((await repository.git("for-each-ref", "--format=%(refname)", folder)).text.split("\n"))
    return next(ref for number in count(1) if (ref := f"{folder}/kept-{number}") not in taken)


def _ref(run_id: str) -> str:
    return f"{refs_of(run_id)}/recorded"
