"""The real Claude Code with the plugin, on the scripted model: one prompt, one long session, or a terminal."""

import fcntl
import io
import json
import os
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import untildone
from patience import PATIENCE
from rehearsal.rehearsal_client import bundled_claude
from untildone.cli.app import entry
from untildone.rehearsal.environment import DUMMY_KEY, claude_environment
from untildone.rehearsal.model import RecordedRequest, ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

PLUGIN = Path(untildone.__file__).parent
WITH_PLUGIN = ("--plugin-dir", str(PLUGIN), "--dangerously-skip-permissions")
STREAMED = ("--output-format", "stream-json", "--verbose")
LOOKS = ("brief", "log", "ls", "status")
"""Commands that change nothing."""
_CONTROL = re.compile(r"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[78=>]")


@dataclass
class House:
    """A home of its own, in a folder with a space, and a project."""

    home: Path
    project: Path
    model: ScriptedModel
    more_env: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return claude_environment(self.home, self.model.url) | self.more_env

    @property
    def state(self) -> Path:
        return self.home / ".local" / "state" / "untildone"

    @property
    def loop_file(self) -> Path:
        return self.project / ".untildone" / "loop.md"

    def claude(self, *argv: str) -> subprocess.CompletedProcess[str]:
        command = [bundled_claude(), *argv]
        given = {"cwd": self.project, "env": self.env, "stdin": subprocess.DEVNULL, "timeout": PATIENCE}
        return subprocess.run(command, capture_output=True, text=True, check=False, **given)  # type: ignore[call-overload,no-any-return]

    def untildone(self, *argv: str) -> str:
        if argv[0] in LOOKS:
            return self._look(argv)
        command = [sys.executable, "-m", "untildone", *argv]
        done = subprocess.run(
            command, cwd=self.project, env=self.env, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def _look(self, argv: tuple[str, ...]) -> str:
        """A command that only reads, in this process: saves a start."""
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update(self.env)
        try:
            with chdir(self.project), redirect_stdout(out):
                code = entry(argv)
        finally:
            os.environ.clear()
            os.environ.update(before)
        said = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
        assert code == 0, said
        return str(said)

    def git(self, *argv: str) -> str:
        done = subprocess.run(
            ["git", *argv], cwd=self.project, env=self.env, check=True, capture_output=True, text=True
        )
        return done.stdout

    def say(self, prompt: str, *more: str) -> "Said":
        """One prompt to a Claude Code of its own."""
        before = len(self.model.requests)
        done = self.claude("-p", prompt, *STREAMED, "--dangerously-skip-permissions", *more)
        assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
        return Said([json.loads(line) for line in done.stdout.splitlines()], self.model.requests[before:])

    @contextmanager
    def session(self, *more: str) -> Iterator["Session"]:
        """A Claude Code that takes one prompt after the other."""
        argv = [bundled_claude(), "-p", "--input-format", "stream-json", *STREAMED, *(more or WITH_PLUGIN)]
        process = subprocess.Popen(
            argv,
            cwd=self.project,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            yield Session(process, self.model)
        finally:
            _end(process)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    @contextmanager
    def terminal(self, *more: str) -> Iterator["Terminal"]:
        """An interactive Claude Code, as a person sees it."""
        self._be_known()
        terminal = Terminal(
            [bundled_claude(), *WITH_PLUGIN, *more], self.project, self.env | {"TERM": "xterm-256color"}
        )
        try:
            terminal.wait_for("bypass permissions on")
            yield terminal
        finally:
            terminal.close()

    def _be_known(self) -> None:
        """Answer beforehand what Claude Code asks somebody it meets for the first time."""
        known = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "bypassPermissionsModeAccepted": True,
            "customApiKeyResponses": {"approved": [DUMMY_KEY[-20:]], "rejected": []},
            "projects": {str(self.project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
        }
        folder = self.home / ".claude"
        folder.mkdir(exist_ok=True)
        (folder / ".claude.json").write_text(json.dumps(known))


@dataclass
class Said:
    """What came back to a prompt, and the requests it took."""

    lines: list[dict[str, Any]]
    asked: list[RecordedRequest]

    @property
    def requests(self) -> int:
        return len(self.asked)

    @property
    def init(self) -> dict[str, Any]:
        return next(line for line in self.lines if line.get("subtype") == "init")

    @property
    def notices(self) -> str:
        return "\n".join(line["content"] for line in self.lines if line.get("subtype") == "informational")

    @property
    def started(self) -> str:
        """What the hooks said at the start of the session."""
        return "\n".join(line["stdout"] for line in self.lines if line.get("subtype") == "hook_response")

    @property
    def result(self) -> str:
        return str(self.lines[-1].get("result"))

    @property
    def session(self) -> str:
        return str(self.lines[-1]["session_id"])

    @property
    def tool_results(self) -> str:
        messages = (line["message"]["content"] for line in self.lines if line["type"] == "user")
        return "\n".join(str(part.get("content", "")) for parts in messages for part in parts if isinstance(part, dict))


class Session:
    """A Claude Code that stays, for several prompts."""

    def __init__(self, process: "subprocess.Popen[str]", model: ScriptedModel) -> None:
        self._process = process
        self._model = model
        self._before = 0

    def send(self, prompt: str) -> None:
        """Give it a prompt without waiting for what becomes of it."""
        self._before = len(self._model.requests)
        self._write({"type": "user", "message": {"role": "user", "content": prompt}})

    def interrupt(self) -> None:
        """What Escape or Ctrl+C is to a program that drives Claude Code."""
        self._write({"type": "control_request", "request_id": "r1", "request": {"subtype": "interrupt"}})

    def answer(self) -> Said:
        """Everything up to the next result."""
        lines: list[dict[str, Any]] = []
        assert self._process.stdout is not None
        watchdog = threading.Timer(PATIENCE, self._process.kill)  # ends the reading below, with a clear failure
        watchdog.start()
        try:
            for line in self._process.stdout:
                lines.append(json.loads(line))
                if lines[-1]["type"] == "result":
                    return Said(lines, self._model.requests[self._before :])
        finally:
            watchdog.cancel()
        raise AssertionError(f"Claude Code ended without a result: {lines[-3:]}")

    def say(self, prompt: str) -> Said:
        self.send(prompt)
        return self.answer()

    def _write(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()


class Terminal:
    """A terminal of 50 lines with Claude Code in it; what it shows is compared without spaces, which it may skip."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str]) -> None:
        # The other side stays open here as well: while nobody has it open, reading fails.
        self._master, self._slave = os.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 180, 0, 0))
        # Opened by the leader of a new session, it is the terminal that controls it, as a person's is.
        opened = ["/bin/sh", "-c", 'exec "$@" <>"$0" >&0 2>&0', os.ttyname(self._slave), *argv]
        self._process = subprocess.Popen(opened, cwd=cwd, env=env, start_new_session=True)
        self._shown = ""
        self._seen = 0
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # the other side is closed
                return
            with self._more:
                self._shown += data.decode("utf-8", "replace")
                self._more.notify_all()

    def wait_for(self, text: str) -> None:
        """Until it shows this, after what was waited for before."""
        wanted = re.sub(r"\s", "", text)
        with self._more:
            if not self._more.wait_for(lambda: wanted in self._new(), PATIENCE):
                raise AssertionError(f"not shown within {PATIENCE} s: {text}\n{self._new()[-3000:]}")
            new = self._new()
            self._seen += new.index(wanted) + len(wanted)

    def _new(self) -> str:
        return re.sub(r"\s", "", _CONTROL.sub("", self._shown))[self._seen :]

    def type(self, text: str) -> None:
        """A line, and Enter once it stands there: together they would be taken for pasted text."""
        self.press(text)
        self.wait_for(text)
        self.press("\r")

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def close(self) -> None:
        _end(self._process)
        os.close(self._slave)
        self._reader.join(PATIENCE)
        os.close(self._master)


def _end(process: "subprocess.Popen[Any]") -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def house(tmp: Path, *replies: Reply, each: tuple[tuple[Reply, ...], ...] = ()) -> Iterator[House]:
    """A house whose model says this, in order; or `each` list to one conversation after the other."""
    home, project = tmp / "my home", tmp / "my project"
    for folder in (home, project):
        folder.mkdir()
    said = replies or (() if each else (Reply(text="Half way."),))
    with ScriptedModel(Scenario(name="plugin", replies=said, iterations=each)) as model:
        yield House(home, project, model)


def bash(command: str, text: str = "", **more: object) -> Reply:
    """A reply that runs a command."""
    return Reply(text=text, tools=(ToolCall("Bash", {"command": command, **more}),))


def told(request: RecordedRequest) -> str:
    """Everything the model was given with a request, as one text."""
    return json.dumps(request.body["messages"], ensure_ascii=False)
