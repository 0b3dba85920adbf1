"""A repository looked at without its settings tells the same as git does with them."""

import os
from pathlib import Path

import pytest

from git.conftest import Project
from untildone.errors import WorkspaceError
from untildone.git.inspection import inspecting

pytestmark = pytest.mark.anyio


async def status(folder: Path) -> tuple[str, int]:
    """The branch, and how many files are not committed as they are."""
    async with inspecting(folder) as repository:
        assert repository is not None
        branch = await repository.git("symbolic-ref", "-q", "--short", "HEAD")
        changed = await repository.git("status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all")
        assert (changed.code, changed.err) == (0, "")
        return branch.text, changed.out.count(b"\0")


async def test_it_tells_what_git_tells(repo: Project) -> None:
    repo.write(".gitignore", "*.log\n")
    repo.write("b.txt")
    repo.commit()
    repo.git("pack-refs", "--all")
    repo.git("config", "core.autocrlf", "input")
    (repo.path / ".git" / "info" / "exclude").write_text("*.tmp\n")
    assert await status(repo.path) == ("work", 0)
    for name in ("b.txt", "new.txt", "x.log", "x.tmp"):
        repo.write(name, "changed\n")
    assert await status(repo.path) == ("work", 2)
    (repo.path / "inner").mkdir()
    assert await status(repo.path / "inner") == ("work", 2)


async def test_a_worktree_and_another_format(repo: Project, tmp_path: Path) -> None:
    repo.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    (tmp_path / "tree" / "new.txt").write_text("x")
    assert await status(tmp_path / "tree") == ("side", 1)
    other = Project(tmp_path / "sha256")
    other.path.mkdir()
    other.git("init", "-q", "-b", "trunk", "--object-format=sha256")
    other.write("a.txt")
    assert await status(other.path) == ("trunk", 1)


async def test_who_commits_and_where_to_is_known(repo: Project) -> None:
    for name, url in (("origin", "https://a.test/x"), ("up.stream", "https://b.test/y")):
        repo.git("remote", "add", name, url)
    async with inspecting(repo.path) as repository:
        assert repository is not None
        assert repository.remotes == {"origin": "https://a.test/x", "up.stream": "https://b.test/y"}
        assert not repository.has_own_ways
        assert "Ada <ada@example.org>" in (await repository.git("var", "GIT_AUTHOR_IDENT")).text
    repo.git("config", "core.sshCommand", "ssh -i key")
    async with inspecting(repo.path) as repository:
        assert repository is not None
        assert repository.has_own_ways


async def test_where_there_is_none(plain: Project) -> None:
    async with inspecting(plain.path) as repository:
        assert repository is None


async def test_a_repository_of_another_user_is_refused_with_the_way_out(
    repo: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(WorkspaceError, match=r"dubious ownership.*git config --global --add safe.directory"):
        async with inspecting(repo.path):
            pass
