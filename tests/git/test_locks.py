"""Lock files that another git holds, or left behind."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from untildone.git.locks import ABANDONED_AFTER

pytestmark = pytest.mark.anyio


def _lock(project, name="index.lock", *, age: float = 0.0) -> Path:
    lock = project.write(f".git/{name}", "")
    then = time.time() - age
    os.utime(lock, (then, then))
    return lock


async def test_a_lock_that_goes_away_is_waited_for(repo, open_in):
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("a")
    lock = _lock(repo)
    settling = asyncio.create_task(workspace.settle(before, iteration_num=1, message="m"))
    await asyncio.wait([settling], timeout=0.3)
    lock.unlink()
    settled = await settling
    assert settled.commit == repo.git("rev-parse", "HEAD")
    assert (settled.warning, settled.left) == ("", ())


async def test_a_fresh_lock_is_left_alone_and_the_warning_names_it_and_the_fix(repo, open_in):
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("a")
    lock = _lock(repo)
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.warning == (
        f"not committed, the work is kept as it is: {lock} is in the way: another git is at work, or one died there; "
        f"if none is running, remove it with `rm {lock}`"
    )
    assert (settled.commit, settled.left) == (None, ("a",))
    assert lock.exists()


@pytest.mark.parametrize("name", ["index.lock", "HEAD.lock"])
async def test_an_old_lock_of_nobody_is_removed_and_told(repo, open_in, name):
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("a")
    lock = _lock(repo, name, age=2 * ABANDONED_AFTER)
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.commit == repo.git("rev-parse", "HEAD")
    assert settled.warning == f"removed {lock}, left behind by a git that is not running any more"
    assert settled.left == ()
    assert not lock.exists()


async def test_an_old_lock_stays_while_a_git_is_at_work_in_the_tree(repo, open_in):
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("sub/a")
    lock = _lock(repo, age=2 * ABANDONED_AFTER)
    at_work = await asyncio.create_subprocess_exec(
        "git", "cat-file", "--batch", cwd=repo.path / "sub", stdin=asyncio.subprocess.PIPE
    )
    settled = await workspace.settle(before, iteration_num=1, message="m")
    await at_work.communicate(b"")
    assert settled.commit is None
    assert lock.exists()
