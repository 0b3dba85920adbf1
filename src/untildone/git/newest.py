"""The newest work of a run that comes from another machine: what it pushed may be more than what it sent along.

A machine that dies has perhaps told the server of a commit, or brought it to the remote, and had no time to send the
tree. What the remote has of the run's own branch is taken from there; what can be had nowhere is named.
"""

from dataclasses import replace

from untildone.core.dataclass import dataclass
from untildone.git.bundle import HASH, TreeFacts
from untildone.git.recorded import contains
from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.run import COMMIT_TIMEOUT, UNATTENDED
from untildone.git.snapshot import refs_of

FETCH = ("fetch", "-q", "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules", "--no-tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the log of a run says about its commits."""

    newest: str | None = None
    """The last one it made."""
    pushed: str | None = None
    """What the remote got last."""
    pushes: bool = False
    """It brings its branch to the remote."""


async def caught_up(
    repository: Repository, facts: TreeFacts, known: Known, *, remote: str
) -> tuple[TreeFacts, str | None]:
    """The same facts, about the newest commit there is; and the one that can be had nowhere, if it is missing."""
    newest = facts.replaced.get(known.newest or "", known.newest)
    wanted = newest if newest is not None and HASH.fullmatch(newest) else None
    missing = await _unless_here(repository, wanted)
    if facts.head is None or repository.private:
        return facts, missing
    tip = None
    if missing or known.pushes:
        tip = await _pushed(repository, facts, remote)
        missing = await _unless_here(repository, wanted)
    target = wanted if wanted is not None and not missing else facts.head
    if tip is not None and await contains(repository, tip, target) and await _is_ours(repository, tip, facts, known):
        target = tip
    if target == facts.head or not await contains(repository, target, facts.head):
        return facts, missing
    return replace(facts, packed=target, head=target), missing


async def _is_ours(repository: Repository, tip: str, facts: TreeFacts, known: Known) -> bool:
    """Whether it holds a commit of this run's: a branch of the same name may be anybody's."""
    made = {commit for commit in (known.newest, known.pushed) if commit and HASH.fullmatch(commit)}
    start = facts.refs.get("start")
    if facts.head and start and not await contains(repository, start, facts.head):
        made.add(facts.head)
    return any([await contains(repository, tip, commit) for commit in made - {start}])


async def _unless_here(repository: Repository, commit: str | None) -> str | None:
    if commit is None:
        return None
    found = await repository.git("cat-file", "-e", f"{commit}^{{commit}}", check=False)
    return commit if found.code else None


async def _pushed(repository: Repository, facts: TreeFacts, remote: str) -> str | None:
    """Where the run's branch stands on the remote; None when it is not there, or nobody answers."""
    named = await repository.git("check-ref-format", f"refs/heads/{facts.branch}", check=False)
    if facts.branch is None or named.code:
        return None
    here = f"{refs_of(facts.run_id)}/remote"
    asked = (*NO_HOOKS, *FETCH, remote, f"+refs/heads/{facts.branch}:{here}")
    done = await repository.git(*asked, env=UNATTENDED, check=False, timeout=COMMIT_TIMEOUT)
    tip = await repository.git("rev-parse", "-q", "--verify", f"{here}^{{commit}}", check=False)
    return tip.text if done.code == 0 and tip.code == 0 else None
