"""--worktree: a tree of its own for a run, found again, and tidied up only when nothing would be lost."""

import asyncio
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cli.cli_kit import SUSPENDED, Runs
from untildone.cli.driving import opened
from untildone.cli.own_tree import in_own_tree, tidy_up
from untildone.core.policy import Landing, RunSpec
from untildone.core.state import LoopState
from untildone.errors import UsageError, WorkspaceError


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, capture_output=True, check=True, timeout=240)
    return os.fsdecode(done.stdout).rstrip("\n")


@pytest.fixture
def repo(project: Path) -> Path:
    git(project, "init", "-q", "-b", "main")
    git(project, "config", "user.name", "Ada")
    git(project, "config", "user.email", "ada@example.org")
    (project / "web").mkdir()
    (project / "web" / "a.txt").write_text("start\n")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "first")
    git(project, "branch", "dev")
    return project


def placed(repo: Path, store: Path, wish: str = ":", *, below: str = "", new: bool = False, **spec: str) -> RunSpec:
    wanted = RunSpec(goal="g", cwd=str(repo / below), name="night", **spec)  # type: ignore[arg-type] # texts only
    return asyncio.run(in_own_tree(wanted, wish, store, parent=None, new=new))


def test_a_run_gets_a_tree_beside_the_repository_on_a_new_branch(repo: Path, store: Path) -> None:
    spec = placed(repo, store, below="web")
    assert Path(spec.cwd) == repo.parent / "project-worktrees" / "untildone-night" / "web"
    assert spec.repository == str(repo)
    assert (Path(spec.cwd) / "a.txt").read_text() == "start\n"
    assert git(Path(spec.cwd), "branch", "--show-current") == "untildone/night"
    assert git(repo, "branch", "--show-current") == "main"


def test_branch_and_base_can_be_named(repo: Path, store: Path) -> None:
    spec = placed(repo, store, "fix:dev")
    assert git(Path(spec.cwd), "branch", "--show-current") == "fix"
    assert git(repo, "config", "branch.fix.untildone-base") == "dev"
    with pytest.raises(WorkspaceError, match="exists already"):
        placed(repo, store, "fix")
    with pytest.raises(WorkspaceError, match="there is no commit nowhere"):
        placed(repo, store, "other:nowhere")


def test_an_unfinished_run_goes_on_in_its_own_tree(repo: Path, store: Path, runs: Runs) -> None:
    spec = placed(repo, store)
    runs.begin(Path(spec.cwd), SUSPENDED, repository=spec.repository)
    assert placed(repo, store).cwd == spec.cwd
    assert placed(repo, store, new=True).cwd != spec.cwd
    git(repo, "worktree", "remove", spec.cwd)
    assert Path(placed(repo, store).cwd).is_dir()


def test_tasks_that_are_not_committed_would_be_missing(repo: Path, store: Path) -> None:
    (repo / "TODO.md").write_text("- [ ] one\n")
    with pytest.raises(UsageError, match=r"TODO.md is not committed"):
        placed(repo, store, task_file="TODO.md")
    assert git(repo, "worktree", "list").count("\n") == 0


def tidied(spec: RunSpec, store: Path) -> None:
    async def tidy() -> None:
        async with opened(store) as log:
            await tidy_up(log, LoopState(spec=spec, phase="completed"), store)

    asyncio.run(tidy())


def test_a_tree_is_removed_only_if_asked_and_nothing_is_lost(
    repo: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = placed(repo, store, "fix")
    tidied(spec, store)
    assert Path(spec.cwd).is_dir(), "nobody asked for it"
    spec = replace(spec, cleanup_worktree=True, landing=Landing(land="merge"))
    (Path(spec.cwd) / "new.txt").write_text("new\n")
    tidied(spec, store)
    assert "kept: 1 file is not committed" in capsys.readouterr().err
    (Path(spec.cwd) / "new.txt").unlink()
    tidied(spec, store)
    assert "removed: all of it is in main" in capsys.readouterr().err
    assert not Path(spec.cwd).exists()
