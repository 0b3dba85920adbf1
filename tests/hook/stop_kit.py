"""A project with a loop in it, and Claude Code's calls of the Stop hook: in process, or through the real launcher."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from untildone.core import loop_file
from untildone.hook import register, spool, starting
from untildone.hook.answering import Call
from untildone.hook.stopping import on_stop, on_stopfailure

HOOK = Path(register.__file__).parent
SESSION = "dd5d78c9-40ac-4541-a879-f014a7314b85"
OTHER = "b40a35b0-a498-4c60-bfaa-d940cd1b9628"
STOP: dict[str, Any] = {
    "session_id": SESSION,
    "transcript_path": "/nowhere/transcript.jsonl",
    "cwd": "/workspace",
    "prompt_id": "754c14ac-cf0c-4156-914f-2ff867ff4737",
    "permission_mode": "bypassPermissions",
    "effort": {"level": "medium"},
    "hook_event_name": "Stop",
    "stop_hook_active": False,
    "last_assistant_message": "Wrote out.txt.",
    "background_tasks": [],
    "session_crons": [],
}
"""As the real Claude Code sends it."""


class Stage:
    """One project and one state folder."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "state folder"
        self.project = folder / "a project"
        self.project.mkdir()
        self.env = {
            "UNTILDONE_STORE": str(self.home),
            "CLAUDE_PROJECT_DIR": str(self.project),
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
        }

    def under_git(self) -> None:
        """Make the project a repository that knows a file, and not the ones that lie there so far."""
        git(self.project, "init", "-q")
        self.put("README.md", "A project")
        git(self.project, "add", "README.md")

    def start(self, goal: str = "Make it work", **given: Any) -> Any:
        given = {"session": SESSION, "now": time.time(), **given}
        return starting.start(str(self.home), str(self.project), goal=goal, **given)

    def put(self, name: str, text: str) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return path

    def call(self, message: str | None = "Wrote out.txt.", *, now: float | None = None, **fields: Any) -> Call:
        event = {**STOP, "cwd": str(self.project), "last_assistant_message": message, **fields}
        return Call(event, self.env, time.time() if now is None else now)

    def stop(self, message: str | None = "Wrote out.txt.", **fields: Any) -> dict[str, Any]:
        return on_stop(self.call(message, **fields)) or {}

    def fail(self, **fields: Any) -> dict[str, Any]:
        return on_stopfailure(self.call("Credit balance is too low", **fields)) or {}

    def launch(
        self, event: str, stdin: bytes | dict[str, Any], *, hook: Path = HOOK
    ) -> "subprocess.CompletedProcess[bytes]":
        given = stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode()
        argv = ["sh", str(hook / "run.sh"), event]
        return subprocess.run(argv, input=given, env=self.env, capture_output=True, timeout=240, check=False)

    def launched(self, event: str, stdin: bytes | dict[str, Any]) -> dict[str, Any]:
        done = self.launch(event, stdin)
        assert (done.returncode, done.stderr) == (0, b"")
        answer: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        return answer

    @property
    def entry(self) -> Any:
        return register.find(str(self.home), str(self.project))

    def change_entry(self, **values: Any) -> None:
        register.write(str(self.home), {**self.entry, **values})

    @property
    def file(self) -> Path:
        return self.project / ".untildone" / "loop.md"

    @property
    def turn(self) -> int:
        found = loop_file.parse(self.file.read_text())
        assert found is not None
        return found.iteration

    def edit(self, **fields: Any) -> None:
        self.file.write_text(loop_file.changed(self.file.read_text(), **fields))

    def told(self, what: str = "") -> list[dict[str, Any]]:
        files = sorted((self.home / "spool").glob("*.jsonl"), key=lambda path: path.stat().st_ctime)
        lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return [line for line in lines if what in {"", line["what"]}]

    def history(self) -> list[str]:
        return [path.read_text() for path in (self.home / "history").glob("*.md")]

    def tool(self) -> None:
        spool.tell(str(self.home), self.entry["loop"], "tool", time.time(), tool="Bash", ok=True)

    @property
    def log(self) -> str:
        path = self.home / "hook.log"
        return path.read_text() if path.exists() else ""


def goes_on(answer: dict[str, Any]) -> bool:
    """Whether the session has to go on."""
    return "additionalContext" in answer.get("hookSpecificOutput", {})


def next_text(answer: dict[str, Any]) -> str:
    """What the agent is told to go on with; nothing where it is not."""
    text: str = answer.get("hookSpecificOutput", {}).get("additionalContext", "")
    return text


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder, as somebody."""
    found = shutil.which("git")
    assert found
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run([found, *who, *arguments], cwd=folder, check=True, timeout=240, capture_output=True)
