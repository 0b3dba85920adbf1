"""On the real Claude Code in a sandbox: a subscription's login is lent as one live file; its traffic passes unread."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.kit import PATIENCE, Stage, finished
from e2e.login_server import RENEWED, LoginServer, login_server
from e2e.trouble_kit import UsedUpModel
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario

pytestmark = [
    pytest.mark.claude,
    pytest.mark.soak,  # it listens on port 443 and shows the loop other hosts: both need root
]

LOGIN: dict[str, Any] = {
    "accessToken": "sk-ant-oat01-made-up", "refreshToken": "sk-ant-ort01-made-up", "expiresAt": 1,
    "scopes": ["user:inference", "user:profile"], "subscriptionType": "max",
}  # fmt: skip
FAR = 4_000_000_000_000
SCENARIO = Scenario(name="login", iterations=((Reply(text=finished()),), (Reply(text=finished()),)))
SEES_HOSTS = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"')
RUN = ("run", "live on a subscription", "-m", "4", "--name", "lent", "--sandbox", "bwrap", "--json")


@contextmanager
def subscriber(
    tmp_path: Path, login: dict[str, Any], model: ScriptedModel | None = None
) -> Iterator[tuple[Stage, LoginServer, Path]]:
    """A user with a login and no key; where the names of Anthropic lead, for the loop alone."""
    with model or ScriptedModel(SCENARIO) as served, login_server(tmp_path / "tls", served.url) as server:
        stage = Stage(tmp_path, served)
        file = Path(stage.env["CLAUDE_CONFIG_DIR"]) / ".credentials.json"
        file.parent.mkdir(parents=True)
        write_anew(file, login)
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
            del stage.env[name]
        stage.env["NODE_EXTRA_CA_CERTS"] = str(server.authority)
        yield stage, server, file


def write_anew(file: Path, login: dict[str, Any]) -> None:
    """As Claude Code does it outside of a sandbox: another file in its place."""
    made = file.with_name("made")
    made.write_text(json.dumps({"claudeAiOauth": login}))
    made.chmod(0o600)
    made.rename(file)


def run(stage: Stage, server: LoginServer) -> dict[str, Any]:
    argv = [*SEES_HOSTS, str(server.hosts), sys.executable, "-m", "untildone", *RUN]
    done = subprocess.run(argv, cwd=stage.repo, env=stage.env, capture_output=True, timeout=PATIENCE, check=False)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def messages(server: LoginServer) -> list[str]:
    """The logins with which the model was asked."""
    return [login for _, path, login in server.asked if path == "/v1/messages"]


def test_what_is_renewed_inside_is_renewed_in_the_users_own_file(tmp_path: Path) -> None:
    with subscriber(tmp_path, LOGIN) as (stage, server, file):
        same = file.stat().st_ino
        result = run(stage, server)
        assert result["exit_reason"] == "completion_signal", result
        kept = json.loads(file.read_text())["claudeAiOauth"]
        assert (kept["accessToken"], kept["refreshToken"]) == (RENEWED["access_token"], RENEWED["refresh_token"])
        assert file.stat().st_ino == same
        assert set(messages(server)) == {f"Bearer {RENEWED['access_token']}"}
        assert [path for _, path, _ in server.asked].count("/v1/oauth/token") == 1
        first = stage.here("log", "lent").stdout.splitlines()[1]
        assert "sandbox (bubblewrap), your login is lent to it" in first
        copies = [path for path in tmp_path.rglob("*") if path.is_file() and b"sk-ant-ort01" in path.read_bytes()]
        assert copies == [file], "one file, and no copy of it"


def test_a_login_that_is_replaced_outside_is_used_from_the_next_iteration_on(tmp_path: Path) -> None:
    with subscriber(tmp_path, LOGIN | {"expiresAt": FAR}) as (stage, server, file):
        another = LOGIN | {"accessToken": "sk-ant-oat01-another", "expiresAt": FAR}
        server.after_message = lambda: write_anew(file, another) if len(messages(server)) == 1 else None
        result = run(stage, server)
        assert result["exit_reason"] == "completion_signal", result
        first, *later = messages(server)
        assert first == f"Bearer {LOGIN['accessToken']}"
        assert set(later) == {"Bearer sk-ant-oat01-another"}


def test_a_usage_limit_is_waited_out(tmp_path: Path) -> None:
    used_up = UsedUpModel(SCENARIO, seconds=3, refusal=Reply())
    with subscriber(tmp_path, LOGIN | {"expiresAt": FAR}, used_up) as (stage, server, _):
        result = run(stage, server)
        assert (result["exit_reason"], result["rate_limit_hit"]) == ("completion_signal", True), result
        failed = [event["event_data"] for event in stage.events("lent") if event["event_type"] == "iteration.failed"]
        assert {event["error_type"] for event in failed} == {"usage_limit"}
        assert used_up.answered is not None
        assert used_up.answered >= used_up.over


def test_a_login_that_is_refused_after_it_was_replaced_outside_ends_nothing(tmp_path: Path) -> None:
    """Both renew it when it expires: whoever comes second has one that is of no use any more."""
    with subscriber(tmp_path, LOGIN | {"expiresAt": FAR}) as (stage, server, file):
        another = LOGIN | {"accessToken": "sk-ant-oat01-another", "expiresAt": FAR}

        def renewed_elsewhere() -> None:
            if not server.refused:
                write_anew(file, another)
                server.refused.add(LOGIN["accessToken"])

        server.after_message = renewed_elsewhere
        result = run(stage, server)
        assert result["exit_reason"] == "completion_signal", result
        failed = [event["event_data"] for event in stage.events("lent") if event["event_type"] == "iteration.failed"]
        assert [event["error_type"] for event in failed] == ["login_replaced"]
        assert messages(server)[-1] == "Bearer sk-ant-oat01-another"
        assert json.loads(file.read_text())["claudeAiOauth"]["accessToken"] == "sk-ant-oat01-another"
