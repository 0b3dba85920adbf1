"""How an agent in a sandbox gets at the model, and what it is told by its environment."""

from typing import Any

import pytest

from untildone.core.model_access import (
    PLACEHOLDER,
    environment_inside,
    may_be_seen,
    model_access,
    settings_inside,
)

SECRET = "sk-ant-the-real-one"


@pytest.mark.parametrize(
    ("env", "settings", "adds", "upstream"),
    [
        ({"ANTHROPIC_API_KEY": SECRET}, {}, [("x-api-key", SECRET)], "https://api.anthropic.com"),
        ({"ANTHROPIC_AUTH_TOKEN": SECRET}, {}, [("authorization", f"Bearer {SECRET}")], "https://api.anthropic.com"),
        (
            {"ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/base/"},
            {},
            [("x-api-key", SECRET)],
            "http://127.0.0.1:9/base",
        ),
        ({}, {"env": {"ANTHROPIC_API_KEY": SECRET}}, [("x-api-key", SECRET)], "https://api.anthropic.com"),
        (
            {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_CUSTOM_HEADERS": "X-Gateway: a:b\nnonsense"},
            {},
            [("x-gateway", "a:b"), ("x-api-key", "k")],
            "https://api.anthropic.com",
        ),
    ],
)
def test_a_key_becomes_a_way_that_adds_it_outside(
    env: dict[str, str], settings: dict[str, Any], adds: list[tuple[str, str]], upstream: str
) -> None:
    access = model_access(env, settings, has_login=True)
    assert access.kind == "key"
    assert access.way is not None
    assert (list(access.way.adds), access.way.upstream) == (adds, upstream)
    assert SECRET not in str(environment_inside(env, access, port=1))
    assert SECRET not in str(settings_inside(settings))


@pytest.mark.parametrize(
    ("env", "settings", "has_login", "kind", "said"),
    [
        ({}, {}, True, "login", ""),
        ({"CLAUDE_CODE_OAUTH_TOKEN": "t"}, {}, False, "login", ""),
        ({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}, {}, True, "neither", "a gateway on this machine"),
        ({"ANTHROPIC_BASE_URL": "http://[::1]:9/x"}, {}, True, "neither", "a gateway on this machine"),
        ({"ANTHROPIC_BASE_URL": "https://localhost"}, {}, True, "neither", "a gateway on this machine"),
        ({}, {}, False, "neither", "there is no key and no login"),
        ({}, {"apiKeyHelper": "/bin/key"}, True, "neither", "the key comes from the program that `apiKeyHelper` names"),
        ({"CLAUDE_CODE_USE_BEDROCK": "1"}, {}, True, "neither", "CLAUDE_CODE_USE_BEDROCK is set"),
    ],
)
def test_what_cannot_be_kept_outside_is_said(
    env: dict[str, str], settings: dict[str, Any], kind: str, said: str, *, has_login: bool
) -> None:
    access = model_access(env, settings, has_login=has_login)
    assert access.kind == kind
    assert said in access.said
    assert bool(access.hosts) == (kind == "login")


def test_the_environment_inside_holds_places_and_language_and_no_secret() -> None:
    env = {
        "PATH": "/usr/bin:/home/u/.cargo/bin", "HOME": "/home/u", "LC_ALL": "C", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "9",
        "JAVA_HOME": "/opt/java", "ANTHROPIC_API_KEY": SECRET, "AWS_SECRET_ACCESS_KEY": "a", "GITHUB_TOKEN": "g",
        "DATABASE_URL": "postgres://u:p@host/db", "npm_config__authToken": "n", "CLAUDE_CODE_CLIENT_KEY": "c",
        "MY_FLAG": "on", "OTHER": "off",
    }  # fmt: skip
    access = model_access(env, {}, has_login=False)
    inside = environment_inside(env, access, port=8484, passed=("MY_FLAG",))
    assert inside["ANTHROPIC_API_KEY"] == PLACEHOLDER
    assert inside["ANTHROPIC_BASE_URL"] == inside["HTTPS_PROXY"] == inside["http_proxy"] == "http://127.0.0.1:8484"
    kept = {"PATH", "HOME", "LC_ALL", "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "JAVA_HOME", "MY_FLAG"}
    assert {name for name in env if inside.get(name) == env[name]} == kept


@pytest.mark.parametrize(
    ("name", "value", "seen"),
    [
        ("GOPATH", "/home/u/go", True),
        ("PYTHONPATH", "/a:/b:", True),
        ("SOME_TOKEN", "/a", False),
        ("EMPTY", "", False),
        ("EDITOR", "vi", False),
        ("LANG", "C.UTF-8", True),
    ],
)
def test_a_list_of_places_is_no_secret(name: str, value: str, *, seen: bool) -> None:
    assert may_be_seen(name, value) == seen


def test_settings_reach_the_inside_without_keys_and_without_what_prints_them() -> None:
    settings = {
        "model": "opus", "apiKeyHelper": "/bin/key", "hooks": {"Stop": []},
        "env": {"ANTHROPIC_API_KEY": SECRET, "CLAUDE_CODE_EFFORT": "high", "ANTHROPIC_BASE_URL": "https://gateway"},
    }  # fmt: skip
    assert settings_inside(settings) == {
        "model": "opus",
        "hooks": {"Stop": []},
        "env": {"CLAUDE_CODE_EFFORT": "high"},
    }


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://gateway.example/claude", "gateway.example"),
        ("https://gateway.example:8443", "gateway.example:8443"),
        ("http://10.0.0.7/", "10.0.0.7:80"),
    ],
)
def test_a_login_goes_through_the_users_gateway(address: str, host: str) -> None:
    """Its address may be in the settings as well as in the environment."""
    for env, settings in (({"ANTHROPIC_BASE_URL": address}, {}), ({}, {"env": {"ANTHROPIC_BASE_URL": address}})):
        access = model_access(env, settings, has_login=True)
        assert (access.kind, access.hosts[-1]) == ("login", host)
        assert environment_inside(env, access, port=1)["ANTHROPIC_BASE_URL"] == address


def test_a_login_of_the_settings_is_lent_too() -> None:
    access = model_access({}, {"env": {"CLAUDE_CODE_OAUTH_TOKEN": "t"}}, has_login=False)
    assert environment_inside({}, access, port=1)["CLAUDE_CODE_OAUTH_TOKEN"] == "t"
