"""Looking at a hostile clone runs nothing of it, and nothing in it decides what counts as done before it is trusted."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import untildone
from cli.cli_kit import FIRST, SUSPENDED, Runs
from hostile.traps import REFUSED, SECRET, TRAPS, Trap
from patience import PATIENCE
from untildone.cli.app import entry
from untildone.core.policy import Policy

RUN_SH = Path(untildone.__file__).parent / "hook" / "run.sh"
EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop")
DRY = ("run", "Make it work", "-m", "5", "--dry-run")
COMMON = ("fsmonitor", "included", "ext_remote", "upload_pack", "bare_subfolder", "git_file", "done_by_a_word")
"""One of each kind, for every day; the soak has them all."""


class Locked(BaseHTTPRequestHandler):
    """Asks for a password, as a remote does."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def locked() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Locked)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join(PATIENCE)


@pytest.fixture
def claude(tmp_path: Path) -> str:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho \'{"loggedIn": true, "authMethod": "x"}\'\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def clone(tmp_path: Path, locked: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Trap]:
    monkeypatch.setenv("UNTILDONE_HOME", str(tmp_path / "state"))

    def make(name: str) -> Trap:
        trap = Trap(tmp_path / "clone", tmp_path / "outside", port=locked)
        TRAPS[name](trap)
        monkeypatch.chdir(trap.cwd)
        return trap

    return make


def said(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = entry(argv)
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    assert "\x1b]" not in out + err, "a terminal is told nothing by a clone"
    assert SECRET not in out + err
    return code, err or out


def refused_or_as_without(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A project file that is not trusted ends the command, or changes nothing about the run."""
    code, told = said(capfd, *DRY, "--json")
    assert (code, told.count("\n")) == (2 if name in REFUSED else 0, 1), told
    if name not in REFUSED:
        plan = json.loads(told)
        assert Policy(**plan["policy"]) == Policy(max_runs=5)
        assert (plan["spec"]["contract"]["checks"], plan["spec"]["branch"]) == ([], True)


@pytest.mark.parametrize("name", COMMON)
def test_looking_runs_nothing_of_a_clone(
    clone: Callable[[str], Trap], claude: str, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    trap = clone(name)
    refused_or_as_without(name, capfd)
    said(capfd, "doctor", "--claude", claude)
    assert not trap.canary.exists()


@pytest.mark.soak
@pytest.mark.claude
@pytest.mark.parametrize("name", TRAPS)
def test_no_command_runs_anything_of_a_clone(
    clone: Callable[[str], Trap], capfd: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    """As above with the real Claude Code, every other command that only looks, and the hooks of the plugin."""
    trap = clone(name)
    Runs(tmp_path / "state").begin(trap.folder, *FIRST, SUSPENDED)
    before = looked(trap, capfd, name)
    assert before == "", before


def looked(trap: Trap, capfd: pytest.CaptureFixture[str], name: str) -> str:
    """The commands that started something of the clone."""
    guilty = []
    commands = (("doctor",), ("config",), ("status",), ("ls",), ("brief", "night"), ("worktrees",), ("notify", "test"))
    refused_or_as_without(name, capfd)
    guilty += ["run --dry-run"] if sprung(trap) else []
    for command in (DRY, *commands):
        said(capfd, *command)
        guilty += [" ".join(command[:1])] if sprung(trap) else []
    for event in EVENTS:
        hooked(trap, event)
        guilty += [f"hook {event}"] if sprung(trap) else []
    return ", ".join(guilty)


def sprung(trap: Trap) -> bool:
    there = trap.canary.exists()
    trap.canary.unlink(missing_ok=True)
    return there


def hooked(trap: Trap, event: str) -> None:
    tool = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "t"}
    given = {
        "session_id": "s",
        "hook_event_name": event,
        "cwd": str(trap.cwd),
        "prompt": "x",
        "source": "startup",
        **tool,
    }
    env = {**os.environ, "CLAUDE_PROJECT_DIR": str(trap.cwd), "CLAUDE_PLUGIN_ROOT": str(RUN_SH.parent.parent)}
    done = subprocess.run(
        ["sh", str(RUN_SH), event], input=json.dumps(given), capture_output=True, text=True, timeout=PATIENCE,
        cwd=trap.cwd, env=env, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), (event, done)
    assert '"block"' not in done.stdout, "a loop that came with a clone holds no session"


def page(url: str) -> str:
    """A page of a run, as soon as the server has read it from the store."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                said: str = answer.read().decode()
                return said
        except urllib.error.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.soak
def test_a_server_runs_nothing_of_any_clone(tmp_path: Path, locked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One server, started in a clone, with a run in each of the others."""
    monkeypatch.setenv("UNTILDONE_HOME", str(tmp_path / "state"))
    traps = {}
    for number, (name, build) in enumerate(TRAPS.items()):
        traps[f"{number:012x}"] = trap = Trap(tmp_path / name, tmp_path / "outside" / name, port=locked)
        build(trap)
        Runs(tmp_path / "state").begin(trap.folder, *FIRST, SUSPENDED, run_id=f"{number:012x}", name=name)
    here = next(trap for trap in traps.values() if trap.folder.name == "modules_of_python")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "untildone", "serve", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here.cwd,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[3]
        for run_id, trap in traps.items():
            assert trap.folder.name in page(f"{url}/runs/{run_id}")
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert [trap.folder.name for trap in traps.values() if trap.canary.exists()] == []
