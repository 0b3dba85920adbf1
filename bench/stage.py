"""A place to measure loops in: the scripted model as a process of its own, a repository, a home, nobody's login."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from untildone import rehearsal
from untildone.agents.argv import find_claude
from untildone.core.policy import Sandbox
from untildone.rehearsal.environment import claude_environment
from untildone.sandbox.containers import settings_of_engines

HERE = Path(__file__).parent
GOAL = "Take the next small step of the work."
PATIENCE = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a loop runs, and with what."""

    folder: Path
    repository: Path
    env: dict[str, str]
    claude: str


@contextmanager
def open_stage() -> Iterator[Stage]:
    """Set the stage; everything is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="untildone-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        (folder / "home").mkdir()
        with _scripted_model() as url:
            env = claude_environment(folder / "home", url) | settings_of_engines(os.environ)
            # Not the one on PATH: both loops shall run the same program on every machine.
            stage = Stage(folder=folder, repository=folder / "repository", env=env, claude=find_claude(path=""))
            _make_repository(stage)
            # Claude Code sets up its home at its first start: that belongs to neither loop.
            bare_loop(stage, 1)
            yield stage


def bare_loop(stage: Stage, iterations: int) -> None:
    """The loop people write: `while true; do claude -p ...; done`."""
    script = """while [ "$2" -gt "${n:=0}" ]; do n=$((n + 1)); "$0" -p "$1" --output-format stream-json --verbose \
        --permission-mode acceptEdits </dev/null >/dev/null || exit 1; done"""
    _run(["sh", "-c", script, stage.claude, GOAL, str(iterations)], stage)


def our_loop(
    stage: Stage, iterations: int, *, profile: Path | None = None, sandbox: Sandbox | None = None
) -> dict[str, Any]:
    """A whole run of ours in a process of its own; what it noted about itself. `sandbox`: its agent notes nothing."""
    store = tempfile.mkdtemp(dir=stage.folder)
    argv = [sys.executable, str(HERE / "driver.py"), stage.claude, str(stage.repository), store, str(iterations)]
    more = [f"--{name}={value}" for name, value in (("profile", profile), ("sandbox", sandbox)) if value]
    facts: dict[str, Any] = json.loads(_run([*argv, *more], stage))
    return facts


def _run(argv: list[str], stage: Stage) -> bytes:
    done = subprocess.run(
        argv, cwd=stage.repository, env=stage.env, timeout=PATIENCE, stdout=subprocess.PIPE, check=True
    )
    return done.stdout


def _make_repository(stage: Stage) -> None:
    stage.repository.mkdir()
    (stage.repository / "README.md").write_text("a place to work in\n")
    commit_all(stage.repository)


def commit_all(folder: Path) -> None:
    """Make the folder a repository with one commit."""
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for arguments in (["init", "-q", "-b", "work"], ["add", "."], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, timeout=300)


@contextmanager
def _scripted_model() -> Iterator[str]:
    scenario = Path(rehearsal.__file__).parent / "scenarios" / "trivial.toml"
    argv = [sys.executable, "-m", "untildone.rehearsal.model", "--scenario", str(scenario)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as model:
        assert model.stdout is not None
        try:
            yield model.stdout.readline().strip()
        finally:
            model.terminate()
