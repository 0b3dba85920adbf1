from pathlib import Path

import pytest

from untildone.rehearsal.environment import claude_environment


def test_nothing_of_the_surrounding_environment_gets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = claude_environment(tmp_path, "http://127.0.0.1:1")
    for name in ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "HTTPS_PROXY", "PATH", "HOME"):
        monkeypatch.setenv(name, "the-person's-own")
    assert claude_environment(tmp_path, "http://127.0.0.1:1") == before
    assert before["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"


def test_every_folder_is_inside_the_given_home(tmp_path: Path) -> None:
    variables = claude_environment(tmp_path, "u", path="/p")
    inside = {name for name, value in variables.items() if Path(value).is_relative_to(tmp_path)}
    assert {"HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "GIT_CONFIG_GLOBAL"} == inside
    assert variables["PATH"] == "/p"
