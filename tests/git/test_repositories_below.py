"""Repositories of the user that lie in a lent folder: the agent can neither change their settings nor read them."""

from pathlib import Path

import pytest

from git.agents_kit import boxed
from git.conftest import Project
from git.test_agents_repository import prepared
from untildone.git.repositories_below import hold

pytestmark = pytest.mark.anyio

HOSTILE = """
cd {0}
printf '[core]\\n\\tfsmonitor = touch {1}; false\\n' >> .git/config || true
mkdir -p .git/hooks && printf '#!/bin/sh\\ntouch {1}\\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit
echo mine > .git || true
mv .git away; rm -rf .git; cd ..; mv $(basename {0}) away; true
"""


def nested(repo: Project, place: str) -> Project:
    inner = Project(repo.path / place)
    inner.init()
    inner.write("file")
    inner.commit()
    inner.git("remote", "add", "origin", "https://ada:secret@example.org/x.git")
    return inner


async def test_they_stay_as_they_are(repo: Project, tmp_path: Path) -> None:
    repo.write(".gitignore", "vendor/\n.trees/\n")
    repo.commit("ignored")
    inner = nested(repo, "vendor/lib")
    repo.git("worktree", "add", "-q", ".trees/x", "-b", "other")
    before = (inner.path / ".git/config").read_text(), (repo.path / ".trees/x/.git").read_text()
    one = await prepared(repo, tmp_path)
    assert "secret" not in one.agent("cat vendor/lib/.git/config; git -C vendor/lib remote -v", check=False)
    assert one.agent("git -C vendor/lib log --format=%s; echo x > vendor/lib/file; cat vendor/lib/file") == "by hand\nx"
    for place in ("vendor/lib", ".trees/x"):
        one.agent(HOSTILE.format(place, tmp_path / "ran"), check=False)
    assert ((inner.path / ".git/config").read_text(), (repo.path / ".trees/x/.git").read_text()) == before
    inner.git("commit", "-qam", "the user")
    assert "file" in inner.git("show", "--stat")
    assert not (tmp_path / "ran").exists()


async def test_one_that_the_agent_makes_is_its_own_in_a_later_driver_too(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    one.agent("git init -q made")
    again = await boxed(repo, tmp_path)
    again.agent("cd made; git config a.b c; rm -rf .git")
    assert not (repo.path / "made/.git").exists()


def test_those_of_a_further_folder_are_found_with_its_own(repo: Project, tmp_path: Path) -> None:
    inner = nested(repo, "p")
    held = {
        place: source for source, place, may_write in hold(repo.path, tmp_path / "files", itself=True) if not may_write
    }
    own = repo.path / ".git"
    assert {*held} == {own, own / "config", inner.path / ".git", inner.path / ".git/config"}
    assert "secret" not in held[inner.path / ".git/config"].read_text()
