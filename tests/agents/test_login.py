"""Whether there is a login: signs first, then Claude Code itself; and nothing of it is read."""

import os
from pathlib import Path

import pytest

from untildone.agents.argv import find_claude
from untildone.agents.login import refuse_without_login
from untildone.errors import NotLoggedIn
from untildone.rehearsal.environment import claude_environment

pytestmark = pytest.mark.anyio

NOT_LOGGED_IN = '{"loggedIn": false, "authMethod": "none", "apiProvider": "firstParty"}'


def program(folder: Path, answer: str) -> str:
    path = folder / "claude"
    path.write_text(f"#!/bin/sh\ntouch {folder}/asked\npwd > {folder}/where\necho '{answer}'\n")
    path.chmod(0o755)
    return str(path)


async def looked(folder: Path, answer: str = NOT_LOGGED_IN, **env: str) -> bool:
    """Whether Claude Code was asked, after a look that found a login or could not tell."""
    claude = program(folder, answer)
    env = {"PATH": os.environ["PATH"]} | env
    await refuse_without_login(claude, env, config_dir=folder / "config", folders=(folder / "project",))
    return (folder / "asked").exists()


@pytest.mark.parametrize(
    "name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK"]
)
async def test_a_key_is_a_sign(tmp_path: Path, name: str) -> None:
    assert not await looked(tmp_path, **{name: "1"})


@pytest.mark.parametrize("name", ["config/.credentials.json", "project/.claude/settings.local.json"])
async def test_a_file_is_a_sign(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text('{"apiKeyHelper": "x"}')
    assert not await looked(tmp_path)


@pytest.mark.parametrize("answer", ["", "unknown command", '{"loggedIn": true}', '{"loggedIn": "no"}'])
async def test_only_a_plain_no_is_one(tmp_path: Path, answer: str) -> None:
    assert await looked(tmp_path, answer)
    assert "untildone-ask-" in (tmp_path / "where").read_text(), "in a project it would read the project's settings"


async def test_a_plain_no_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(NotLoggedIn, match=r"not logged in, so nothing was started: log in with `untildone login`"):
        await looked(tmp_path)


@pytest.mark.claude
async def test_the_real_claude_code_says_no(tmp_path: Path) -> None:
    env = claude_environment(tmp_path, "http://127.0.0.1:9", path=os.environ["PATH"])
    del env["ANTHROPIC_API_KEY"]
    with pytest.raises(NotLoggedIn):
        await refuse_without_login(find_claude(), env, config_dir=tmp_path / ".claude", folders=())
