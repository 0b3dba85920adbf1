"""Trees of their own for runs."""

import re
import shutil

import pytest

from untildone.errors import WorkspaceError
from untildone.git.repository import open_repository
from untildone.git.worktrees import add, default_place, ls, reclaimable, remove

pytestmark = pytest.mark.anyio


@pytest.fixture
async def repository(repo, private):
    return await open_repository(repo.path, private=private)


async def test_a_worktree_is_made_beside_the_repository_on_a_new_branch(repo, repository, tmp_path):
    before = repo.git("status", "--porcelain=v2", "--branch"), (repo.path / ".git/index").read_bytes()
    tree = await add(repository, "fix/it")
    assert tree.path == tmp_path / "project-worktrees" / "fix-it" == default_place(repository, "fix/it")
    assert (tree.branch, tree.base) == ("fix/it", "work")
    assert type(repo)(tree.path).git("branch", "--show-current") == "fix/it"
    assert before == (repo.git("status", "--porcelain=v2", "--branch"), (repo.path / ".git/index").read_bytes())
    other = await add(repository, "two", base="main", place=tmp_path / "elsewhere" / "two")
    assert (other.path, other.base) == (tmp_path / "elsewhere" / "two", "main")


@pytest.mark.parametrize(
    ("branch", "base", "said"),
    [
        ("main", None, "branch main exists already: a worktree gets a new one"),
        ("work", None, "branch work exists already"),
        ("bad..name", None, "'bad..name' is no name for a branch"),
        ("--force", None, "is no name for a branch"),
        ("new", "gone", "there is no commit gone to begin with"),
    ],
)
async def test_what_cannot_be_made_is_one_clear_line(repo, repository, branch, base, said):
    refs = repo.git("for-each-ref")
    with pytest.raises(WorkspaceError, match=re.escape(said)):
        await add(repository, branch, base=base)
    assert repo.git("for-each-ref") == refs


async def test_a_folder_that_exists_is_not_taken_over(repository, tmp_path):
    (tmp_path / "here").mkdir()
    with pytest.raises(WorkspaceError, match="here exists already"):
        await add(repository, "new", place=tmp_path / "here")


async def test_a_plain_folder_has_no_worktrees(plain, private):
    with pytest.raises(WorkspaceError, match="is not a git repository: `git init` makes it one"):
        await add(await open_repository(plain.path, private=private), "new")


async def test_ignored_files_that_are_named_come_along_and_no_others(repo, repository, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    repo.write(".gitignore", ".env*\n/data/\n*.log\n/trap/\n")
    (repo.path / "trap").symlink_to(outside)
    repo.git("add", "-f", "trap")
    repo.commit()
    (repo.path / "trap").unlink()
    for name in (".env", ".env.local", "sub/.env", "data/deep/a b", "noise.log", "trap/out"):
        repo.write(name, f"{name}\n")
    repo.write("untracked")
    repo.write(".worktreeinclude", "# what the tests need\n.env\n/data/\n/trap/\n!/sub/.env\nuntracked\nREADME.md\n")
    (repo.path / "data/tool").write_text("#!/bin/sh\n")
    (repo.path / "data/tool").chmod(0o755)
    tree = await add(repository, "new")
    found = {str(p.relative_to(tree.path)) for p in tree.path.rglob("*") if not p.is_dir()}
    assert found == {".git", ".gitignore", "README.md", ".env", "data/deep/a b", "data/tool"}
    assert (tree.path / "data/tool").stat().st_mode & 0o111
    assert (tree.path / "trap").is_symlink()
    assert list(outside.iterdir()) == []


async def test_a_run_in_a_worktree_takes_its_branch_and_knows_its_base(repo, repository, open_in):
    tree = await add(repository, "new", base="main")
    prepared = await (await open_in(repo, cwd=tree.path)).prepare()
    assert (prepared.branch, prepared.base) == ("new", "main")
    [own, found] = await ls(repository)
    assert (own.main, own.branch) == (True, "work")
    assert (found.path, found.branch, found.run_id, found.base) == (tree.path, "new", "r1", "main")
    assert found.ours
    assert found.size > 0
    assert await ls(await open_repository(tree.path, private=repo.path)) == [own, found]


async def test_only_what_holds_nothing_of_its_own_is_reclaimed(repo, repository, tmp_path):
    trees = {
        name: await add(repository, name, base="main")
        for name in ("spent", "dirty", "ahead", "live", "gone", "squashed")
    }
    repo.git("worktree", "add", "-q", "-b", "by-hand", str(tmp_path / "by-hand"), "main")
    (trees["dirty"].path / "new").write_text("x")
    for name in ("ahead", "squashed"):
        inside = type(repo)(trees[name].path)
        inside.write(name)
        inside.commit(name)
    repo.git("switch", "-q", "main")
    repo.git("merge", "-q", "--squash", "squashed")
    repo.commit("squashed")
    shutil.rmtree(trees["gone"].path)
    live = {str(trees["live"].path / "sub")}
    fates = {fate.tree.path.name: (fate.reclaimable, fate.why) for fate in await reclaimable(repository, live=live)}
    assert fates == {
        "project": (False, "it is the repository's own tree"),
        "by-hand": (False, "it was not made by untildone"),
        "spent": (True, "all of it is in main; the branch is kept"),
        "squashed": (True, "all of it is in main; the branch is kept"),
        "gone": (True, "its folder is gone already"),
        "dirty": (False, "1 file is not committed"),
        "ahead": (False, "1 commit is not in main"),
        "live": (False, "a run is at work in it"),
    }
    refs = repo.git("for-each-ref", "refs/heads")
    for tree in trees.values():
        await remove(repository, tree.path, live=live)
    left = {tree.path.name for tree in await ls(repository)}
    assert left == {"project", "by-hand", "dirty", "ahead", "live"}
    assert [tree.path.exists() for tree in trees.values()] == [False, True, True, True, False, False]
    assert repo.git("for-each-ref", "refs/heads") == refs


async def test_a_folder_that_is_no_worktree_is_not_removed(repository, tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(WorkspaceError, match="mine is no worktree of"):
        await remove(repository, tmp_path / "mine")
    assert (tmp_path / "mine").exists()


async def test_a_detached_worktree_of_ours_with_commits_stays(repo, repository):
    tree = await add(repository, "new", base="main")
    inside = type(repo)(tree.path)
    inside.git("switch", "-q", "--detach")
    inside.write("a")
    inside.commit()
    fate = await remove(repository, tree.path)
    assert (fate.reclaimable, fate.why) == (False, "1 commit is not in main")


async def test_a_tree_of_the_users_that_is_away_is_not_forgotten_together_with_one_of_ours(repo, repository, tmp_path):
    ours = await add(repository, "ours")
    users = type(repo)(tmp_path / "disk" / "users")
    repo.git("worktree", "add", "-q", "-b", "users", str(users.path))
    users.write("staged.txt")
    users.git("add", "staged.txt")
    shutil.rmtree(ours.path)
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    assert (await remove(repository, ours.path)).reclaimable
    (tmp_path / "unmounted").rename(tmp_path / "disk")
    assert users.git("status", "--porcelain") == "A  staged.txt"
    assert str(ours.path) not in repo.git("worktree", "list")


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
async def test_edits_that_git_does_not_see_keep_a_tree(repo, repository, flag):
    tree = type(repo)((await add(repository, "ours")).path)
    tree.git("update-index", flag, "README.md")
    assert (await reclaimable(repository))[1].reclaimable
    tree.write("README.md", "edited\n")
    fate = await remove(repository, tree.path)
    assert (fate.reclaimable, fate.why) == (False, "it holds what is nowhere else: README.md")
    assert (tree.path / "README.md").read_text() == "edited\n"


async def test_ignored_data_keeps_a_tree_and_caches_and_copies_do_not(repo, repository):
    repo.write(".gitignore", "data/\n.env\nnode_modules/\n*.pyc\nSHARED_TASK_NOTES.md\n.mypy/\n")
    repo.write(".worktreeinclude", ".env\n")
    repo.write(".env", "KEY=1\n")
    repo.commit("ignores")
    tree = type(repo)((await add(repository, "ours")).path)
    for name in ("node_modules/x/y.js", "src/a.pyc", "SHARED_TASK_NOTES.md", ".mypy/CACHEDIR.TAG", ".mypy/x"):
        tree.write(name)
    assert (tree.path / ".env").is_file()
    assert (await reclaimable(repository))[1].why.startswith("all of it is in work")
    tree.write("data/results.db")
    tree.write(".env", "KEY=2\n")
    fate = await remove(repository, tree.path)
    assert (fate.reclaimable, fate.why) == (False, "it holds what is nowhere else: .env, data/")
