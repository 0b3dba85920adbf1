"""What of a repository an agent in a sandbox may write, and what not."""

import subprocess
from pathlib import Path

import pytest

from untildone.git.untouchable import reach


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=n@x", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    made = tmp_path / "repo"
    made.mkdir()
    git(made, "init", "-q", "-b", "main")
    git(made, "commit", "-q", "--allow-empty", "-m", "first")
    return made


def test_a_folder_without_git_is_simply_writable(tmp_path: Path) -> None:
    found = reach(tmp_path)
    assert (found.writable, found.fixed) == ((tmp_path,), ())


def test_hooks_and_settings_are_fixed_and_the_git_folder_cannot_be_replaced(repo: Path) -> None:
    found = reach(repo)
    assert found.writable == (repo, repo / ".git")
    assert {path.name for path in found.fixed} == {"hooks", "config"}


def test_of_a_worktree_what_names_its_repository_is_fixed_and_so_are_the_other_worktrees(
    repo: Path, tmp_path: Path
) -> None:
    for name in ("mine", "other"):
        git(repo, "worktree", "add", "-q", "-b", name, str(tmp_path / name))
    common, tree = repo / ".git", tmp_path / "mine"
    entry = common / "worktrees" / "mine"
    found = reach(tree)
    assert set(found.writable) == {tree, common, entry}
    assert {tree / ".git", entry / "commondir", entry / "gitdir", common / "worktrees" / "other"} <= set(found.fixed)
    assert entry not in found.fixed


def test_the_settings_and_hooks_of_submodules_are_fixed_too(repo: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "first")
    git(repo, "submodule", "add", "-q", str(inner), "deep/module")
    module = repo / ".git" / "modules" / "deep" / "module"
    assert {module / "config", module / "hooks"} <= set(reach(repo).fixed)
