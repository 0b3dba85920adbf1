"""Landings that can never work, found before anything is spent on them."""

from untildone.core.policy import RunSpec
from untildone.errors import LandingRefused
from untildone.git.branch import Origin, branches, default_branch, origins_of
from untildone.git.repository import Repository
from untildone.git.status import Status


async def refuse_vain_landing(repository: Repository, status: Status, spec: RunSpec, branch: str | None) -> None:
    """LandingRefused when what the run makes on this branch could never arrive where it is to go."""
    landing = spec.landing
    if landing.land not in {"merge", "pr"}:
        return
    how = f"--land {landing.land}"
    if repository.private:
        raise LandingRefused(f"{repository.top} is no git repository, so {how} has nothing to land on: `git init` it")
    if status.head is None:
        raise LandingRefused(
            f"{repository.top} has no commit yet, so {how} has nothing to land on: make the first commit yourself"
        )
    if landing.base is not None and not await _is_there(repository, landing.base, spec):
        raise LandingRefused(
            f"there is no branch {landing.base} to land on in {repository.top}: name another with --base, or make it "
            f"with `git branch {landing.base}`"
        )
    if branch is None or not spec.branch:
        await _refuse_without_branch(repository, branch, spec)


async def _refuse_without_branch(repository: Repository, branch: str | None, spec: RunSpec) -> None:
    """Only what is finished may reach the base, so that commits must not be made there."""
    origin = (await origins_of(repository)).get(branch or "", Origin())
    base = spec.landing.base or origin.base or await default_branch(repository, branch, remote=spec.landing.remote)
    how = f"--land {spec.landing.land}"
    if base is None:
        raise LandingRefused(f"it is not known which branch {how} is to land on: name it with --base")
    if branch == base:
        raise LandingRefused(
            f"without a branch of its own the work would go straight to {base}, done or not: leave out "
            f"--disable-branches, or {how}"
        )


async def _is_there(repository: Repository, base: str, spec: RunSpec) -> bool:
    # A pull request may be for a branch that only the forge has.
    there = [f"refs/remotes/{spec.landing.remote}/{base}"] if spec.landing.land == "pr" else []
    return bool(await branches(repository, f"refs/heads/{base}", *there))
