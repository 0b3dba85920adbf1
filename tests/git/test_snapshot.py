"""Saving half-done work without touching anything."""

import pytest

from untildone.git.snapshot import free_name, refs_of

pytestmark = pytest.mark.anyio


def untouched(project) -> dict[str, object]:
    """All that a snapshot must leave as it is, byte for byte."""
    git_dir = project.path / ".git"
    return {
        "index": (git_dir / "index").read_bytes(),
        "head": (git_dir / "HEAD").read_bytes(),
        "branches": project.git("for-each-ref", "refs/heads", "refs/stash", "refs/tags"),
        "reflog": project.git("reflog"),
        "status": project.git("status", "--porcelain=v2", "-uall"),
        "files": {str(p): p.read_bytes() for p in project.path.rglob("*") if p.is_file() and ".git" not in p.parts},
        "times": {str(p): p.stat().st_mtime_ns for p in project.path.rglob("*") if ".git" not in p.parts},
    }


async def test_nothing_to_save_is_none(repo, open_in):
    assert await (await open_in(repo)).snapshot(iteration_num=1, reason="r") is None


async def test_a_partly_staged_tree_is_saved_and_left_exactly_as_it_was(repo, open_in):
    repo.write("README.md", "staged\n")
    repo.git("add", "README.md")
    repo.write("README.md", "staged and more\n")
    repo.write("new/untracked")
    repo.write("SHARED_TASK_NOTES.md")
    before = untouched(repo)
    saved = await (await open_in(repo)).snapshot(iteration_num=7, reason="the agent crashed")
    assert saved is not None
    ref, commit, files = saved
    assert untouched(repo) == before
    assert (ref, commit) == ("refs/untildone/r1/7", repo.git("rev-parse", "refs/untildone/r1/7"))
    assert files == ("README.md", "new/untracked")
    assert repo.git("show", f"{ref}:README.md") == "staged and more"
    assert repo.git("ls-tree", "-r", "--name-only", ref) == "README.md\nnew/untracked"
    assert repo.git("rev-parse", f"{ref}^") == repo.git("rev-parse", "HEAD")
    assert repo.git("log", "-1", "--format=%s", ref) == "Unfinished work of iteration 7: the agent crashed"


async def test_a_second_snapshot_of_an_iteration_does_not_replace_the_first(repo, open_in):
    workspace = await open_in(repo)
    repo.write("a", "1\n")
    first = await workspace.snapshot(iteration_num=1, reason="r")
    repo.write("a", "2\n")
    second = await workspace.snapshot(iteration_num=1, reason="r")
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == ("refs/untildone/r1/1", "refs/untildone/r1/1-2")
    assert [repo.git("show", f"{saved[0]}:a") for saved in (first, second)] == ["1", "2"]


async def test_deleted_files_and_many_files(repo, open_in):
    (repo.path / "README.md").unlink()
    for number in range(60):
        repo.write(f"f{number:02}")
    saved = await (await open_in(repo)).snapshot(iteration_num=1, reason="r")
    assert saved is not None
    assert len(saved[2]) == 50
    assert len(repo.git("ls-tree", "-r", "--name-only", saved[0]).split("\n")) == 60


async def test_a_locked_index_does_not_prevent_saving(repo, open_in):
    repo.write("a")
    (repo.path / ".git/index.lock").touch()
    assert await (await open_in(repo)).snapshot(iteration_num=1, reason="r") is not None


async def test_no_hook_runs(repo, open_in):
    for hook in ("pre-commit", "post-commit", "reference-transaction", "post-index-change"):
        repo.hook(hook, f"touch {repo.path}/.git/ran; exit 1")
    repo.write("a")
    assert await (await open_in(repo)).snapshot(iteration_num=1, reason="r") is not None
    assert not (repo.path / ".git/ran").exists()


async def test_a_repository_without_commits(plain, open_in):
    plain.init()
    plain.write("a")
    saved = await (await open_in(plain)).snapshot(iteration_num=1, reason="r")
    assert saved is not None
    assert plain.git("rev-list", "--count", saved[0]) == "1"
    assert not (plain.path / ".git/index").exists()


async def test_a_snapshot_in_a_linked_worktree(repo, open_in, tmp_path):
    repo.git("worktree", "add", "-q", str(tmp_path / "linked"))
    (tmp_path / "linked" / "a").write_text("x")
    saved = await (await open_in(repo, cwd=tmp_path / "linked")).snapshot(iteration_num=1, reason="r")
    assert saved is not None
    assert repo.git("show", f"{saved[0]}:a") == "x"


def test_names():
    assert refs_of("2024 a/../b") == "refs/untildone/2024-a-b"
    assert free_name("x", {"x", "x-2"}) == "x-3"
