"""The product as a person runs it: the real command, the real Claude Code, the scripted model, a real repository."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repositories import new_repository
from untildone.agents.prices import cost
from untildone.core.outcome import Usage
from untildone.rehearsal.environment import claude_environment
from untildone.rehearsal.ledger import LedgerLine
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Scenario

STATUS = """
---LOOP_STATUS---
STATUS: {status}
TASKS_COMPLETED_THIS_LOOP: {tasks}
FILES_MODIFIED: 0
TESTS_STATUS: NOT_RUN
WORK_TYPE: IMPLEMENTATION
EXIT_SIGNAL: {exit}
RECOMMENDATION: go on
---END_LOOP_STATUS---
"""


def working(text: str = "Going on.", tasks: int = 0) -> str:
    return text + STATUS.format(status="IN_PROGRESS", tasks=tasks, exit="false")


def finished(text: str = "Everything is done.") -> str:
    return text + STATUS.format(status="COMPLETE", tasks=1, exit="true")


@dataclass
class Stage:
    """A folder, an environment, a model."""

    tmp: Path
    model: ScriptedModel

    def __post_init__(self) -> None:
        self.repo = self.tmp / "repo"
        self.env = claude_environment(self.tmp / "home", self.model.url, path=os.environ["PATH"]) | {
            "UNTILDONE_HOME": str(self.tmp / "state"),
            "NO_COLOR": "1",
        }
        if not self.repo.exists():
            new_repository(self.repo, "work", {"a.txt": "a\n"})

    def git(self, *args: str) -> str:
        return subprocess.run(["git", *args], cwd=self.repo, check=True, capture_output=True, text=True).stdout

    def popen(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "untildone", *args],
            cwd=self.repo,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def untildone(self, *args: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        process = self.popen(*args)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"untildone {args} took longer than {timeout} s\n{out}\n{err}") from None
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def result(self, *args: str, timeout: float = 120) -> dict[str, Any]:
        """Run with --json; the one object on stdout."""
        done = self.untildone(*args, "--json", timeout=timeout)
        assert done.stdout.count("\n") == 1, (done.stdout, done.stderr)
        result: dict[str, Any] = json.loads(done.stdout) | {"exit_code": done.returncode}
        return result

    def events(self, run_id: str) -> list[dict[str, Any]]:
        done = self.untildone("log", run_id, "--json", "--verbose")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def ledger_usd(self, lines: tuple[LedgerLine, ...] | None = None) -> float:
        """What the model served in full, by the price list."""
        return sum(price(line) for line in (self.model.ledger.served() if lines is None else lines))


def price(line: LedgerLine) -> float:
    usage = Usage(line.input_tokens, line.output_tokens, line.cache_read_tokens, line.cache_write_tokens)
    usd = cost(line.model, usage)
    assert usd is not None, line.model
    return usd


@contextmanager
def staged(tmp: Path, scenario: Scenario) -> Iterator[Stage]:
    with ScriptedModel(scenario) as model:
        yield Stage(tmp, model)
