"""A bare Messages API client, and the real Claude Code, for the tests of this room."""

import http.client
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.model import ScriptedModel

TOOLS = [{"name": "Bash", "input_schema": {"type": "object"}}]


def body(*said: str, **more: Any) -> dict[str, Any]:
    """A main request: user and assistant take turns, the user first."""
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(said)]
    return {"model": "m", "messages": messages, "tools": TOOLS, "max_tokens": 100, **more}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.data)
        assert isinstance(found, dict)
        return found

    @property
    def text(self) -> str:
        return "".join(block.get("text", "") for block in self.json["content"])

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of a stream; each must be named like its data says."""
        found = []
        for chunk in self.data.decode().removesuffix("\n\n").split("\n\n"):
            name, data = chunk.split("\n")
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            found.append(event)
        return found


def ask(
    model: ScriptedModel,
    request: Mapping[str, Any] | bytes,
    *,
    path: str = "/v1/messages",
    session: str = "",
    method: str = "POST",
) -> Answer:
    """Send one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", model.port, timeout=240)
    data = request if isinstance(request, bytes) else json.dumps(request).encode()
    headers = {"x-claude-code-session-id": session} if session else {}
    try:
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def bundled_claude() -> str:
    import claude_agent_sdk

    return str(Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude")


@dataclass(frozen=True)
class ClaudeRun:
    code: int
    lines: Sequence[dict[str, Any]]

    @property
    def result(self) -> dict[str, Any]:
        return [line for line in self.lines if line["type"] == "result"][-1]

    @property
    def retries(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("subtype") == "api_retry"]


def run_claude(model: ScriptedModel, folder: Path, *arguments: str, stdin: str | None = None) -> ClaudeRun:
    """Run the real program to its end, with nothing of this machine in its environment."""
    home = folder.parent / f"{folder.name}-home"
    home.mkdir(exist_ok=True)
    folder.mkdir(exist_ok=True)
    prompt = ["please work"] if stdin is None else ["--input-format", "stream-json"]
    done = subprocess.run(
        [bundled_claude(), "-p", *prompt, "--output-format", "stream-json", "--verbose",
         "--permission-mode", "acceptEdits", "--allowedTools", "Bash", *arguments],
        cwd=folder, env=claude_environment(home, model.url), input=stdin or "",
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    return ClaudeRun(done.returncode, [json.loads(line) for line in done.stdout.splitlines()])
