"""On the real Claude Code in a sandbox: git and the forge of the run's own remote, with no login inside."""

import os
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.git_server import GitServer, git_server
from e2e.kit import Stage, finished, staged, working
from patience import eventually
from untildone.rehearsal.github import ScriptedGitHub
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

PASSWORD = "the-password-of-the-remote"
RUN = ("run", "publish", "-m", "3", "--name", "published", "--sandbox", "bwrap", "--land", "none")
TRIES = """
try() { echo "== $1"; shift; "$@" 2>&1 && echo worked || echo failed; }
ask() { curl -sS -o answer -w '%{http_code}\\n' "$@"; head -c 300 answer; rm -f answer; }
there=$(git config remote.origin.url)
exec > tried.txt
try fetch git fetch -q origin newer
git log -1 --format=%s FETCH_HEAD
try dry-run git push -q --dry-run origin HEAD:refs/heads/attempt
try push git push -q origin HEAD:refs/heads/attempt
try other git ls-remote "${there%/*}/other.git"
try other-through-the-door git ls-remote http://remote.invalid/acme/other.git
try dots git ls-remote http://remote.invalid/acme/widget/../other.git
try pulls ask "$GITHUB_API_URL/repos/acme/widget/pulls"
try other-pulls ask "$GITHUB_API_URL/repos/acme/other/pulls"
try user ask "$GITHUB_API_URL/user"
try open ask -X POST -d '{"title": "x", "head": "x", "base": "work"}' "$GITHUB_API_URL/repos/acme/widget/pulls"
env
cat .git/config "$HOME/.gitconfig" "$HOME/.git-credentials"
true
"""


def bash(command: str) -> Reply:
    return Reply(text="Working.", tools=(ToolCall(name="Bash", input={"command": command}),))


def git(*args: str, cwd: Path) -> str:
    return subprocess.run(["git", *args], cwd=cwd, check=True, capture_output=True, text=True).stdout


@contextmanager
def published(stage: Stage) -> Iterator[GitServer]:
    """The run's repository comes from a server that wants a login, beside another one that it may not read."""
    place = stage.tmp / "served" / "acme"
    for name in ("widget", "other"):
        git("clone", "-q", "--bare", str(stage.repo), str(place / f"{name}.git"), cwd=stage.tmp)
    maker = stage.tmp / "maker"
    git("clone", "-q", str(place / "widget.git"), str(maker), cwd=stage.tmp)
    git("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "--allow-empty", "-m", "news of others", cwd=maker)
    git("push", "-q", "origin", "HEAD:refs/heads/newer", cwd=maker)
    (stage.repo / ".gitignore").write_text("tried.txt\n")
    stage.git("add", "-A")
    stage.git("commit", "-qm", "ignored")
    home = Path(stage.env["HOME"])
    home.mkdir(exist_ok=True)
    with git_server(place.parent, "user", PASSWORD) as server:
        (home / ".git-credentials").write_text(server.url.replace("://", f"://user:{PASSWORD}@") + "\n")
        (home / ".gitconfig").write_text("[credential]\n\thelper = store\n")
        stage.git("remote", "add", "origin", f"{server.url}/acme/widget.git")
        yield server


def answers(tried: str) -> dict[str, str]:
    """What each try printed, by its name."""
    parts = (part.partition("\n") for part in tried.split("== ")[1:])
    return {name: said for name, _, said in parts}


def test_it_reads_the_runs_own_remote_and_forge_and_nothing_else(tmp_path: Path) -> None:
    scenario = Scenario(name="reads", iterations=((bash(TRIES), Reply(text=finished())),))
    bare = tmp_path / "served" / "acme" / "widget.git"
    with staged(tmp_path, scenario) as stage, published(stage) as server, ScriptedGitHub(bare) as github:
        stage.env["GITHUB_TOKEN"] = github.token
        forge = ("--forge-url", github.url, "--repo", "acme/widget")
        result = stage.result_here(*RUN, *forge, "--skip-permissions")
        assert result["attempts"], result
        everything = (stage.repo / "tried.txt").read_text()
        said = answers(everything)
        assert "worked\nnews of others" in said["fetch"]
        assert "worked" in said["dry-run"]
        for refused in ("push", "other", "other-through-the-door", "dots"):
            assert "failed" in said[refused], (refused, said[refused])
        assert said["pulls"].startswith("200\n["), said["pulls"]
        for refused in ("other-pulls", "user", "open"):
            assert said[refused].startswith("403\nuntildone: "), (refused, said[refused])
        assert not [secret for secret in (PASSWORD, github.token) if secret in everything]
        assert {request.login for request in github.requests} == {f"Bearer {github.token}"}
        assert not any("other" in path for path, _ in server.asked)
        assert "attempt" not in git("branch", cwd=bare)


def test_it_pushes_without_a_login_where_the_user_allows_git_push(tmp_path: Path) -> None:
    push = bash("git push -q origin HEAD:refs/heads/attempt")
    scenario = Scenario(name="pushes", iterations=((push, Reply(text=working())), (Reply(text=finished()),)))
    with staged(tmp_path, scenario) as stage, published(stage) as server:
        result = stage.result_here(*RUN, "--allow-tool", "Bash(git push:*)")
        assert result["attempts"], result
        bare = tmp_path / "served" / "acme" / "widget.git"
        assert git("rev-parse", "attempt", cwd=bare) == stage.git("rev-parse", "HEAD")
        assert any("git-receive-pack" in path for path, _ in server.asked)


class Greeter(socketserver.ThreadingTCPServer):
    """Greets as a server of ssh does, and goes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Greeting)
        self.heard: list[bytes] = []


class _Greeting(socketserver.StreamRequestHandler):
    server: Greeter

    def handle(self) -> None:
        self.wfile.write(b"SSH-2.0-greeter\r\n")
        self.server.heard.append(self.rfile.readline())


@contextmanager
def ssh_agent(folder: Path) -> Iterator[Path]:
    """A real one, with a key in it."""
    folder.mkdir()
    place, key = folder / "socket", folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "of the user", "-f", key], check=True)
    with subprocess.Popen(["ssh-agent", "-D", "-a", place], stdout=subprocess.DEVNULL) as agent:
        try:
            eventually(place.exists)
            told = {"SSH_AUTH_SOCK": str(place), "PATH": os.environ["PATH"]}
            subprocess.run(["ssh-add", "-q", key], check=True, env=told, capture_output=True)
            key.unlink()
            yield place
        finally:
            agent.terminate()


@pytest.mark.parametrize("is_lent", [True, False])
def test_the_ssh_agent_is_lent_only_if_the_user_says_so(tmp_path: Path, *, is_lent: bool) -> None:
    tries = bash("exec > tried.txt 2>&1; ssh-add -l; git fetch origin; true")
    scenario = Scenario(name="ssh", iterations=((tries, Reply(text=working())), (Reply(text=finished()),)))
    with staged(tmp_path, scenario) as stage, ssh_agent(tmp_path / "ssh") as place, Greeter() as greeter:
        threading.Thread(target=greeter.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        stage.env["SSH_AUTH_SOCK"] = str(place)
        stage.git("remote", "add", "origin", f"ssh://git@127.0.0.1:{greeter.server_address[1]}/acme/widget.git")
        result = stage.result_here(*RUN, "--allowed-tools", "Bash", *(["--ssh-agent"] if is_lent else []))
        greeter.shutdown()
        assert result["attempts"], result
        said = (stage.repo / "tried.txt").read_text()
        assert ("of the user (ED25519)" in said) == is_lent, said
        assert bool(greeter.heard) == is_lent, said
        assert all(line.startswith(b"SSH-2.0-OpenSSH") for line in greeter.heard)


def test_without_an_ssh_agent_the_run_says_so_before_it_begins(tmp_path: Path) -> None:
    with staged(tmp_path, Scenario(name="none")) as stage:
        done = stage.here(*RUN, "--ssh-agent")
        assert done.returncode == 2
        assert "--ssh-agent needs an ssh-agent that runs, and SSH_AUTH_SOCK names none" in done.stderr
        assert stage.here("ls", "--json").stdout.strip() == "[]"
