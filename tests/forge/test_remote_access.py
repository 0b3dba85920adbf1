"""What of a remote and its forge an agent in a sandbox may ask for."""

from base64 import b64decode

import pytest

from untildone.core.contract import CheckSpec, Contract
from untildone.core.door import Forward, Refused, Table, answer
from untildone.core.policy import AgentOptions, RunSpec
from untildone.forge.remote_access import FORGE_HOST, REMOTE_HOST, forge_access, git_access, login_in, may_publish

ADDRESS = "https://git.example:8443/group/widget.git"
LOGIN = ("jo", "the: password")


def asked(table: Table, method: str, host: str, path: str) -> Forward | None:
    found = answer(table, method, f"http://{host}{path}")
    return found if isinstance(found, Forward) else None


@pytest.mark.parametrize("publishes", [False, True])
def test_git_reads_one_repository_and_writes_only_where_it_may_publish(*, publishes: bool) -> None:
    access = git_access(ADDRESS, LOGIN, publishes=publishes)
    table = Table(ways=access.ways)
    fetch = asked(table, "GET", REMOTE_HOST, "/group/widget/info/refs?service=git-upload-pack")
    assert fetch is not None
    assert fetch.url == "https://git.example:8443/group/widget/info/refs?service=git-upload-pack"
    ((name, value),) = fetch.adds
    assert (name, b64decode(value.removeprefix("Basic "))) == ("authorization", b"jo:the: password")
    assert "git-protocol".startswith(fetch.passes)
    assert not any(name.startswith(fetch.passes) for name in ("x-http-method-override", "x-original-url", "cookie"))
    assert asked(table, "POST", REMOTE_HOST, "/group/widget.git/git-upload-pack") is not None
    assert (asked(table, "POST", REMOTE_HOST, "/group/widget.git/git-receive-pack") is not None) == publishes
    for path in (
        "/group/widget-other/info/refs", "/group/other.git/info/refs", "/group/widget/../other.git/info/refs",
        "/group/widget/.%2e/other.git/info/refs", "/group/widget/info/refs/more", "/group/widget", "/", "/user",
    ):  # fmt: skip
        assert asked(table, "GET", REMOTE_HOST, path) is None, path


def test_git_finds_the_remote_where_it_always_is() -> None:
    told = git_access(ADDRESS, LOGIN, publishes=False).env
    assert told["GIT_CONFIG_KEY_0"] == f"url.http://{REMOTE_HOST}/group/widget.insteadOf"
    assert told["GIT_CONFIG_VALUE_0"] == "https://git.example:8443/group/widget"
    assert "password" not in str(told)


@pytest.mark.parametrize(
    "address", ["git@github.com:a/b.git", "ssh://git@github.com/a/b", "/srv/git/a.git", "", "https://h/"]
)
def test_what_is_not_on_the_web_is_no_way_of_the_agents(address: str) -> None:
    assert git_access(address, None, publishes=False).ways == ()


def test_a_public_repository_needs_no_login() -> None:
    assert git_access(ADDRESS, None, publishes=False).ways[0].adds == ()


def test_the_forge_tells_of_one_repository_and_takes_nothing() -> None:
    table = Table(ways=forge_access("https://git.example/api/v3", "a/b", "token", publishes=False).ways)
    found = asked(table, "GET", FORGE_HOST, "/repos/a/b/pulls?state=all")
    assert found is not None
    assert (found.url, found.adds) == (
        "https://git.example/api/v3/repos/a/b/pulls?state=all", (("authorization", "Bearer token"),),
    )  # fmt: skip
    for method, path in (
        ("GET", "/repos/a/bc"), ("GET", "/repos/a"), ("GET", "/user"), ("POST", "/repos/a/b/pulls"),
        ("POST", "/graphql"), ("DELETE", "/repos/a/b"), ("GET", "/repos/a/b/../c"), ("GET", "/repos/a/b/%2E%2E/c"),
    ):  # fmt: skip
        assert asked(table, method, FORGE_HOST, path) is None, (method, path)
    publishing = Table(ways=forge_access("https://git.example/api/v3", "a/b", "token", publishes=True).ways)
    assert asked(publishing, "POST", FORGE_HOST, "/repos/a/b/pulls") is not None
    refused = answer(table, "GET", f"http://{FORGE_HOST}/user")
    assert isinstance(refused, Refused)
    assert not refused.can_be_allowed, "no --allow-host would help"


def spec(**options: object) -> RunSpec:
    return RunSpec(goal="x", name="x", cwd="/x", options=AgentOptions(**options))  # type: ignore[arg-type]


def test_only_the_users_word_lets_an_agent_publish() -> None:
    assert not may_publish(spec())
    assert not may_publish(spec(skip_permissions=True))
    assert may_publish(spec(allow_tools=("Bash(git push:*)",)))
    pushed = Contract(checks=(CheckSpec(name="pushed", kind="pushed"),))
    assert may_publish(RunSpec(goal="x", name="x", cwd="/x", contract=pushed))


def test_a_login_in_an_address_is_found() -> None:
    assert login_in("https://jo:a%40b@git.example/x") == ("jo", "a@b")
    assert login_in("https://jo@git.example/x") is None
