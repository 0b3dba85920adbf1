"""The repository of a run is the one that was found at its start, whatever is put in its place."""

import os
import shutil

import pytest

from git.conftest import Project
from untildone.errors import WorkspaceError

pytestmark = pytest.mark.anyio


@pytest.fixture
def other(tmp_path):
    """Another project of the user's."""
    project = Project(tmp_path / "other")
    project.init()
    project.write("precious.txt")
    project.commit("mine")
    return project


def state(project):
    return project.git("for-each-ref"), project.git("status", "--porcelain"), project.git("log", "--all", "--format=%H")


@pytest.mark.parametrize("trick", ["file", "link", "gone", "pipe", "core.worktree", "worktree's own"])
async def test_another_repository_in_its_place_is_a_stop(repo, open_in, other, trick):
    if trick == "worktree's own":
        repo.git("config", "extensions.worktreeConfig", "true")
    workspace = await open_in(repo)
    await workspace.prepare()
    before, known = await workspace.observe(), state(other)
    repo.write("b.txt")
    git_dir = repo.path / ".git"
    if trick in {"file", "link", "gone", "pipe"}:
        shutil.move(git_dir, repo.path.parent / "moved.git")
    if trick == "file":
        git_dir.write_text(f"gitdir: {other.path}/.git\n")
    elif trick == "pipe":
        os.mkfifo(git_dir)  # whoever opens it without care waits for ever
    elif trick == "link":
        git_dir.symlink_to(other.path / ".git")
    elif trick == "core.worktree":
        repo.git("config", "core.worktree", str(other.path))
    elif trick == "worktree's own":
        (git_dir / "config.worktree").write_text(f"[core] worktree = {other.path}\n")
    with pytest.raises(
        WorkspaceError, match=r"not what it was|not a git repository any more|core\.worktree .* changed"
    ):
        await workspace.settle(before, iteration_num=1, message="m")
    assert state(other) == known


async def test_a_worktree_that_is_told_of_another_repository_is_a_stop(repo, open_in, other, tmp_path):
    tree = Project(tmp_path / "tree")
    repo.git("worktree", "add", "-q", "-b", "own", str(tree.path))
    workspace = await open_in(tree)
    await workspace.prepare()
    before, known = await workspace.observe(), state(other)
    tree.write("b.txt")
    named = repo.path / ".git/worktrees/tree/commondir"
    named.write_text(f"{other.path}/.git\n")
    with pytest.raises(WorkspaceError, match="not what it was"):
        await workspace.settle(before, iteration_num=1, message="m")
    named.unlink()
    os.mkfifo(named)
    with pytest.raises(WorkspaceError, match="not what it was"):
        await workspace.settle(before, iteration_num=1, message="m")
    assert state(other) == known


async def test_hooks_make_repositories_of_their_own_without_disturbing_ours(repo, open_in, tmp_path):
    """A test suite in a hook does that: what git is told must not lead it to our repository."""
    workspace = await open_in(repo)
    await workspace.prepare()
    before = await workspace.observe()
    made = tmp_path / "made"
    repo.hook(
        "pre-commit", f"git init -q {made} && cd {made} && echo x > x && git add x && git status --short > {made}.txt"
    )
    repo.write("b.txt")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.commit is not None
    assert (made / ".git").is_dir()
    assert repo.git("show", "--name-only", "--format=", "HEAD") == "b.txt"


async def test_a_repository_whose_git_folder_is_a_link_works(repo, open_in, tmp_path):
    shutil.move(repo.path / ".git", tmp_path / "kept.git")
    (repo.path / ".git").symlink_to(tmp_path / "kept.git")
    workspace = await open_in(repo)
    await workspace.prepare()
    before = await workspace.observe()
    repo.write("b.txt")
    assert (await workspace.settle(before, iteration_num=1, message="m")).commit == repo.git("rev-parse", "HEAD")
    assert os.path.islink(repo.path / ".git")  # noqa: PTH114 - as plain as it gets
