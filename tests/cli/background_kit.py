"""A small program in place of Claude that says "done" when it is let go, and people who type in other terminals."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli.cli_kit import FIRST, Runs
from patience import eventually
from untildone.core.contract import Contract, commands
from untildone.core.events import ContinuousCompleted, SettingsChanged
from untildone.core.policy import AgentOptions, Policy, RunSpec

CLAIM = """All of it is done.
---LOOP_STATUS---
STATUS: COMPLETE
TASKS_COMPLETED_THIS_LOOP: 1
FILES_MODIFIED: 0
TESTS_STATUS: PASSING
WORK_TYPE: IMPLEMENTATION
EXIT_SIGNAL: true
RECOMMENDATION: none
---END_LOOP_STATUS---
"""
RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": CLAIM,
    "session_id": "11111111-1111-4111-8111-111111111111",
    "total_cost_usd": 0.25,
    "num_turns": 1,
    "usage": {"input_tokens": 100, "output_tokens": 20},
    "stop_reason": "end_turn",
    "terminal_reason": "completed",
}
SAID = {
    "type": "assistant",
    "message": {
        "id": "msg_1",
        "model": "claude-opus-5-5",
        "content": [{"type": "text", "text": CLAIM}],
        "usage": {"input_tokens": 100, "output_tokens": 20},
    },
    "parent_tool_use_id": None,
}


def claude_that(program: Path, does: str) -> Path:
    """A program in place of Claude, which has a login: asked for that, it answers at once."""
    program.write_text(f'#!/bin/sh\n[ "$1" = auth ] && exec echo \'{{"loggedIn": true}}\'\n{does}\n')
    program.chmod(0o755)
    return program


@contextlib.contextmanager
def reaping() -> Iterator[None]:
    """Wait for the processes that the product leaves to themselves, once they are to end.

    A command ends after it has started one, and the machine's first process reaps it. Called in this process, this
    process stays its parent.
    """
    before = _own_children()
    yield
    for pid in _own_children() - before:
        with contextlib.suppress(ChildProcessError):  # the one who started it has waited for it
            eventually(lambda pid=pid: os.waitpid(pid, os.WNOHANG)[0], "the end of what runs in the background")


def _own_children() -> set[int]:
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # threads come and go
            found |= {int(pid) for pid in path.read_text().split()}
    return found


class Background:
    """A folder, a store and an agent that waits to be let go."""

    def __init__(self, tmp: Path, project: Path, store: Path) -> None:
        self.store = store
        self._children: list[subprocess.Popen[str]] = []
        self.project = project
        self.calls = tmp / "calls"
        self.gate = tmp / "gate"
        self.gate.touch()
        program = claude_that(
            tmp / "claude",
            f"pwd >> '{self.calls}'\nwhile [ -e '{self.gate}' ]; do sleep 0.05; done\n"
            f"cat <<'END'\n{json.dumps(SAID)}\n{json.dumps(RESULT)}\nEND",
        )
        self.flags = (
            "--agent",
            "claude_cli",
            "--claude",
            str(program),
            "--sandbox",
            "host",
            "--check",
            "true",
            "-m",
            "9",
        )

    def let_go(self) -> None:
        self.gate.unlink()

    def working(self, times: int = 1) -> None:
        """Wait until the agent was started that often."""
        eventually(lambda: self.calls.exists() and len(self.calls.read_text().splitlines()) >= times, "an iteration")

    def end(self) -> None:
        """Whatever a failed test left comes to its end."""
        self.gate.unlink(missing_ok=True)
        for child in self._children:
            child.kill()
            with child:  # waits for it and closes its pipes
                pass

    def popen(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "untildone", *args],
            cwd=self.project,
            env={**os.environ, "ANTHROPIC_API_KEY": "none"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )
        self._children.append(child)
        return child


def cut_chain(runs: Runs, background: Background, *then_goals: str) -> str:
    """A goal that is reached, with nothing of the next one in the log: its driver died between them."""
    spec = RunSpec(
        goal="The first goal",
        cwd=str(background.project),
        name="night",
        contract=Contract(checks=commands("true"), guard="off"),
        then=tuple(str(background.project / f"{name}.md") for name in ("second", "third")),
        then_goals=then_goals,
        options=AgentOptions(agent="claude_cli", claude=background.flags[3], sandbox="host"),
    )
    changed = SettingsChanged(by="cli", policy=Policy(max_runs=5), spec=spec)
    done = ContinuousCompleted(stop_reason="validation_passed", verified=True)
    return runs.begin(background.project, changed, *FIRST, done, status="completed", goal=spec.goal)
