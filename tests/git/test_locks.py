"""Lock files that another git holds, or left behind."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from untildone.errors import GitLocked
from untildone.git import locks
from untildone.git.locks import ABANDONED_AFTER

pytestmark = pytest.mark.anyio

OLD = 2 * ABANDONED_AFTER


def lock_in(project, name="index.lock", *, age: float = 0.0) -> Path:
    lock = project.write(f".git/{name}", "")
    then = time.time() - age
    os.utime(lock, (then, then))
    return lock


async def git_in(folder: Path) -> asyncio.subprocess.Process:
    """A git that stays until its input ends."""
    return await asyncio.create_subprocess_exec(
        "git", "cat-file", "--batch", cwd=folder, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )


async def test_a_lock_that_goes_away_is_waited_for(repo, open_in):
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("a")
    lock = lock_in(repo)
    settling = asyncio.create_task(workspace.settle(before, iteration_num=1, message="m"))
    await asyncio.wait([settling], timeout=0.3)
    lock.unlink()
    settled = await settling
    assert settled.commit == repo.git("rev-parse", "HEAD")
    assert (settled.warning, settled.left, settled.held) == ("", (), None)


@pytest.mark.parametrize(
    "name", ["index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "refs/heads/work.lock", "refs/tags/x/y.lock"]
)
async def test_whatever_lock_a_dead_git_left_is_removed_at_the_start_and_told_once(repo, open_in, name):
    lock = lock_in(repo, name, age=OLD)
    workspace = await open_in(repo)
    lines = (await workspace.prepare()).lines
    assert [line for line in lines if "lock" in line] == [
        f"removed {lock}, left behind by a git that is not running any more"
    ]
    assert not lock.exists()
    assert await workspace.leave() == ""


@pytest.mark.parametrize("name", ["index.lock", "HEAD.lock", "refs/heads/work.lock"])
async def test_whatever_lock_stops_a_commit_is_removed_once_it_is_old_enough(repo, open_in, name):
    workspace = await open_in(repo)
    await workspace.prepare()
    before = await workspace.observe()
    repo.write("a")
    lock = lock_in(repo, name, age=ABANDONED_AFTER - 0.2)
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.commit == repo.git("rev-parse", "work")
    assert settled.warning == f"removed {lock}, left behind by a git that is not running any more"
    assert (settled.left, settled.held) == ((), None)


async def test_settings_that_are_locked_by_a_dead_git_are_written_all_the_same(repo, open_in):
    repo.git("switch", "-q", "main")
    workspace = await open_in(repo)
    lock = lock_in(repo, "config.lock", age=ABANDONED_AFTER - 0.2)
    await workspace.prepare()
    assert not lock.exists()
    assert repo.git("config", "branch.untildone/tidy-up.untildone-run") == "r1"


async def test_a_lock_stays_while_a_git_runs_there_and_what_is_held_up_says_what_to_do(repo, open_in, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    workspace = await open_in(repo)
    await workspace.prepare()
    before = await workspace.observe()
    repo.write("sub/a")
    lock = lock_in(repo, age=OLD)
    at_work = await git_in(repo.path / "sub")
    try:
        settled = await workspace.settle(before, iteration_num=1, message="m")
        user = f"git, process {at_work.pid}"
        said = f"{lock} is in the way ({user}); if no git is running there, remove it with `rm {lock}`"
        assert settled.warning == f"not committed, the work is kept as it is: {said}"
        assert (settled.commit, settled.left) == (None, ("sub/a",))
        assert settled.held is not None
        assert (settled.held.cause, settled.held.said) == ("git_locked", said)
    finally:
        await at_work.communicate(b"")
    assert lock.exists()
    assert await workspace.held(settled.tree) is None
    assert not lock.exists()


async def test_a_lock_that_any_program_has_open_stays(repo, open_in, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    workspace = await open_in(repo)
    repository = workspace._repository
    lock = lock_in(repo, age=OLD)
    script = f"exec 3>>{lock}; touch -d '1 hour ago' {lock}; echo; read _"
    at_work = await asyncio.create_subprocess_exec(
        "sh", "-c", script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert at_work.stdout is not None
    await at_work.stdout.readline()
    with pytest.raises(GitLocked, match=r"index\.lock is in the way \(sh, process"):
        await repository.git("add", "-A", check=False)
    await at_work.communicate(b"\n")
    assert lock.exists()


@pytest.mark.parametrize(
    "said", ["Unable to create '/etc/x.lock': File exists", "Unable to create '../../a.lock': File exists"]
)
async def test_a_lock_outside_of_the_repository_is_none_whatever_a_hook_says(repo, open_in, said):
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("a")
    repo.hook("pre-commit", f'echo "{said}" >&2; exit 1')
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.held is None
    assert "Unable to create" in settled.warning
