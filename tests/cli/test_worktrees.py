"""What killed runs leave behind is removed by whatever looks there next."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from cli.cli_kit import SUSPENDED, Runs, Say
from untildone.core.policy import RunSpec
from untildone.engine.clock import SystemClock
from untildone.git.workspace import open_workspace
from untildone.store.leftovers import ROOMS
from untildone.store.sqlite import SqliteLog


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, capture_output=True, check=True, timeout=240)
    return os.fsdecode(done.stdout).rstrip("\n")


@pytest.fixture
def repo(project: Path) -> Path:
    git(project, "init", "-q", "-b", "main")
    (project / "a.txt").write_text("start\n")
    git(project, "add", "-A")
    git(project, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    return project


def killed_in_a_check(repo: Path, store: Path, run_id: str) -> Path:
    """A driver that dies while a check runs: nobody leaves the room."""
    child = os.fork()
    if not child:

        async def die() -> None:
            spec = RunSpec(goal="g", cwd=str(repo), name="night")
            rooms = (await open_workspace(spec, run_id=run_id, private=store / "folders")).rooms(store / ROOMS)
            async with rooms.open("HEAD"):
                os._exit(0)

        asyncio.run(die())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (room,) = (store / ROOMS / run_id).iterdir()
    return room


@pytest.mark.parametrize("words", [("worktrees", "ls"), ("worktrees", "reclaim"), ("doctor",)], ids=" ".join)
def test_a_room_nobody_comes_back_to_is_removed(
    repo: Path, store: Path, runs: Runs, say: Say, words: tuple[str, ...]
) -> None:
    run_id = runs.begin(repo, SUSPENDED)
    room = killed_in_a_check(repo, store, run_id)
    said = say(*words)
    assert "removed 1 fresh checkout that killed runs left behind" in " ".join((said.out + said.err).split())
    assert not room.exists()
    assert git(repo, "worktree", "list").count("\n") == 0
    assert "left behind" not in "".join(say(*words)[1:])


def test_a_room_that_is_in_use_stays_and_is_no_worktree_of_anybody(
    repo: Path, store: Path, runs: Runs, say: Say
) -> None:
    run_id = runs.begin(repo, SUSPENDED)
    room = killed_in_a_check(repo, store, run_id)

    async def drive() -> SqliteLog:
        log = SqliteLog(runs.path, SystemClock())
        await log.acquire(run_id, name="night", folder=str(repo))
        return log

    log = asyncio.run(drive())
    for words in (("worktrees", "ls"), ("worktrees", "reclaim", "--yes")):
        said = say(*words)
        assert said.err == ""
        assert str(room) not in said.out
    assert room.is_dir()
    asyncio.run(log.close())
