"""A folder made ready for a worker: cloned, on its branch, logged in by a token that is written down nowhere."""

import os
import subprocess
from pathlib import Path

import pytest

from untildone.errors import WishRefused, WorkspaceError
from untildone.git.arriving import cloned, login_by_token, on_branch

pytestmark = pytest.mark.anyio


def git(folder: Path, *args: str, **more: str) -> str:
    asked = subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@b", *args],
        cwd=folder, env=os.environ | more, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return asked.stdout.strip()


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """A repository to clone, with a second branch."""
    place = tmp_path / "far"
    place.mkdir()
    git(place, "init", "-q", "-b", "main", ".")
    (place / "a.txt").write_text("a\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "first")
    git(place, "switch", "-q", "-c", "feature/x")
    (place / "x.txt").write_text("x\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "x")
    git(place, "switch", "-q", "main")
    return place


async def test_a_missing_or_empty_folder_is_cloned_and_any_other_left_alone(tmp_path: Path, far: Path) -> None:
    here = tmp_path / "deep" / "here"
    assert await cloned(here, f"file://{far}")
    assert (here / "a.txt").read_text() == "a\n"
    (here / "a.txt").write_text("mine")
    assert not await cloned(here, f"file://{far}")
    assert (here / "a.txt").read_text() == "mine"


async def test_what_cannot_be_cloned_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="could not be cloned into") as refused:
        await cloned(tmp_path / "here", f"file://{tmp_path}/nothing")
    assert "\n" not in str(refused.value)


async def test_a_branch_is_taken_from_here_from_the_remote_or_made(tmp_path: Path, far: Path) -> None:
    here = tmp_path / "here"
    await cloned(here, f"file://{far}")
    assert await on_branch(here, "main") == ""
    assert await on_branch(here, "feature/x") == "switched to branch feature/x of origin"
    assert git(here, "rev-parse", "--abbrev-ref", "@{u}") == "origin/feature/x"
    assert await on_branch(here, "new") == "made branch new"
    assert await on_branch(here, "main") == "switched to branch main"
    assert git(here, "branch", "--show-current") == "main"


async def test_a_branch_that_came_to_the_remote_later_is_found(tmp_path: Path, far: Path) -> None:
    here = tmp_path / "here"
    await cloned(here, f"file://{far}")
    git(far, "branch", "late", "feature/x")
    assert await on_branch(here, "late") == "switched to branch late of origin"
    assert (here / "x.txt").exists()


async def test_uncommitted_work_is_never_lost(tmp_path: Path, far: Path) -> None:
    here = tmp_path / "here"
    await cloned(here, f"file://{far}")
    (here / "x.txt").write_text("not yours")
    with pytest.raises(WishRefused, match="cannot be switched to branch feature/x"):
        await on_branch(here, "feature/x")
    assert (here / "x.txt").read_text() == "not yours"


async def test_hooks_of_the_repository_do_not_run(tmp_path: Path, far: Path) -> None:
    here = tmp_path / "here"
    await cloned(here, f"file://{far}")
    hook = here / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    await on_branch(here, "feature/x")
    assert not (tmp_path / "ran").exists()


async def test_without_a_repository_there_is_no_branch(tmp_path: Path) -> None:
    with pytest.raises(WishRefused, match="not in a git repository"):
        await on_branch(tmp_path, "x")


def credentials(folder: Path, env: dict[str, str], host: str = "github.com") -> str:
    asked = subprocess.run(
        ["git", "credential", "fill"],
        input=f"protocol=https\nhost={host}\n\n", cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | env | {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/false"},
    )  # fmt: skip
    return asked.stdout


def test_git_logs_in_with_the_token_of_the_moment_and_only_there(tmp_path: Path) -> None:
    login = login_by_token({})
    assert "password=ghp_x\n" in credentials(tmp_path, login | {"GITHUB_TOKEN": "ghp_x"})
    assert "password" not in credentials(tmp_path, login | {"GITHUB_TOKEN": ""})
    assert "password" not in credentials(tmp_path, login | {"GITHUB_TOKEN": "ghp_x"}, host="evil.example")
    assert not [value for value in login.values() if "ghp_x" in value]


def test_what_was_configured_by_variables_stays(tmp_path: Path) -> None:
    before = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "demo.one", "GIT_CONFIG_VALUE_0": "1"}
    env = before | login_by_token(before)
    assert git(tmp_path, "config", "demo.one", **env) == "1"
    assert env["GIT_CONFIG_COUNT"] == "3"
