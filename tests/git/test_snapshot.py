"""Saving half-done work without touching anything."""

import pytest

from untildone.git.snapshot import free_name, refs_of, saved_states, state_after

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


# --- one for each iteration ------------------------------------------------------------------------


async def settled(project, workspace, number: int, text: str = ""):
    before = await workspace.observe()
    project.write("a", text or f"{number}\n")
    return await workspace.settle(before, iteration_num=number, message=f"iteration {number}")


async def test_a_clean_tree_is_kept_as_the_commit_itself(repo, open_in):
    workspace = await open_in(repo)
    done = await settled(repo, workspace, 1)
    assert (done.snapshot, done.snapshot_commit) == ("refs/untildone/r1/1", done.commit)
    assert repo.git("rev-parse", done.snapshot) == done.commit == repo.git("rev-parse", "HEAD")


@pytest.mark.parametrize("why", ["commits are off", "a hook fails"])
async def test_what_is_not_committed_is_kept_with_untracked_files(repo, open_in, why):
    repo.hook("pre-commit", "exit 1")
    workspace = await open_in(repo, commit=why == "a hook fails")
    before = untouched(repo)
    done = await settled(repo, workspace, 3)
    (repo.path / "a").unlink()
    assert untouched(repo)["index"] == before["index"]
    assert (done.snapshot, done.commit) == ("refs/untildone/r1/3", None)
    assert repo.git("show", f"{done.snapshot}:a") == "3"
    [saved] = await saved_states(workspace._repository, "r1")
    assert (saved.number, saved.commit, saved.head) == (3, done.snapshot_commit, repo.git("rev-parse", "HEAD"))


async def test_the_same_tree_is_not_kept_twice(repo, open_in):
    repo.hook("pre-commit", "exit 1")
    workspace = await open_in(repo)
    first = await settled(repo, workspace, 1)
    again = await workspace.settle(first.tree, iteration_num=2, message="m")
    assert (again.snapshot, again.left) == ("", ("a",))


async def test_a_driver_that_settles_again_what_a_dead_one_settled_makes_nothing_new(repo, open_in):
    before = await (await open_in(repo)).observe()
    repo.write("a")
    first = await (await open_in(repo)).settle(before, iteration_num=1, message="m")
    again = await (await open_in(repo)).settle(before, iteration_num=1, message="m")
    assert (again.commit, again.snapshot) == (first.commit, first.snapshot)
    assert repo.git("for-each-ref", "--format=%(refname)", "refs/untildone") == "refs/untildone/r1/1"


async def test_a_second_try_of_an_iteration_is_the_one_that_counts(repo, open_in):
    workspace = await open_in(repo)
    await workspace.prepare()
    repo.write("a", "half\n")
    await workspace.snapshot(iteration_num=2, reason="a fault")
    done = await settled(repo, workspace, 2, "whole\n")
    assert done.snapshot == "refs/untildone/r1/2-2"
    states = await saved_states(workspace._repository, "r1")
    assert [(state.number, state.again) for state in states] == [(0, 1), (2, 1), (2, 2)]
    assert state_after(states, 2) == state_after(states, 99) == states[2]
    assert state_after(states, 1) == states[0]
    assert state_after(states[1:], 1) is None


async def test_iterations_are_in_the_order_of_their_numbers(repo, open_in):
    workspace = await open_in(repo)
    for number in (9, 10, 100):
        await settled(repo, workspace, number)
    states = await saved_states(workspace._repository, "r1")
    assert [state.number for state in states] == [9, 10, 100]


async def test_a_commit_of_the_agents_cannot_pose_as_a_snapshot_of_another_commit(repo, open_in):
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("a")
    elsewhere = repo.git("rev-parse", "main")
    head = repo.commit(f"innocent\n\nUntildone-Head: {elsewhere}")
    await workspace.settle(before, iteration_num=1, message="m")
    [saved] = await saved_states(workspace._repository, "r1")
    assert saved.head == head


async def test_the_number_of_git_calls_does_not_grow(repo, open_in, git_calls):
    workspace = await open_in(repo, commit=False)
    await workspace.prepare()
    calls = []
    for number in range(1, 8):
        git_calls()
        await settled(repo, workspace, number)
        calls.append(len(git_calls()))
    assert len(set(calls)) == 1, calls
    assert calls[0] == 6  # twice the status, add, write-tree, commit-tree, update-ref
