"""A branch learns that the base has its work, and no file changes."""

import subprocess
from pathlib import Path

import pytest

from untildone.git.rejoin import rejoin
from untildone.git.repository import Repository, open_repository

pytestmark = pytest.mark.anyio


def git(folder: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
async def repository(tmp_path: Path) -> Repository:
    top = tmp_path / "repo"
    top.mkdir()
    git(top, "init", "-q", "-b", "main", ".")
    git(top, "config", "user.name", "A")
    git(top, "config", "user.email", "a@b")
    git(top, "commit", "-q", "--allow-empty", "-m", "first")
    git(top, "switch", "-q", "-c", "work")
    (top / "a.txt").write_text("a\n")
    git(top, "add", ".")
    git(top, "commit", "-qm", "work")
    return await open_repository(top, private=tmp_path / "private")


def squashed(top: Path) -> str:
    commit = git(top, "commit-tree", "HEAD^{tree}", "-p", "main", "-m", "squashed")
    git(top, "update-ref", "refs/heads/main", commit)
    return commit


async def test_a_squashed_merge_is_joined_without_touching_a_file(repository: Repository) -> None:
    top, head = repository.top, git(repository.top, "rev-parse", "HEAD")
    (top / "mine.txt").write_text("of the user\n")
    merged = squashed(top)
    assert await rejoin(repository, merged)
    assert git(top, "show", "-s", "--format=%P", "HEAD").split() == [head, merged]
    assert git(top, "diff", "--name-only", head, "HEAD") == ""
    assert git(top, "status", "--porcelain") == "?? mine.txt"
    joined = git(top, "rev-parse", "HEAD")
    assert await rejoin(repository, merged)
    assert git(top, "rev-parse", "HEAD") == joined, "safe to repeat"


async def test_a_true_merge_is_simply_followed(repository: Repository) -> None:
    top = repository.top
    merged = git(top, "commit-tree", "HEAD^{tree}", "-p", "main", "-p", "HEAD", "-m", "merged")
    assert await rejoin(repository, merged)
    assert git(top, "rev-parse", "HEAD") == merged


async def test_what_holds_other_files_is_left_alone(repository: Repository) -> None:
    top, head = repository.top, git(repository.top, "rev-parse", "HEAD")
    assert not await rejoin(repository, git(top, "commit-tree", "main^{tree}", "-p", "main", "-m", "other"))
    assert not await rejoin(repository, "0" * 40)
    assert git(top, "rev-parse", "HEAD") == head
