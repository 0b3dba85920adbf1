"""A run that somebody starts in the browser: the same program, in the background, in a folder that was allowed."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from untildone.core.dataclass import dataclass
from untildone.core.printable import one_line
from untildone.errors import ServeError, UntildoneError, UsageError

LONGEST_GOAL = 200_000
MOST_CHECKS = 20
LONGEST_CHECK = 2000
PATIENCE = 60.0
"""Seconds a start may take: looking at the folder, and until the run is in the log."""
_LAST_WORDS = 500
_SHORT = 200
_OPTIONS: Mapping[str, str] = {
    "max_runs": "--max-runs",
    "max_iterations": "--max-iterations",
    "max_cost_usd": "--max-cost",
    "max_tokens": "--max-tokens",
    "max_duration": "--max-duration",
}
"""The limits a start can name."""
_WHOLE = frozenset({"max_runs", "max_iterations", "max_tokens"})
_LARGEST = 10**12
_OF_THE_SERVER = re.compile(r"UNTILDONE_SERVE_|UNTILDONE_TOKEN|CALLBACK_TOKEN|PG[A-Z]|DATABASE_URL")
"""Variables that are the server's own: logins to its database, tokens."""


class StartRefused(UntildoneError):
    """A run cannot be started as it was asked for."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A run that somebody wants."""

    goal: str
    folder: str
    """An absolute path."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """By policy field; at least one."""
    checks: tuple[str, ...] = ()
    """Commands that prove the work."""
    name: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run that works in the background."""

    run_id: str
    pid: int


class Starter:
    """Starts runs on the server's own machine."""

    def __init__(
        self,
        folders: tuple[str, ...],
        *,
        store: Path,
        environment: Mapping[str, str],
        command: tuple[str, ...] = (sys.executable, "-P", "-m", "untildone"),
    ) -> None:
        """`folders`: runs may be started in these and below, nowhere else."""
        self._folders = tuple(Path(os.path.realpath(folder)) for folder in folders)
        self._store = store
        self._environment = {name: value for name, value in environment.items() if not _OF_THE_SERVER.match(name)}
        self._command = command
        self._one_at_a_time = asyncio.Lock()

    async def start(self, wish: Wish) -> Started:
        """Start a run. UsageError: the wish cannot work; StartRefused: not here, or the program says no."""
        folder = self._allowed(wish.folder)
        arguments = [*self._command, *_arguments(wish), f"--cwd={folder}", f"--store={self._store}"]
        goal = _goal(wish)
        async with self._one_at_a_time:
            code, out, err = await self._run(arguments, folder, goal)
        if code:
            raise StartRefused(_last_line(err) or f"the run could not be started (exit code {code})")
        try:
            told: Any = json.loads(out)
            return Started(run_id=str(told["run_id"]), pid=int(told["pid"]))
        except (ValueError, KeyError, TypeError) as garbled:
            raise ServeError("the run was started, and what it said of itself makes no sense") from garbled

    def _allowed(self, folder: str) -> Path:
        """The folder with every link in it followed: what counts is where it really is."""
        if not self._folders:
            raise StartRefused("no run may be started from here: `untildone serve --folder DIR` says where they may")
        if "\0" in folder or not Path(folder).is_absolute():
            raise UsageError("the folder must be an absolute path")
        real = Path(os.path.realpath(folder))
        if not any(real == allowed or allowed in real.parents for allowed in self._folders):
            raise StartRefused(f"{one_line(folder, _SHORT)} is not in a folder that `untildone serve --folder` allows")
        if not real.is_dir():
            raise UsageError(f"{one_line(folder, _SHORT)} is no folder")
        return real

    async def _run(self, arguments: list[str], folder: Path, goal: bytes) -> tuple[int, bytes, bytes]:
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                cwd=folder,
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as refused:
            raise ServeError(f"untildone cannot be started: {refused.strerror}") from refused
        try:
            async with asyncio.timeout(PATIENCE):
                out, err = await process.communicate(goal)
        except TimeoutError as slow:
            raise StartRefused(f"the run was not there after {PATIENCE:.0f} seconds, and was given up") from slow
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out, err


def _goal(wish: Wish) -> bytes:
    if not wish.goal.strip():
        raise UsageError("the goal is empty: say what should be reached")
    if len(wish.goal) > LONGEST_GOAL:
        raise UsageError(f"the goal is longer than {LONGEST_GOAL:,} characters")
    return wish.goal.encode("utf-8", "replace")


def _arguments(wish: Wish) -> list[str]:
    """What is typed for it. A value is always part of its option, so that none is taken for one."""
    said = ["run", "--prompt-file=-", "--detach", "--json", "--new", *_limits(wish.limits)]
    if len(wish.checks) > MOST_CHECKS:
        raise UsageError(f"there are more than {MOST_CHECKS} checks")
    said += [f"--check={_value('check', check, LONGEST_CHECK)}" for check in wish.checks]
    if wish.name is not None:
        said.append(f"--name={_value('name', wish.name, _SHORT)}")
    if wish.model is not None:
        said.append(f"--model={_value('model', wish.model, _SHORT)}")
    return said


def _value(what: str, text: str, most: int) -> str:
    if not text.strip() or len(text) > most or "\0" in text:
        raise UsageError(f"the {what} must be text of at most {most:,} characters")
    return text


def _limits(limits: Mapping[str, float]) -> list[str]:
    if not limits:
        raise UsageError("the run needs a limit: give at least one of " + ", ".join(_OPTIONS))
    said = []
    for name, value in limits.items():
        if name not in _OPTIONS:
            raise UsageError(f"{one_line(name, _SHORT)} is no limit: there are " + ", ".join(_OPTIONS))
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LARGEST:
            raise UsageError(f"{name} must be a number above zero")
        if name in _WHOLE and value != int(value):
            raise UsageError(f"{name} must be a whole number")
        number = str(int(value)) if value == int(value) else f"{value:.6f}"
        said.append(f"{_OPTIONS[name]}={number}{'s' if name == 'max_duration' else ''}")
    return said


def _last_line(said: bytes) -> str:
    """What the program said last: the line that tells why not."""
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return one_line(lines[-1].removeprefix("untildone: "), _LAST_WORDS) if lines else ""
