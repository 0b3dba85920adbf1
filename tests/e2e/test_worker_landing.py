"""A worker in an empty sandbox: it clones the repository, works on the branch, and lands by a pull request."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.kit import Stage, finished, staged
from e2e.worker_kit import Server, until
from engine.pull_kit import git_in
from untildone.rehearsal.github import ScriptedGitHub
from untildone.rehearsal.github_checks import ScriptedCheck
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
"""As GitHub makes them."""


@dataclass
class Sandbox:
    """A worker's machine, and the GitHub it can reach: the name leads to a repository on this disk."""

    stage: Stage
    bare: Path
    github: ScriptedGitHub
    seen: str = ""
    """The command lines of all processes while the worker was at work."""

    def work(self, **env: str) -> subprocess.CompletedProcess[str]:
        self.stage.env |= env
        over = threading.Event()
        looking = threading.Thread(target=self._look, args=(over,))
        looking.start()
        try:
            done = self.stage.untildone("worker")
        finally:
            over.set()
            looking.join()
        print(done.stdout, done.stderr)
        assert "Traceback" not in done.stdout + done.stderr
        return done

    def _look(self, over: threading.Event) -> None:
        lines = set()
        while not over.wait(0.1):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    lines.add(process.read_bytes())
                except OSError:
                    continue  # it is gone already
        self.seen = b"\n".join(lines).decode("utf-8", "replace")

    def everywhere(self) -> str:
        """All that is written down on this machine."""
        files = (path for path in self.stage.tmp.rglob("*") if path.is_file() and not path.is_symlink())
        return "\n".join(path.read_bytes().decode("latin-1") for path in files)


@contextmanager
def sandbox(tmp: Path, server: Server, name: str, command: str) -> Iterator[Sandbox]:
    bare = tmp / "remote.git"
    first = tmp / "first"
    git_in(tmp, "init", "-q", "--bare", "-b", "main", str(bare))
    git_in(tmp, "clone", "-q", str(bare), str(first))
    (first / "a.txt").write_text("a\n")
    git_in(first, "add", ".")
    git_in(first, "-c", "user.name=H", "-c", "user.email=h@h", "commit", "-qm", "first")
    git_in(first, "push", "-q", "origin", "HEAD:main", "HEAD:existing")
    box = tmp / "box"
    box.mkdir()
    script = (Reply(tools=(ToolCall("Bash", {"command": command}),)), Reply(text=finished()))
    green = ScriptedCheck(name="test")
    with (
        ScriptedGitHub(bare, lambda _, __: [green], token=TOKEN) as github,
        staged(box, Scenario(name=name, iterations=(script,) * 3)) as stage,
    ):
        stage.env |= {
            "CALLBACK_URL": server.url, "SANDBOX_ID": name, "INITIAL_PROMPT": "Make it.", "ALLOWED_TOOLS": "Bash",
            "CONTINUOUS_MODE": "true", "CONTINUOUS_MAX_RUNS": "3", "UNTILDONE_CHECKS": "test -f made.txt",
            "GITHUB_REPO": "acme/widget", "GITHUB_TOKEN": TOKEN, "CWD": str(box / "workspace"),
            "UNTILDONE_SANDBOX": "host", "UNTILDONE_FORGE_URL": github.url, "UNTILDONE_CI_POLL": "1s",
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{bare}.insteadOf",
            "GIT_CONFIG_VALUE_0": "https://github.com/acme/widget",
        }  # fmt: skip
        yield Sandbox(stage, bare, github)


@pytest.mark.parametrize(
    "branch", ["feature/fish", *(pytest.param(branch, marks=pytest.mark.soak) for branch in ("", "existing"))]
)
def test_a_worker_lands_by_a_pull_request(tmp_path: Path, server: Server, branch: str) -> None:
    name = f"lands-{branch.replace('/', '-') or 'anywhere'}"
    with sandbox(tmp_path, server, name, "env; echo made > made.txt") as box:
        done = box.work(BRANCH_NAME=branch)
        assert done.returncode == 0
        run = until(lambda: server.run_of(name, "completed"), "the end of the run")
        assert run["success"], run
        (pull,) = box.github.pulls.values()
        assert (pull.base, pull.state) == ("main", "closed")
        assert pull.branch == branch if branch else pull.branch.startswith("continuous-claude/")
        assert box.github.merges == [1]
        assert git_in(box.bare, "show", "main:made.txt") == "made"
        assert {request.login for request in box.github.requests} == {f"Bearer {TOKEN}"}
        address = git_in(box.stage.tmp / "workspace", "config", "remote.origin.url")
        assert address == "https://github.com/acme/widget"
        events = json.dumps(server.events(run["run_id"]))
        said = "".join(e["data"].get("text", "") for e in server.events(run["run_id"], "agent.tool_result"))
        assert "CALLBACK_URL" in said  # the agent's own look at its environment has arrived
        for place in (events, box.seen, done.stdout, done.stderr, box.everywhere()):
            assert TOKEN not in place
        assert "untildone" in box.seen


@pytest.mark.soak
def test_a_token_that_is_refused_is_told_and_the_work_is_kept(tmp_path: Path, server: Server) -> None:
    wrong = "ghp_" + "Z9y8X7w6V5u4" * 3
    with sandbox(tmp_path, server, "stranger", "echo made > made.txt") as box:
        done = box.work(GITHUB_TOKEN=wrong)
        assert done.returncode != 0
        run = until(lambda: server.run_of("stranger"), "the run")
        (stop,) = server.events(run["run_id"], "continuous.suspended")
        assert stop["data"]["stop_reason"] == "landing_failed"
        assert "does not accept the login" in json.dumps(stop)
        assert wrong not in json.dumps(server.events(run["run_id"])) + done.stdout + done.stderr + box.everywhere()
        assert git_in(box.stage.tmp / "workspace", "show", "HEAD:made.txt") == "made"
