"""Real git in temporary folders. The global git config is the empty one of the test's own home."""

import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.run_kit import with_contract
from repositories import new_repository
from untildone.core.policy import RunSpec
from untildone.git.workspace import GitWorkspace, open_workspace


@dataclass(frozen=True)
class Project:
    """A folder of the user's, driven with plain git."""

    path: Path

    def git(self, *args: str) -> str:
        done = subprocess.run(["git", *args], cwd=self.path, capture_output=True, check=True, timeout=240)
        return os.fsdecode(done.stdout).rstrip("\n")

    def write(self, name: str, text: str = "text\n") -> Path:
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def commit(self, message: str = "by hand") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def hook(self, name: str, body: str) -> None:
        hook = self.write(f".git/hooks/{name}", f"#!/bin/sh\n{body}\n")
        hook.chmod(0o755)

    def init(self, *, identity: bool = True) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")
        if identity:
            self.git("config", "user.name", "Ada")
            self.git("config", "user.email", "ada@example.org")


@pytest.fixture
def private(tmp_path: Path) -> Path:
    return tmp_path / "private"


@pytest.fixture
def plain(tmp_path: Path) -> Project:
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project")


@pytest.fixture
def repo(plain: Project) -> Project:
    """A repository with one commit, on a branch that is not the default one."""
    new_repository(plain.path, checked_out="work")
    return plain


@pytest.fixture
def open_in(private: Path) -> Callable[..., Any]:
    async def opened(project: Project, *, run_id: str = "r1", cwd: Path | None = None, **spec: Any) -> GitWorkspace:
        fields = {"goal": "g", "cwd": str(cwd or project.path), "name": "tidy-up", **spec}
        return await open_workspace(RunSpec(**with_contract(fields)), run_id=run_id, private=private)

    return opened


@pytest.fixture
def told() -> Callable[[GitWorkspace], Awaitable[list[str]]]:
    """Prepare a workspace; what the user is told about it."""

    async def prepared(workspace: GitWorkspace) -> list[str]:
        return list((await workspace.prepare()).lines)

    return prepared


@pytest.fixture
def git_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Which git commands were started from now on; forgets them when asked."""
    real, log, shim = shutil.which("git"), tmp_path / "calls", tmp_path / "bin" / "git"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\necho "$*" >> "{log}"\nexec "{real}" "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")

    def taken() -> list[str]:
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    return taken
