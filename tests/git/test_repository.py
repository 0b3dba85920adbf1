import re
from pathlib import Path

import pytest

from untildone.errors import FolderRefused, WorkspaceError
from untildone.git.repository import open_repository, project_root

pytestmark = pytest.mark.anyio


def test_project_root_is_the_toplevel_or_the_folder(repo, tmp_path):
    below = repo.path / "a" / "b"
    below.mkdir(parents=True)
    assert project_root(below) == repo.path
    assert project_root(tmp_path) == tmp_path


def test_project_root_of_a_linked_worktree_is_that_worktree(repo, tmp_path):
    repo.git("worktree", "add", "-q", str(tmp_path / "linked"))
    assert project_root(tmp_path / "linked") == tmp_path / "linked"


async def test_home_and_what_holds_it_are_refused(private):
    for wide in (Path.home(), Path.home().parent, Path("/")):
        with pytest.raises(
            FolderRefused, match=re.escape(f"{wide.resolve()} is your home folder or holds it")
        ) as caught:
            await open_repository(wide, private=private)
        assert caught.value.exit_code == 2
    assert not private.exists()


async def test_home_that_is_a_repository_itself_is_the_users_choice(plain, private, monkeypatch):
    plain.init()
    monkeypatch.setenv("HOME", str(plain.path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    assert (await open_repository(plain.path, private=private)).top == plain.path


async def test_a_project_below_a_home_kept_in_git_is_not_committed_into_that_home(plain, private, monkeypatch):
    plain.init()
    monkeypatch.setenv("HOME", str(plain.path))
    below = plain.path / "project"
    below.mkdir()
    repository = await open_repository(below, private=private)
    assert (repository.private, repository.top) == (True, below)


async def test_an_ignored_subfolder_gets_its_own_history(repo, private):
    repo.write(".gitignore", "scratch/\n")
    (repo.path / "scratch").mkdir()
    (repo.path / "src").mkdir()
    assert (await open_repository(repo.path / "scratch", private=private)).private
    assert not (await open_repository(repo.path / "src", private=private)).private


async def test_a_missing_folder_is_named(tmp_path, private):
    with pytest.raises(FolderRefused, match="gone is not a folder"):
        await open_repository(tmp_path / "gone", private=private)


async def test_a_deleted_git_folder_fails_instead_of_reaching_the_repository_above(repo, private):
    inner = repo.path / "inner"
    inner.mkdir()
    repo.git("init", "-q", "inner")
    repository = await open_repository(inner, private=private)
    (inner / ".git").rename(inner / "moved")
    with pytest.raises(WorkspaceError, match="not a git repository"):
        await repository.git("status")
