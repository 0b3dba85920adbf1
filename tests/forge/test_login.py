"""Where a login comes from, and where it never goes."""

import os
from pathlib import Path

import pytest

from untildone.errors import ForgeError, LoginMissing
from untildone.forge import login
from untildone.forge.login import find_token

pytestmark = pytest.mark.anyio


def gh(folder: Path, script: str) -> str:
    """A `gh` of our own on the path."""
    program = folder / "gh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


async def test_the_environment_comes_first(tmp_path: Path) -> None:
    env = {"PATH": gh(tmp_path, "echo from-gh"), "GITHUB_TOKEN": " from-env \n"}
    assert await find_token("github.com", env) == "from-env"
    assert await find_token("github.com", {"PATH": env["PATH"], "GH_TOKEN": "other"}) == "other"


async def test_gh_is_asked_for_this_very_host(tmp_path: Path) -> None:
    path = gh(tmp_path, 'echo "$1-$2-$4-${GH_TOKEN:-none}"')
    assert await find_token("ghe.example.com", {"PATH": path, "GH_TOKEN": "x"}) == "auth-token-ghe.example.com-none"


async def test_a_token_of_github_goes_to_another_host_only_if_the_user_named_it(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path), "GITHUB_TOKEN": "of-github"}
    with pytest.raises(ForgeError, match="GH_ENTERPRISE_TOKEN"):
        await find_token("evil.example.com", env)
    assert await find_token("chosen.example.com", env, chosen=True) == "of-github"
    assert await find_token("ghe.example.com", env | {"GH_ENTERPRISE_TOKEN": "ours"}) == "ours"


@pytest.mark.parametrize("script", ["exit 1", "echo", "exec sleep 60"])
async def test_without_any_login_both_ways_are_named(
    tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "PATIENCE", 0.3)
    with pytest.raises(ForgeError) as refused:
        await find_token("github.com", {"PATH": gh(tmp_path, script)})
    assert "GITHUB_TOKEN" in str(refused.value)
    assert "gh auth login --hostname github.com" in str(refused.value)


async def test_without_gh_it_is_the_same(tmp_path: Path) -> None:
    with pytest.raises(LoginMissing, match=r"there is no login for github\.com"):
        await find_token("github.com", {"PATH": str(tmp_path)})


async def test_a_token_that_is_none_is_not_repeated_in_the_error() -> None:
    with pytest.raises(ForgeError) as refused:
        await find_token("github.com", {"PATH": "", "GITHUB_TOKEN": "sec\nret"})
    assert "ret" not in str(refused.value).replace("characters", "")
