"""The product as a person runs it: the real command, the real Claude Code, the scripted model, a real repository."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repositories import new_repository
from untildone.agents.prices import cost
from untildone.cli.app import entry
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

PATIENCE = 240.0
"""A ceiling for a whole command; only a failure reaches it."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
        self._started: list[subprocess.Popen[str]] = []
        self.env = claude_environment(self.tmp / "home", self.model.url, path=os.environ["PATH"]) | {
            "UNTILDONE_HOME": str(self.tmp / "state"),
            "NO_COLOR": "1",
        }
        if not self.repo.exists():
            new_repository(self.repo, "work", {"a.txt": "a\n"})

    def git(self, *args: str) -> str:
        return subprocess.run(["git", *args], cwd=self.repo, check=True, capture_output=True, text=True).stdout

    def popen(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "untildone", *args],
            cwd=self.repo,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        """End what a failed test left running."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def untildone(self, *args: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        process = self.popen(*args)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"untildone {args} took longer than {timeout} s\n{out}\n{err}") from None
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def result(self, *args: str, timeout: float = PATIENCE) -> dict[str, Any]:
        """Run with --json in a process of its own; the one object on stdout."""
        return _result(self.untildone(*args, "--json", timeout=timeout))

    def here(self, *args: str) -> subprocess.CompletedProcess[str]:
        """The same command in this process, which has imported everything already: saves a CPU second per run."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with self._as_the_user(), _at_most(PATIENCE), redirect_stdout(out), redirect_stderr(err):
            code = entry(args)
        said, told = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
        return subprocess.CompletedProcess(args, code, said, told)

    def result_here(self, *args: str) -> dict[str, Any]:
        """Run with --json in this process; the one object on stdout."""
        return _result(self.here(*args, "--json"))

    def events(self, run_id: str) -> list[dict[str, Any]]:
        done = self.here("log", run_id, "--json", "--verbose")
        return [json.loads(line) for line in done.stdout.splitlines()]

    @contextmanager
    def _as_the_user(self) -> Iterator[None]:
        """This process with the folder and the environment of the user; a command may leave other signal handlers."""
        environment, handlers = dict(os.environ), [(number, signal.getsignal(number)) for number in SIGNALS]
        os.environ.clear()
        os.environ.update(self.env)
        try:
            with chdir(self.repo):
                yield
        finally:
            os.environ.clear()
            os.environ.update(environment)
            for number, handler in handlers:
                signal.signal(number, handler)

    def ledger_usd(self, lines: tuple[LedgerLine, ...] | None = None) -> float:
        """What the model served in full, by the price list."""
        return sum(price(line) for line in (self.model.ledger.served() if lines is None else lines))


def _result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout.count("\n") == 1, (done.stdout, done.stderr)
    result: dict[str, Any] = json.loads(done.stdout) | {"exit_code": done.returncode}
    return result


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Fail instead of waiting for ever."""

    def late(*_: object) -> None:
        raise AssertionError(f"it took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def price(line: LedgerLine) -> float:
    usage = Usage(line.input_tokens, line.output_tokens, line.cache_read_tokens, line.cache_write_tokens)
    usd = cost(line.model, usage)
    assert usd is not None, line.model
    return usd


@contextmanager
def staged(tmp: Path, scenario: Scenario) -> Iterator[Stage]:
    with ScriptedModel(scenario) as model:
        stage = Stage(tmp, model)
        try:
            yield stage
        finally:
            stage.end()
