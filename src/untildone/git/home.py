"""The branch a run's commits go to, and whether the folder is still there: an agent or a human may switch it."""

from dataclasses import replace

from untildone.core.dataclass import dataclass
from untildone.git.branch import Origin, origins_of, remember_origin
from untildone.git.merging import brings_nothing
from untildone.git.recorded import contains
from untildone.git.repository import Repository
from untildone.git.run import obstacle
from untildone.git.status import Status

_SHORT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a run commits."""

    branch: str | None
    """None: a detached HEAD."""
    tip: str | None
    """The last commit there that is known to be the run's."""
    strange: frozenset[str] = frozenset()
    """Branches that were there before: no agent made them for this run."""


async def find_home(repository: Repository, branch: str | None, run_id: str) -> Home:
    """The home of a run that works on this branch, as a driver finds it."""
    origins = await origins_of(repository)
    told = await repository.git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/remotes")
    tips: dict[str, str] = {}
    known: set[str] = set()
    # Not `splitlines`: some of what that takes for the end of a line may stand in a name.
    for line in filter(None, told.text.split("\n")):
        commit, _, ref = line.partition(" ")
        name = ref.removeprefix("refs/heads/")
        if name != ref:
            tips[name] = commit
        # A branch that only a remote has is somebody's too: `git switch` makes a local one of that name.
        known.add(name if name != ref else ref.removeprefix("refs/remotes/").partition("/")[2])
    others = {name for name in known if origins.get(name, Origin()).run_id != run_id}
    tip = tips.get(branch) if branch else await _commit(repository, "HEAD")
    return Home(branch=branch, tip=tip, strange=frozenset(others - {branch}))


async def still_home(repository: Repository, status: Status, home: Home) -> Home | None:
    """Where commits go now: the run's branch, or one that was made meanwhile on top of it. None: nowhere."""
    here = status.branch
    if here == home.branch:
        return home
    if here is None or here in home.strange:
        return None
    # An agent may have renamed the branch: then the last commit that was seen there must do.
    tip = (await _tip(repository, home.branch) if home.branch else None) or home.tip
    if tip is not None and not await contains(repository, status.head, tip):
        return None
    return replace(home, branch=here, tip=tip)


async def move_in(repository: Repository, home: Home, *, run_id: str, base: str | None) -> None:
    """Remember a branch that was made during the run as the run's own, so that a later driver knows it."""
    if home.branch is not None:
        await remember_origin(repository, home.branch, Origin(run_id=run_id, base=base or ""))


def elsewhere_line(status: Status, home: Home) -> str:
    """Which branch is checked out and which is the run's. Nobody knows who switched."""
    here = f"branch {status.branch}" if status.branch else f"a detached HEAD ({(status.head or '')[:_SHORT]})"
    if home.branch:
        own, back = f"branch {home.branch}", f"git switch {home.branch}"
    else:
        own, back = "a detached HEAD", f"git switch --detach {(home.tip or '')[:_SHORT]}"
    return f"the folder is on {here} now, this run's commits go to {own}: nothing is committed before `{back}`"


async def go_back_to(repository: Repository, now: Status, found: Status) -> str:
    """Check out again what was found, where no file is in the way; returns a line to tell, or nothing."""
    if (now.branch, now.branch or now.head) == (found.branch, found.branch or found.head) or found.head is None:
        return ""
    where = (found.branch,) if found.branch else ("--detach", found.head)
    back = await repository.agents.git("switch", "-q", *where, check=False)
    return "" if back.code else f"{repository.top} is back on {found.branch or found.head[:_SHORT]}"


async def go_to_base(repository: Repository, now: Status, base: str) -> str:
    """After the run's work has landed: check out the base, unless a file is in the way. Returns a line to tell."""
    if now.branch == base:
        return ""
    stays = f"{repository.top} stays on {now.branch}"
    if now.head is not None and not await brings_nothing(repository, f"refs/heads/{base}", now.head):
        return f"{stays}: it has commits that {base} does not have"
    switched = await repository.agents.git("switch", "-q", "--no-overwrite-ignore", base, check=False)
    return f"{stays}: git cannot switch to {base}: {obstacle(switched)}" if switched.code else ""


async def _tip(repository: Repository, branch: str | None) -> str | None:
    return await _commit(repository, f"refs/heads/{branch}")


async def _commit(repository: Repository, name: str) -> str | None:
    asked = await repository.git("rev-parse", "-q", "--verify", f"{name}^{{commit}}", check=False)
    return asked.text if asked.code == 0 else None
