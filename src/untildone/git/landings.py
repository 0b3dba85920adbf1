"""What a run has landed, written down in git before the base is moved: after a death it tells what has happened.

Under `refs/untildone/<run>/landed/<commit>` lies a commit with two parents, the base as it was and the base as it
was to become; under `refs/untildone/<run>/reverted/<merged>` the commit that takes a landing back. Either has
happened when the base contains it.
"""

from collections.abc import Container

from untildone.core.dataclass import dataclass
from untildone.git.repository import NO_HOOKS, PRIVATE_IDENTITY, Repository
from untildone.git.snapshot import refs_of

_UNSEEN = "landed before it was verified"
_SEEN = "landed"
_LOOKED_AT = 8
"""The newest landings of a run: older ones are in the history of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """A commit of a run on its way to a base."""

    commit: str
    onto: str
    """The base before."""
    merged: str
    """The base afterwards."""
    verified: bool = True
    """Exactly this was verified before."""
    reverted: bool = False
    """It was on the base and was taken back."""


async def write_landing(repository: Repository, run_id: str, landing: Landing) -> None:
    """Write down what is about to happen."""
    said = _SEEN if landing.verified else _UNSEEN
    tree = f"{landing.merged}^{{tree}}"
    parents = [word for parent in dict.fromkeys((landing.onto, landing.merged)) for word in ("-p", parent)]
    made = await repository.git(*PRIVATE_IDENTITY, "commit-tree", tree, *parents, stdin=f"{said}\n".encode())
    ref = f"{refs_of(run_id)}/landed/{landing.commit}"
    await repository.git(*NO_HOOKS, "update-ref", ref, made.text)


async def write_revert(repository: Repository, run_id: str, merged: str, revert: str) -> None:
    """Write down that a landing is about to be taken back."""
    await repository.git(*NO_HOOKS, "update-ref", f"{refs_of(run_id)}/reverted/{merged}", revert)


async def landings_on(repository: Repository, run_id: str, tip: str) -> list[Landing]:
    """The newest landings of a run that this base contains, also those that were taken back; newest first."""
    mine = refs_of(run_id)
    reverted = await reverts_of(repository, run_id, tip)
    shape = "--format=%(refname:lstrip=4) %(parent) %(contents:subject)"
    asked = ("for-each-ref", "--sort=-committerdate", f"--count={_LOOKED_AT}", shape, f"{mine}/landed")
    found = []
    for line in (await repository.git(*asked)).text.splitlines():
        landing = _parsed(line, reverted)
        if await _holds(repository, tip, landing.merged):
            found.append(landing)
    return found


async def reverts_of(repository: Repository, run_id: str, tip: str) -> dict[str, str]:
    """Which landings were taken back on this base, and by which commit."""
    asked = ("for-each-ref", f"--merged={tip}", "--format=%(refname) %(objectname)", f"{refs_of(run_id)}/reverted")
    lines = (line.split() for line in (await repository.git(*asked)).text.splitlines())
    return {ref.rpartition("/")[2]: revert for ref, revert in lines}


def _parsed(line: str, reverted: Container[str]) -> Landing:
    commit, *rest = line.split(" ")
    parents = [word for word in rest[:2] if len(word) == len(commit)]
    said = " ".join(rest[len(parents) :])
    return Landing(
        commit=commit,
        onto=parents[0],
        merged=parents[-1],
        verified=said != _UNSEEN,
        reverted=parents[-1] in reverted,
    )


async def _holds(repository: Repository, tip: str, commit: str) -> bool:
    return (await repository.git("merge-base", "--is-ancestor", commit, tip, check=False)).code == 0
