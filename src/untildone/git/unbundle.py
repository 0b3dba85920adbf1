"""The tree of a run that comes from another machine: received, judged, and laid out in a folder of this one.

A bundle can bring nothing but objects, and git checks each of them; refs are made here, under names of ours and the one
branch the run works on. No hook runs, no submodule is touched, and nothing of the user's is overwritten.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line
from untildone.errors import WishRefused, WorkspaceError
from untildone.git.branch import Origin, remember_origin
from untildone.git.bundle import TreeFacts, parcel_ref, prerequisites, unwrapped
from untildone.git.commit import add_all
from untildone.git.newest import FETCH, Known, caught_up
from untildone.git.recorded import contains
from untildone.git.repository import NO_HOOKS, Repository, open_repository, project_root
from untildone.git.run import COMMIT_TIMEOUT, UNATTENDED, disk_trouble, first_line, git
from untildone.git.snapshot import copy_index, create_ref, refs_of
from untildone.git.status import STATUS, Status, in_one_line, parse_status, readable
from untildone.git.under_way import under_way_in
from untildone.git.weighing import acting, refuse_detour, refuse_too_much

NOTHING_KNOWN = Known()
_SHORT = 10
_TIPS = 5000
"""Branches that are looked at for a commit in common."""
_ALONE = (*NO_HOOKS, "-c", "submodule.recurse=false")
# What old, honest histories have, and what hurts nobody.
_OLD_SINS = ("zeroPaddedFilemode", "badTimezone", "missingSpaceBeforeDate", "zeroPaddedDate", "missingEmail")
_STRICTLY = "--strict=" + ",".join(f"{sin}=ignore" for sin in _OLD_SINS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A tree whose objects are here, and the place that is free for it. No file and no branch was touched yet."""

    facts: TreeFacts
    repository: Repository
    status: Status
    is_there: bool = False
    """An earlier try has laid it out already."""
    missing: str | None = None
    """The newest commit of the run, if it can be had nowhere: the tree is an older one."""
    acts: Mapping[str, str] = field(default_factory=dict)
    """Files that run commands by themselves, and are not as they were here: their names, and what they are."""

    @property
    def cwd(self) -> Path:
        """Where the agent is to work."""
        return self.repository.top / self.facts.below


async def receive_tree(
    parcel: bytes,
    *,
    run_id: str,
    folder: Path,
    private: Path,
    remote: str = "origin",
    known: Known = NOTHING_KNOWN,
) -> Received:
    """Take a parcel in, for a clone of the run's repository, or for an empty folder (which may not be there yet).

    `known`: what the log says of the run's commits, which may be newer than the parcel. WishRefused when the folder is
    not free, or when commits are missing that the parcel builds on.
    """
    facts, bundle = unwrapped(parcel)
    if facts.run_id != run_id:
        raise WorkspaceError(f"the parcel with the tree is of another run ({one_line(facts.run_id, 40)}): not used")
    repository = await _place(facts, folder, private, needs=prerequisites(bundle))
    status = await _quiet(repository)
    if (status.head, status.branch) != (facts.head, facts.branch):
        _refuse_work(repository, status)
    await _fetch_missing(repository, prerequisites(bundle), facts, remote)
    await _take_objects(repository, facts, bundle)
    facts, missing = await caught_up(repository, facts, known, remote=remote)
    await refuse_too_much(repository, facts.packed)
    await refuse_detour(repository, facts.packed, facts.below)
    if not prerequisites(bundle):
        await _refuse_stranger(repository, facts, status)
    await repository.git(*NO_HOOKS, "update-ref", parcel_ref(facts.run_id), facts.packed)
    is_there = status.head == facts.head and status.branch == facts.branch and not await _differing(repository, facts)
    if not is_there:
        _refuse_work(repository, status)
        await _check_branch(repository, facts, status)
    acts = await acting(repository, status.head, facts.packed)
    return Received(facts=facts, repository=repository, status=status, is_there=is_there, missing=missing, acts=acts)


async def lay_out(received: Received) -> list[str]:
    """Make tree, branch and saved states as they were on the other machine; returns lines to tell the user."""
    facts, repository = received.facts, received.repository
    for name, commit in facts.refs.items():
        await create_ref(repository, f"{refs_of(facts.run_id)}/{name}", commit)
    if not received.is_there:
        await _check_out(received)
    _refuse_way_out(received)
    if facts.branch is not None and not repository.private:
        origin = Origin(run_id=facts.run_id, base=facts.base, began=facts.began)
        await remember_origin(repository, facts.branch, origin)
    return [*_told(facts, received), *await _differing(repository, facts)]


def _refuse_way_out(received: Received) -> None:
    """WorkspaceError when the agent's folder is somewhere else after all: something here may stand in for it."""
    top, cwd = (Path(os.path.realpath(place)) for place in (received.repository.top, received.cwd))
    if not cwd.is_relative_to(top) or os.path.normpath(top / received.facts.below) != str(cwd):
        raise WorkspaceError(f"{received.cwd} leads out of the run's folder by way of a link: it is not used")


async def tracks(repository: Repository, place: Path) -> bool:
    """Whether git has a file of that name, in whatever case."""
    path = os.path.relpath(place, repository.top)
    if path.startswith(".."):
        return False
    named = await repository.git("ls-files", "-z", "--", f":(top,icase,literal){path}", check=False)
    return bool(named.out)


async def _check_out(received: Received) -> None:
    facts, repository = received.facts, received.repository
    with disk_trouble("cannot lay out the tree"), tempfile.TemporaryDirectory(prefix="untildone-") as folder:
        index = Path(folder) / "index"
        copy_index(repository, index)
        trees = (received.status.head, facts.packed) if received.status.head else (facts.packed,)
        await repository.git(*_ALONE, "read-tree", "-m", "-u", *trees, env={"GIT_INDEX_FILE": str(index)})
    await _move_head(repository, facts)


async def _place(facts: TreeFacts, folder: Path, private: Path, *, needs: list[str]) -> Repository:
    is_free = not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir()))
    top = project_root(folder)
    is_clone = (top / ".git").exists()
    if facts.private:
        if not is_free or is_clone:
            raise WishRefused(f"the run's folder has no git, so it needs an empty one outside of any: not {folder}")
        with disk_trouble(f"cannot make {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
        return await open_repository(folder, private=private)
    if is_clone and not (is_free and folder.resolve() != top):
        return await open_repository(top, private=private)
    if not is_free:
        raise WishRefused(
            f"{folder} is not empty and no clone of the run's repository: give an empty folder or a clone"
        )
    if needs:
        source = f"git clone {one_line(facts.remote, 200)} {folder}" if facts.remote else "clone it"
        raise WishRefused(f"only what the remote does not have was sent: `{source}` first, then resume there")
    with disk_trouble(f"cannot make {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    await git(("init", "-q"), cwd=folder, env={"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)})
    return await open_repository(folder, private=private)


async def _quiet(repository: Repository) -> Status:
    """The place as it is; WishRefused when something is under way there."""
    if what := under_way_in(repository.git_dir):
        raise WishRefused(f"a {what} is in progress in {repository.top}: finish it first")
    return parse_status((await repository.git(*STATUS)).out)


def _refuse_work(repository: Repository, status: Status) -> None:
    if repository.private and status.head is not None:
        raise WishRefused(f"a history of {repository.top} is kept already: give a folder that is new")
    if status.paths:
        files = in_one_line(map(readable, status.paths))
        raise WishRefused(f"uncommitted work in {repository.top}: {files}; commit it, or give another folder")


async def _fetch_missing(repository: Repository, needs: list[str], facts: TreeFacts, remote: str) -> None:
    if not await _missing(repository, needs):
        return
    known = await repository.git("remote", "get-url", remote, check=False)
    if known.code == 0:
        asked = (*NO_HOOKS, *FETCH, remote)
        await repository.git(*asked, env=UNATTENDED, check=False, timeout=COMMIT_TIMEOUT)
        # A shallow clone has only the tips of its branches; most servers give a commit by its name.
        if missing := await _missing(repository, needs):
            one_each = ("--depth=1",) if await _is_shallow(repository) else ()
            await repository.git(*asked, *one_each, *missing, env=UNATTENDED, check=False, timeout=COMMIT_TIMEOUT)
    missing = await _missing(repository, needs)
    if missing:
        where = f" (it was {one_line(facts.remote, 200)})" if facts.remote else ""
        raise WishRefused(
            f"{repository.top} lacks commit {missing[0][:_SHORT]} that the run's work builds on, and {remote} did not "
            f"give it: resume in a clone of the run's repository{where}"
        )


async def _is_shallow(repository: Repository) -> bool:
    return (await repository.git("rev-parse", "--is-shallow-repository")).text == "true"


async def _missing(repository: Repository, commits: list[str]) -> list[str]:
    if not commits:
        return []
    asked = "\n".join(commits).encode()
    answer = await repository.git("cat-file", "--batch-check=%(objecttype)", stdin=asked)
    kinds = answer.text.split("\n")
    return [commit for commit, kind in zip(commits, kinds, strict=False) if kind != "commit"]


async def _take_objects(repository: Repository, facts: TreeFacts, bundle: bytes) -> None:
    """Take in the objects of a bundle, each of them checked; what it is said to hold must be in it.

    Not by `fetch`: from a bundle it takes whatever comes, however it is configured.
    """
    pack = bundle.partition(b"\n\n")[2]
    args = (*NO_HOOKS, "index-pack", "--stdin", "--fix-thin", _STRICTLY)
    done = await repository.git(*args, stdin=pack, check=False, timeout=COMMIT_TIMEOUT)
    if done.code == 0:
        whole = ("rev-list", "--objects", "--quiet", f"{facts.packed}^{{commit}}", "--not", "--all")
        done = await repository.git(*whole, check=False, timeout=COMMIT_TIMEOUT)
    if done.code:
        raise WorkspaceError(f"git does not take the tree of the run: {first_line(done.err)}")
    listed = (await repository.git("rev-list", "--parents", "-n1", facts.packed)).text.split()
    said = {facts.packed, *facts.refs.values(), *([facts.head] if facts.head else [])}
    if listed[:1] != [facts.packed] or not said <= set(listed):
        raise WorkspaceError("the parcel with the tree does not hold what it says: it is not used")


async def _refuse_stranger(repository: Repository, facts: TreeFacts, status: Status) -> None:
    """WishRefused for a repository that has commits, and none of the run's."""
    if repository.private or status.head is None:
        return
    listed = await repository.git("for-each-ref", "--format=%(objectname)", "refs/heads", "refs/remotes")
    tips = {status.head, *listed.text.split()[:_TIPS]}
    if facts.head is None or (await repository.git("merge-base", facts.head, *tips, check=False)).code:
        where = f" (it was {one_line(facts.remote, 200)})" if facts.remote else ""
        raise WishRefused(
            f"{repository.top} has no commit in common with the run's repository{where}: resume in a clone of that, or "
            "in an empty folder"
        )


async def _check_branch(repository: Repository, facts: TreeFacts, status: Status) -> None:
    if facts.branch is None or repository.private:
        return
    named = await repository.git("check-ref-format", "--branch", facts.branch, check=False)
    if named.code or named.text != facts.branch:
        raise WorkspaceError(f"{one_line(facts.branch, 60)!r} is no name of a branch: the tree is not used")
    ref = f"refs/heads/{facts.branch}"
    form = "--format=%(refname)%00%(objectname)%00%(worktreepath)"
    listed = (await repository.git("for-each-ref", form, ref)).text.split("\n")
    there = next((found[1:] for line in listed if (found := line.split("\0"))[0] == ref), None)
    if there is None:
        return
    tip, tree = there
    if facts.head is None or not await contains(repository, facts.head, tip):
        raise WishRefused(
            f"branch {facts.branch} of {repository.top} has commits that the run's does not have: "
            f"`git branch -m {facts.branch} OTHER` keeps them, then resume"
        )
    if tree and status.branch != facts.branch:
        raise WishRefused(f"branch {facts.branch} is checked out in {one_line(tree, 200)}: resume there")


async def _move_head(repository: Repository, facts: TreeFacts) -> None:
    """Branch, HEAD and index as they were; the files are there already."""
    why = ("-m", "untildone: from another machine")
    if facts.branch is not None:
        ref = f"refs/heads/{facts.branch}"
        if facts.head is not None:
            await repository.git(*NO_HOOKS, "update-ref", *why, ref, facts.head)
        await repository.git(*NO_HOOKS, "symbolic-ref", *why, "HEAD", ref)
    elif facts.head is not None:
        await repository.git(*NO_HOOKS, "update-ref", "--no-deref", *why, "HEAD", facts.head)
    if facts.head is None:
        await repository.git(*_ALONE, "read-tree", "--empty")
        return
    await repository.git(*_ALONE, "read-tree", "--reset", facts.head)
    await repository.git(*_ALONE, "update-index", "-q", "--refresh", check=False)


async def _differing(repository: Repository, facts: TreeFacts) -> list[str]:
    """A line if what lies here is not what was sent: a filter, or names that this disk cannot tell apart."""
    with disk_trouble("cannot compare the tree"), tempfile.TemporaryDirectory(prefix="untildone-") as folder:
        index = Path(folder) / "index"
        copy_index(repository, index)
        await add_all(repository, index=index)
        env = {"GIT_INDEX_FILE": str(index)}
        answer = await repository.git("diff-index", "-z", "--cached", "--name-only", facts.packed, env=env)
    names = [readable(name) for name in answer.out.split(b"\0")[:-1]]
    return [f"not as on the other machine: {in_one_line(names)}"] if names else []


def _told(facts: TreeFacts, received: Received) -> list[str]:
    where = f"branch {facts.branch}" if facts.branch else "its history"
    at = f" at {facts.head[:_SHORT]}" if facts.head else ""
    lines = [f"{received.repository.top} is as the run left it: {where}{at}"]
    if facts.left_out:
        lines.append(f"did not come along: {in_one_line(one_line(name, 200) for name in facts.left_out)}")
    return lines
