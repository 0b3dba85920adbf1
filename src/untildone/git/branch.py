"""Which branch a run's commits go to: never the one they are to land on, unless nobody asked to spare it."""

import re
from collections.abc import Mapping
from hashlib import sha256

from untildone.core.dataclass import dataclass
from untildone.core.policy import RunSpec
from untildone.core.printable import one_line
from untildone.errors import WorkspaceError
from untildone.git.merging import brings_nothing
from untildone.git.repository import NO_HOOKS, Repository
from untildone.git.run import obstacle
from untildone.git.snapshot import free_name, has_ref
from untildone.git.status import Status

_SHORT = 10
_OWNER, _BASE, _FROM = "untildone-run", "untildone-base", "untildone-from"
_SLUG_BYTES = 100
"""A branch name is a file name too, and git needs room in it for a suffix of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where commits go."""

    lines: tuple[str, ...]
    """To tell the user."""
    branch: str | None
    base: str | None
    """The branch they are meant for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What is remembered with a branch that was made for a run."""

    run_id: str = ""
    base: str = ""
    """The branch its work is meant for."""
    began: str = ""
    """The branch and the commit it was made from, with a space in between."""


async def settle_on_branch(
    repository: Repository, status: Status, spec: RunSpec, *, run_id: str, own: str | None = None
) -> Place:
    """Choose where commits go, and switch there if that is a branch of the run's own.

    `own`: the one that a run which is taken up again has worked on.
    """
    current, wanted = status.branch, spec.landing.base
    default = await default_branch(repository, current, remote=spec.landing.remote)
    if own is not None and own != current and await branches(repository, f"refs/heads/{own}"):
        base = wanted or (await origins_of(repository)).get(own, Origin()).base or default
        return await _go_back(repository, current, own, base)
    if current is None or status.head is None:
        return _where_it_is(status, wanted, default)
    origins = await origins_of(repository)
    if origins.get(current, Origin()).run_id != run_id and (newest := await _newest_of(repository, origins, run_id)):
        return await _go_back(repository, current, newest, wanted or origins[newest].base or current)
    landed = await _landed_on(repository, status.head, current, origins, run_id) if spec.branch else None
    if landed is not None and (place := await _after_another_run(repository, landed, spec, run_id)) is not None:
        return place
    target = wanted or (current if spec.landing.land == "merge" else default)
    if not spec.branch or (current in origins) or current not in {default, target}:
        base = wanted or origins.get(current, Origin()).base or default
        return await _stay(repository, current, base, origins, run_id)
    return await _make_own_branch(repository, current, spec, run_id)


def _where_it_is(status: Status, wanted: str | None, default: str | None) -> Place:
    """Without a branch, or without a commit, there is nothing to begin a branch with."""
    if status.branch is None:
        line = f"HEAD is detached at {(status.head or '')[:_SHORT]}: commits go there; `git switch -c NAME` names them"
        return Place(lines=(line,), branch=None, base=wanted or default)
    line = f"the repository has no commit yet: commits go to branch {status.branch}"
    return Place(lines=(line,), branch=status.branch, base=wanted)


async def default_branch(repository: Repository, current: str | None, *, remote: str = "origin") -> str | None:
    """The repository's main line: as the remote says, else by its usual names; None where there is none of these."""
    head = f"refs/remotes/{remote}/HEAD"
    asked = await repository.git("symbolic-ref", "-q", head, check=False)
    if asked.code == 0:
        return asked.text.removeprefix(f"refs/remotes/{remote}/")
    configured = await repository.git("config", "--get", "init.defaultBranch", check=False)
    usual = [name for name in (configured.text, "main", "master") if name]
    if current in usual:
        return current
    there = await branches(repository, *(f"refs/heads/{name}" for name in usual))
    return next((name for name in usual if name in there), None)


async def branches(repository: Repository, *patterns: str) -> set[str]:
    """The names of the local branches that match."""
    answer = await repository.git("for-each-ref", "--format=%(refname:strip=2)", *(patterns or ("refs/heads",)))
    return set(answer.text.split("\n")) - {""}


async def origins_of(repository: Repository) -> dict[str, Origin]:
    """Every branch that was made for a run, the newest last."""
    asked = await repository.git(
        "config", "-z", "--get-regexp", rf"^branch\..*\.({_OWNER}|{_BASE}|{_FROM})$", check=False
    )
    found: dict[str, dict[str, str]] = {}
    for entry in asked.text.split("\0"):
        key, _, value = entry.partition("\n")
        name, _, kind = key.removeprefix("branch.").rpartition(".")
        if name:
            found.setdefault(name, {})[kind] = value
    return {
        name: Origin(run_id=kinds.get(_OWNER, ""), base=kinds.get(_BASE, ""), began=kinds.get(_FROM, ""))
        for name, kinds in found.items()
    }


async def remember_origin(repository: Repository, branch: str, origin: Origin) -> None:
    """Kept with the branch, so that git forgets it when the user deletes the branch."""
    for key, value in ((_OWNER, origin.run_id), (_BASE, origin.base), (_FROM, origin.began)):
        if value:
            await repository.git("config", f"branch.{branch}.{key}", value)


def slug(name: str) -> str:
    """A text as a part of a branch's name, and of a folder's."""
    short = re.sub(r"[^\w-]+", "-", name).strip("-") or "run"
    if len(short.encode()) <= _SLUG_BYTES:
        return short
    # Names that differ only further on must not get the same branch.
    cut = short.encode()[:_SLUG_BYTES].decode(errors="ignore").rstrip("-")
    return f"{cut}-{sha256(name.encode('utf-8', 'replace')).hexdigest()[:4]}"


async def _stay(
    repository: Repository, current: str, base: str | None, origins: Mapping[str, Origin], run_id: str
) -> Place:
    origin = origins.get(current)
    if origin is not None and not origin.run_id:
        # Made together with a worktree, for the first run that works there.
        origin = Origin(run_id=run_id)
        await remember_origin(repository, current, origin)
    lines = (f"commits go to branch {current}", *_strangers_branch(current, origin, run_id))
    return Place(lines=lines, branch=current, base=base)


async def _make_own_branch(repository: Repository, current: str, spec: RunSpec, run_id: str) -> Place:
    if spec.branch_per == "iteration":
        line = f"every iteration gets a branch of its own (from {current})"
        return Place(lines=(line,), branch=current, base=spec.landing.base or current)
    branch = free_name(spec.branch_prefix + slug(spec.name), await branches(repository))
    base = spec.landing.base or current
    start = (await repository.git("rev-parse", "--verify", "HEAD")).text
    # Remembered first: a driver that dies before the switch makes the same branch again, and none forgets its base.
    await remember_origin(repository, branch, Origin(run_id=run_id, base=base, began=f"{current} {start}"))
    # No file changes, so there is nothing a checkout hook could have to do.
    await repository.agents.git(*NO_HOOKS, "switch", "-q", "-c", branch)
    return Place(lines=(f"commits go to the new branch {branch} (from {current})",), branch=branch, base=base)


async def _after_another_run(repository: Repository, landed: str, spec: RunSpec, run_id: str) -> Place | None:
    """Begin at the base that has all of the branch that is checked out; None where files are in the way.

    The base itself may be checked out elsewhere: that of a worktree is.
    """
    there = ("switch", "-q", "--no-overwrite-ignore")
    if spec.branch_per == "iteration":
        done = await repository.agents.git(*there, landed, check=False)
        return None if done.code else await _make_own_branch(repository, landed, spec, run_id)
    branch = free_name(spec.branch_prefix + slug(spec.name), await branches(repository))
    base = spec.landing.base or landed
    start = (await repository.git("rev-parse", "--verify", f"refs/heads/{landed}^{{commit}}")).text
    done = await repository.agents.git(*there, "--no-track", "-c", branch, start, check=False)
    if done.code:
        return None
    await remember_origin(repository, branch, Origin(run_id=run_id, base=base, began=f"{landed} {start}"))
    return Place(lines=(f"commits go to the new branch {branch} (from {landed})",), branch=branch, base=base)


async def take_back_unused(repository: Repository, status: Status, *, run_id: str) -> str | None:
    """Leave and delete the branch of a run that has made nothing; returns the branch that is current now.

    Uncommitted files may be the run's work: then it stays.
    """
    origin = (await origins_of(repository)).get(status.branch or "", Origin())
    source, _, start = origin.began.rpartition(" ")
    if status.branch is None or status.paths or origin.run_id != run_id or not source or start != status.head:
        return status.branch
    if not await branches(repository, f"refs/heads/{source}"):
        return status.branch
    gone = await repository.agents.git("switch", "-q", "--no-overwrite-ignore", source, check=False)
    if gone.code:
        return status.branch  # it is checked out elsewhere by now
    await forget_branch(repository, status.branch, start)
    return source


async def forget_merged(repository: Repository, *, base: str, run_id: str, remote: str) -> None:
    """Delete the branches of a run whose work is in the base and which its remote does not have any more."""
    asked = ("for-each-ref", "--format=%(refname:strip=2) %(objectname) %(worktreepath)", "refs/heads")
    listed = [line.split(" ", 2) for line in (await repository.git(*asked)).text.split("\n") if line]
    origins = await origins_of(repository)
    for name, tip, place in ([*line, ""][:3] for line in listed):
        is_own = origins.get(name, Origin()).run_id == run_id and name != base and not place
        if not is_own or await has_ref(repository, f"refs/remotes/{remote}/{name}"):
            continue
        if await brings_nothing(repository, f"refs/heads/{base}", tip):
            await forget_branch(repository, name, tip)


async def forget_branch(repository: Repository, branch: str, tip: str) -> None:
    """Delete a branch if it is still there, and what git remembers of it."""
    done = await repository.git(*NO_HOOKS, "update-ref", "-d", f"refs/heads/{branch}", tip, check=False)
    if done.code == 0:
        await repository.git("config", "--remove-section", f"branch.{branch}", check=False)


async def _landed_on(
    repository: Repository, head: str, current: str, origins: Mapping[str, Origin], run_id: str
) -> str | None:
    """The base that has all of the branch that is checked out, if that is the branch of another run."""
    origin = origins.get(current, Origin())
    if origin.run_id in {"", run_id} or origin.base in {"", current}:
        return None
    if not await branches(repository, f"refs/heads/{origin.base}"):
        return None
    return origin.base if await brings_nothing(repository, f"refs/heads/{origin.base}", head) else None


async def _go_back(repository: Repository, current: str | None, own: str, base: str | None) -> Place:
    done = await repository.agents.git("switch", "-q", own, check=False)
    if done.code:
        raise WorkspaceError(f"git cannot go back to this run's branch {own} in {repository.top}: {obstacle(done)}")
    line = f"back on this run's branch {own} (from {current or 'a detached HEAD'})"
    return Place(lines=(line,), branch=own, base=base)


async def _newest_of(repository: Repository, origins: Mapping[str, Origin], run_id: str) -> str | None:
    own = [name for name, origin in origins.items() if origin.run_id == run_id]
    there = await branches(repository, *(f"refs/heads/{name}" for name in own)) if own else set()
    return next((name for name in reversed(own) if name in there), None)


def _strangers_branch(branch: str, origin: Origin | None, run_id: str) -> list[str]:
    """Two goals on one branch cannot be told apart or merged one by one any more."""
    if origin is None or origin.run_id == run_id:
        return []
    note = (
        f"{branch} is the branch of another run ({one_line(origin.run_id, 40)}): this run's commits go on top of that "
        "run's; for a branch of its own, switch to the default branch before you start it"
    )
    return [note]
