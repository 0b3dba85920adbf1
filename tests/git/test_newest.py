"""A parcel that is older than the run: what was pushed meanwhile is found, what was not is named. Odd clones."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from git.conftest import Project
from git.test_bundle import packed, tree_of, with_remote, work
from untildone.errors import WorkspaceError
from untildone.git.newest import Known
from untildone.git.unbundle import Received, lay_out, receive_tree
from untildone.git.workspace import GitWorkspace

pytestmark = pytest.mark.anyio

Opened = Callable[..., Awaitable[GitWorkspace]]


async def laid_out(parcel: bytes, folder: Path, known: Known = Known(), **more: Any) -> Received:  # noqa: B008 - frozen
    private = folder.parent / "folders-b"
    found = await receive_tree(parcel, run_id="r1", folder=folder, private=private, known=known, **more)
    await lay_out(found)
    return found


@pytest.fixture
async def run(repo: Project, open_in: Opened, tmp_path: Path) -> tuple[GitWorkspace, Path]:
    """A run on a branch of its own, with one commit."""
    bare = with_remote(repo, tmp_path)
    repo.git("switch", "-q", "main")
    workspace = await open_in(repo)
    await workspace.prepare()
    assert repo.git("branch", "--show-current").startswith("untildone/")
    await work(workspace, repo, 1)
    return workspace, bare


async def test_what_was_pushed_after_the_parcel_is_taken_from_the_remote(
    repo: Project, run: tuple[GitWorkspace, Path], tmp_path: Path
) -> None:
    workspace, bare = run
    repo.write("half.txt", "half\n")
    parcel = (await packed(workspace)).content
    await work(workspace, repo, 2)
    branch = repo.git("branch", "--show-current")
    repo.git("push", "-q", "origin", branch)
    newest = repo.git("rev-parse", "HEAD")
    for number, known in enumerate((Known(newest=newest), Known(pushes=True), Known(newest=newest, pushes=True))):
        there = Project(tmp_path / f"clone-{number}")
        repo.git("clone", "-q", str(bare), str(there.path))
        found = await laid_out(parcel, there.path, known)
        assert found.missing is None
        assert (there.git("rev-parse", "HEAD"), tree_of(there)) == (newest, tree_of(repo))
        assert there.git("branch", "--show-current") == branch
        assert there.git("status", "--porcelain") == ""


async def test_what_can_be_had_nowhere_is_named_and_the_parcel_holds(
    repo: Project, run: tuple[GitWorkspace, Path], tmp_path: Path
) -> None:
    workspace, bare = run
    parcel, before = (await packed(workspace)).content, tree_of(repo)
    await work(workspace, repo, 2)
    newest = repo.git("rev-parse", "HEAD")
    there = Project(tmp_path / "clone")
    repo.git("clone", "-q", str(bare), str(there.path))
    found = await laid_out(parcel, there.path, Known(newest=newest, pushes=True))
    assert found.missing == newest
    assert tree_of(there) == before


async def test_a_branch_of_the_same_name_that_is_not_the_runs_is_left_alone(
    repo: Project, open_in: Opened, tmp_path: Path
) -> None:
    bare = with_remote(repo, tmp_path)
    repo.git("switch", "-q", "main")
    workspace = await open_in(repo)
    await workspace.prepare()
    branch = repo.git("branch", "--show-current")
    parcel = (await packed(workspace)).content
    other = Project(tmp_path / "other")
    repo.git("clone", "-q", str(bare), str(other.path))
    other.git("config", "user.name", "Else")
    other.git("config", "user.email", "e@e")
    other.git("switch", "-q", "-c", branch)
    other.write("theirs.txt")
    other.commit("somebody else's")
    other.git("push", "-q", "origin", branch)
    there = Project(tmp_path / "clone")
    repo.git("clone", "-q", str(bare), str(there.path))
    await laid_out(parcel, there.path, Known(pushes=True))
    assert tree_of(there) == tree_of(repo)
    assert not (there.path / "theirs.txt").exists()


@pytest.mark.parametrize(
    "newest", ["--help", *(pytest.param(rare, marks=pytest.mark.soak) for rare in ("HEAD", "0" * 40, "x"))]
)
async def test_what_a_server_calls_a_commit_is_not_believed(
    repo: Project, run: tuple[GitWorkspace, Path], tmp_path: Path, newest: str
) -> None:
    workspace, bare = run
    parcel = (await packed(workspace)).content
    repo.git("clone", "-q", str(bare), str(tmp_path / "clone"))
    found = await laid_out(parcel, tmp_path / "clone", Known(newest=newest))
    assert found.missing == (newest if newest == "0" * 40 else None)
    assert tree_of(Project(tmp_path / "clone")) == tree_of(repo)


# --- odd clones ----------------------------------------------------------------------------------


async def test_a_shallow_clone_takes_it_and_can_go_on(
    repo: Project, run: tuple[GitWorkspace, Path], tmp_path: Path, open_in: Opened
) -> None:
    workspace, bare = run
    parcel = (await packed(workspace)).content
    there = Project(tmp_path / "shallow")
    repo.git("clone", "-q", "--depth", "1", f"file://{bare}", str(there.path))
    there.git("config", "user.name", "Ben")
    there.git("config", "user.email", "b@b")
    await laid_out(parcel, there.path)
    assert tree_of(there) == tree_of(repo)
    second = await open_in(there)
    await second.prepare()
    await work(second, there, 2)
    assert there.git("log", "--format=%s", "-2") == "Work 2\nWork 1"


async def test_a_shallow_clone_that_is_older_or_newer_fetches_the_one_commit_it_needs(
    repo: Project, run: tuple[GitWorkspace, Path], tmp_path: Path
) -> None:
    workspace, bare = run
    parcel = (await packed(workspace)).content
    mover = Project(tmp_path / "mover")
    repo.git("clone", "-q", str(bare), str(mover.path))
    mover.git("config", "user.name", "Mo")
    mover.git("config", "user.email", "m@m")
    for number in range(2):
        mover.write(f"later-{number}.txt")
        mover.commit("later")
    mover.git("push", "-q", "origin", "main")
    there = Project(tmp_path / "shallow")
    repo.git("clone", "-q", "--depth", "1", f"file://{bare}", str(there.path))
    await laid_out(parcel, there.path)
    assert tree_of(there) == tree_of(repo)


async def test_a_clone_without_its_remote_takes_it(
    repo: Project, run: tuple[GitWorkspace, Path], tmp_path: Path
) -> None:
    workspace, bare = run
    parcel = (await packed(workspace)).content
    there = Project(tmp_path / "clone")
    repo.git("clone", "-q", str(bare), str(there.path))
    there.git("remote", "remove", "origin")
    await laid_out(parcel, there.path, Known(newest=repo.git("rev-parse", "HEAD"), pushes=True))
    assert tree_of(there) == tree_of(repo)


async def test_a_run_in_a_shallow_clone_goes_on_in_a_whole_one(repo: Project, open_in: Opened, tmp_path: Path) -> None:
    repo.write("more.txt")
    repo.commit("more")
    bare = with_remote(repo, tmp_path)
    here = Project(tmp_path / "here")
    repo.git("clone", "-q", "--depth", "1", "-b", "work", f"file://{bare}", str(here.path))
    here.git("config", "user.name", "Ann")
    here.git("config", "user.email", "a@a")
    workspace = await open_in(here)
    await workspace.prepare()
    await work(workspace, here, 1)
    with_origin = (await packed(workspace)).content
    repo.git("clone", "-q", str(bare), str(tmp_path / "clone"))
    await laid_out(with_origin, tmp_path / "clone")
    assert tree_of(Project(tmp_path / "clone")) == tree_of(here)
    here.git("remote", "remove", "origin")
    with pytest.raises(WorkspaceError, match=r"shallow clone.*git fetch --unshallow"):
        await packed(workspace)
