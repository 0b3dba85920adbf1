"""The environment of an agent."""

from untildone.agents.environment import agent_environment


def test_nothing_of_an_outer_session_or_of_our_own_settings_gets_through() -> None:
    outer = {"PATH": "/bin", "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "s", "CLAUDE_PID": "7",
             "CLAUDE_CODE_ENTRYPOINT": "cli", "UNTILDONE_TOKEN": "secret", "UNTILDONE_RUN": "other",
             "CLAUDE_CODE_OAUTH_TOKEN": "login", "ANTHROPIC_API_KEY": "key"}  # fmt: skip
    env = agent_environment(outer, run_id="r1")
    assert env == {
        "PATH": "/bin", "CLAUDE_CODE_OAUTH_TOKEN": "login", "ANTHROPIC_API_KEY": "key", "UNTILDONE_RUN": "r1",
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1", "CLAUDE_CODE_MAX_RETRIES": "2", "CLAUDE_CODE_RETRY_WATCHDOG": "1",
    }  # fmt: skip
    assert outer["CLAUDECODE"] == "1"


def test_what_the_user_set_is_kept() -> None:
    env = agent_environment({"CLAUDE_CODE_MAX_RETRIES": "7", "CLAUDE_CONFIG_DIR": "/c"}, run_id="r1")
    assert env["CLAUDE_CODE_MAX_RETRIES"] == "7"
    assert env["CLAUDE_CONFIG_DIR"] == "/c"


def test_a_run_can_have_a_configuration_of_its_own() -> None:
    assert agent_environment({"CLAUDE_CONFIG_DIR": "/c"}, run_id="r", config_dir="/own")["CLAUDE_CONFIG_DIR"] == "/own"
    assert "CLAUDE_CONFIG_DIR" not in agent_environment({}, run_id="r")


def test_root_may_skip_permissions_only_when_it_was_asked_for() -> None:
    assert "IS_SANDBOX" not in agent_environment({}, run_id="r", is_root=True)
    assert "IS_SANDBOX" not in agent_environment({}, run_id="r", skip_permissions=True)
    assert agent_environment({}, run_id="r", skip_permissions=True, is_root=True)["IS_SANDBOX"] == "1"


def test_what_is_withheld_is_not_there() -> None:
    env = agent_environment({"GITHUB_TOKEN": "t", "PATH": "/bin"}, run_id="r", withheld={"GITHUB_TOKEN"})
    assert "GITHUB_TOKEN" not in env
    assert env["PATH"] == "/bin"
