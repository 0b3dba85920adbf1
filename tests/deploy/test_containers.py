"""What is shipped to run the server elsewhere does run there, by the very words of its page."""

import json
import os
import re
import shlex
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from deploy.docker_kit import Docker, blocks, copy_of_the_tree, docker_at_work, is_docker_at_work, until
from deploy.systemd_kit import Machine, machine_with_systemd
from e2e.kit import finished

pytestmark = [pytest.mark.soak, pytest.mark.claude]

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
START, WORKER, BACKUP, RESTORE, UPGRADE = blocks(PAGE, "Run it in containers")
INSTALL, UNIT_BACKUP, UNIT_RESTORE, UNIT_UPGRADE = blocks(PAGE, "Run it with systemd")
URL = "http://127.0.0.1:8642"
TOKEN = r"\bud_\S+"
BUILDING = 900.0
HOSTILE_PASSWORD = "p@ss/w%r:d#1"
EVENT = {"event_type": "iteration.started", "event_data": {"iteration_num": 1}, "source": "worker"}
NEXT_VERSION = "99.0.0"
SCENARIO = f"""
name = "container"

[[reply]]
text = "First a file."
tools = [{{ name = "Bash", input = {{ command = "echo from the container > made.txt" }} }}]

[[reply]]
text = {json.dumps(finished())}
"""


@pytest.fixture
def docker() -> Iterator[Docker]:
    if os.geteuid() != 0:
        pytest.skip("a docker of one's own needs root")
    if is_docker_at_work():
        pytest.skip("a docker is at work on this machine: one of ours would take the packet filter from it")
    with tempfile.TemporaryDirectory(prefix="untildone-docker-") as folder, docker_at_work(Path(folder)) as one:
        yield one


def test_it_runs_by_the_words_of_its_page(docker: Docker) -> None:
    tree, before = docker.folder / "tree", docker.folder / "before"
    for place in (tree, before):
        copy_of_the_tree(place, ROOT)
    stack = Stack(docker, tree / "deploy")
    stack.start()
    stack.let_a_browser_in()
    token = stack.token("box-1")
    post("box-1", token)
    stack.let_a_worker_work(stack.token("worker-1"))
    stack.assert_it_may_do_nothing()
    stack.shell("docker compose down && docker compose up -d --wait")
    assert stack.boxes() == {"box-1", "worker-1"}
    stack.kill_the_server()
    stack.lose_and_restore(token)
    stack.upgrade()
    assert stack.boxes() == {"box-1", "worker-1"}
    stack.shell("docker compose down -v")
    with machine_with_systemd(docker, tree, before) as machine:
        as_a_service(machine)


class Stack:
    """The server and its database, as `deploy/compose.yaml` has them."""

    def __init__(self, docker: Docker, folder: Path) -> None:
        self._docker = docker
        self._folder = folder
        self._viewer = ""

    def shell(self, script: str) -> str:
        return self._docker.shell(script, self._folder, timeout=BUILDING)

    def start(self) -> None:
        dot_env = self._folder / ".env"
        # A word for openssl's: whatever a person chooses has to work.
        words, *rest = START.splitlines()
        self.shell(words.replace("$(openssl rand -hex 24)", f"'{HOSTILE_PASSWORD}'"))
        assert dot_env.stat().st_mode & 0o777 == 0o600
        said = self.shell("\n".join(rest))
        self._link = found(r"http://\S+/login/\S+", said)
        self._viewer = found(TOKEN, self.shell("docker compose exec -T server untildone token create --scope viewer"))

    def let_a_browser_in(self) -> None:
        assert status("/api/v1/runs") == 401
        path = self._link.removeprefix(URL)
        assert path.startswith("/login/once_"), self._link
        with ask(path, method="POST", headers={"Origin": URL}) as page:
            cookie = str(page.headers["Set-Cookie"]).partition(";")[0]
        assert status("/api/v1/runs", headers={"Cookie": cookie}) == 200
        assert status(path, method="POST", headers={"Origin": URL}) == 403, "it works once"

    def token(self, sandbox: str) -> str:
        create = WORKER.splitlines()[0].replace("box-1", sandbox)
        return found(TOKEN, self.shell(create))

    def boxes(self) -> set[str]:
        return set(self._runs())

    def _runs(self) -> dict[str, str]:
        with ask("/api/v1/runs", token=self._viewer) as answer:
            return {run["sandbox_id"]: run["status"] for run in json.load(answer)["runs"]}

    def let_a_worker_work(self, token: str) -> None:
        """From the same image, in the same network, with the real Claude Code and a model that is scripted."""
        docker, folder = self._docker, self._folder
        (folder / "scenario.toml").write_text(SCENARIO)
        model = ("rehearse", "--model-only", "--port", "9000", "--scenario", "/scenario.toml")
        shown = ("-v", f"{folder}/scenario.toml:/scenario.toml:ro")
        docker("run", "-d", "--name", "model", "--network", "untildone_default", *shown, "untildone", *model)
        repository = "git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first"
        docker("run", "--rm", "-v", "box:/work", "--entrypoint", "sh", "untildone", "-c", repository)
        variables = {
            "SANDBOX_ID": "worker-1", "CALLBACK_URL": "http://server:8642", "CALLBACK_TOKEN": token,
            "ANTHROPIC_API_KEY": "made-up", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9000",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
            "INITIAL_PROMPT": "Make a file.", "ALLOWED_TOOLS": "Bash",
        }  # fmt: skip
        (folder / "worker.env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
        command = WORKER.splitlines()[1]
        # In the model's own network, which is the same one: the model answers on loopback alone.
        shared = command.replace("--network untildone_default", "--network container:model -v box:/work")
        assert shared != command
        self.shell(shared)
        read = ("run", "--rm", "-v", "box:/work", "--entrypoint", "git", "untildone")
        assert docker(*read, "show", "HEAD:made.txt") == "from the container"
        docker("rm", "-f", "-v", "model")
        until(lambda: self._runs()["worker-1"] == "completed", "the worker's end at the server")

    def assert_it_may_do_nothing(self) -> None:
        inside = "id -u; grep -E 'Cap|NoNewPrivs' /proc/1/status; touch ~/x /tmp/x; touch /work/x /opt/x 2>&1 || true"
        said = self.shell(f"docker compose exec -T server sh -c {shlex.quote(inside)}")
        assert said.splitlines()[0] == "10001"
        assert (
            re.findall(r"(CapEff|CapBnd):\t0{16}", said) == ["CapBnd", "CapEff"] or "CapEff:\t0000000000000000" in said
        )
        assert "NoNewPrivs:\t1" in said
        assert said.count("Read-only file system") == 2
        assert HOSTILE_PASSWORD not in self.shell("docker compose logs server; docker compose top server")

    def kill_the_server(self) -> None:
        name = "untildone-server-1"
        before = self._docker.inspect(name)
        os.kill(before["State"]["Pid"], 9)
        until(lambda: self._docker.inspect(name)["RestartCount"] == before["RestartCount"] + 1, "a new server")
        until(lambda: status("/readyz") == 200, "its answer")
        until(lambda: self._docker.inspect(name)["State"]["Health"]["Status"] == "healthy", "its health")

    def lose_and_restore(self, token: str) -> None:
        self.shell(BACKUP)
        (made,) = self._folder.glob("untildone-*.dump")
        assert made.stat().st_mode & 0o777 == 0o600
        post("box-1", token)
        other = self.token("box-2")
        post("box-2", other)
        assert "box-2" in self.boxes()
        self.shell(RESTORE.replace("untildone-2026-01-31.dump", made.name))
        until(lambda: status("/readyz") == 200, "the server with the backup")
        assert self.boxes() == {"box-1", "worker-1"}
        assert status("/api/v1/sandboxes/box-2/messages", token=other) == 401, "its token is not in the backup"
        post("box-1", token)

    def upgrade(self) -> None:
        bump(self._folder.parent)
        self.shell(UPGRADE)
        assert self.shell("docker compose exec -T server untildone --version") == f"untildone {NEXT_VERSION}"


def as_a_service(machine: Machine) -> None:
    """The same with systemd: a unit with all its restrictions in force, and the words of its section."""
    assert found(r"http://\S+/login/\S+", machine.shell(INSTALL)).startswith(f"{URL}/login/once_")
    machine.post("box-1")
    machine.shell("systemd-analyze verify /etc/systemd/system/untildone-server.service")
    pid = machine.shell("systemctl show -p MainPID --value untildone-server")
    facts = machine.shell(f"cat /proc/{pid}/status")
    assert "\nCapEff:\t0000000000000000\n" in facts
    assert "\nSeccomp:\t2\n" in facts
    assert "\nUid:\t0\t" not in facts
    machine.shell(f"kill -9 {pid}")
    until(lambda: machine.shell("systemctl show -p MainPID --value untildone-server") not in {"0", pid}, "a new server")
    machine.await_server()
    machine.shell(UNIT_BACKUP)
    made = machine.shell("ls server-*.db")
    assert machine.shell(f"stat -c %a {made}") == "600"
    machine.post("box-2")
    machine.shell(UNIT_RESTORE.replace("server-2026-01-31.db", made))
    machine.await_server()
    assert machine.boxes() == {"box-1"}
    machine.post("box-3")
    machine.shell(f"export PIP_FIND_LINKS=/wheels-next\n{UNIT_UPGRADE}")
    machine.await_server()
    assert machine.shell("/opt/untildone/bin/untildone --version") == f"untildone {NEXT_VERSION}"
    assert machine.boxes() == {"box-1", "box-3"}
    # What can never work is not tried for ever.
    machine.shell("mkdir -p /etc/untildone; echo UNTILDONE_SERVE_DATABASE=nonsense > /etc/untildone/server.env")
    machine.shell("systemctl restart untildone-server || true")
    until(lambda: machine.shell("systemctl is-failed untildone-server || true") == "failed", "an end to trying")


def bump(tree: Path) -> None:
    """Make the copy the next version."""
    file = tree / "src" / "untildone" / "__init__.py"
    text, count = re.subn(r'__version__ = "[^"]+"', f'__version__ = "{NEXT_VERSION}"', file.read_text())
    assert count == 1
    file.write_text(text)


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match, text
    return match[0]


def ask(path: str, *, method: str = "GET", body: object = None, token: str = "", headers: Any = None) -> HTTPResponse:
    data = json.dumps(body).encode() if body is not None else b"" if method == "POST" else None
    request = urllib.request.Request(f"{URL}{path}", data, dict(headers or {}), method=method)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    if body is not None:
        request.add_header("Content-Type", "application/json")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    answer: HTTPResponse = opener.open(request, timeout=240)
    return answer


def status(path: str, **more: Any) -> int:
    try:
        with ask(path, **more) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code
    except OSError:
        return 0


def post(sandbox: str, token: str) -> None:
    assert status(f"/api/v1/sandboxes/{sandbox}/events", method="POST", body=EVENT, token=token) == 200
