"""Commits made behind the loop's back, and commits taken away."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from patience import soon
from processes import state_of, until_dead
from untildone.ports import Resumption

pytestmark = pytest.mark.anyio

DRIVER = Path(__file__).parent / "settle_driver.py"
REF = "refs/untildone/r1"


async def _committed(project, workspace, name="a", text="text\n"):
    before = await workspace.observe()
    project.write(name, text)
    return await workspace.settle(before, iteration_num=1, message=f"add {name}")


# --- a driver that dies in the middle of a commit --------------------------------------------------


async def _in_the_hook(project, private):
    """A driver that waits for a slow pre-commit hook; and the pids of that hook and its git."""
    project.hook("pre-commit", "echo $$ $PPID > .git/pids.new; mv .git/pids.new .git/pids; sleep 600; touch .git/ended")
    driver = await asyncio.create_subprocess_exec(sys.executable, str(DRIVER), str(project.path), str(private))
    await soon((pids := project.path / ".git/pids").exists)
    return driver, [int(pid) for pid in pids.read_text().split()]


async def test_a_commit_dies_with_its_killed_driver_and_the_next_one_gets_its_own(repo, open_in, private):
    head = repo.git("rev-parse", "HEAD")
    driver, pids = await _in_the_hook(repo, private)
    driver.kill()
    await driver.wait()
    for pid in pids:
        await until_dead(pid)
    assert repo.git("rev-parse", "HEAD") == head
    assert list((repo.path / ".git").glob("*.lock")) == []
    repo.hook("pre-commit", "exit 0")
    workspace = await open_in(repo)
    place = await workspace.prepare(Resumption(broken_off=True))
    assert place.lines == ("commits go to branch work",)
    repo.write("more")
    settled = await workspace.settle(await workspace.observe(), iteration_num=2, message="the next driver's")
    assert settled.commit == repo.git("rev-parse", "HEAD")
    assert repo.git("log", "--format=%s") == "the next driver's\nfirst"
    assert repo.git("show", "--format=", "--name-only") == "more\nwork"
    assert not (repo.path / ".git/ended").exists()


async def test_what_a_hook_leaves_running_survives_a_commit_that_went_well(repo, open_in):
    repo.hook("post-commit", "sleep 600 & echo $! > .git/left")
    workspace = await open_in(repo)
    assert (await _committed(repo, workspace)).commit
    left = int((repo.path / ".git/left").read_text())
    second = await _committed(repo, workspace, "b")  # by now the watcher of the first commit is long gone
    assert second.commit
    state = state_of(left)
    for pid in {left, int((repo.path / ".git/left").read_text())}:
        os.kill(pid, signal.SIGKILL)
    assert state not in {"", "Z"}


# --- HEAD moved while nobody looked ----------------------------------------------------------------


async def test_commits_made_since_the_last_recorded_one_are_told_once(repo, open_in, told):
    workspace = await open_in(repo)
    await workspace.prepare()
    recorded = (await _committed(repo, workspace)).commit
    repo.write("b")
    repo.commit()
    repo.write("c")
    head = repo.commit()
    lines = await told(await open_in(repo))
    assert lines[1:] == [
        f"2 commits were made since this run last recorded one ({recorded[:10]}): HEAD is now {head[:10]}"
    ]
    assert len(await told(await open_in(repo))) == 1


async def test_a_commit_made_before_the_first_one_was_recorded_is_told(repo, open_in, told):
    await (await open_in(repo)).prepare()
    repo.write("by a driver that died before it could write that down")
    repo.commit()
    assert (await told(await open_in(repo)))[1].startswith("1 commit was made since this run last recorded one")


async def test_another_branch_than_the_recorded_commits_is_told(repo, open_in, told):
    workspace = await open_in(repo)
    await workspace.prepare()
    recorded = (await _committed(repo, workspace)).commit
    repo.git("switch", "-q", "-c", "elsewhere", "main")
    lines = await told(await open_in(repo))
    assert lines[1:] == [f"this run's last commit {recorded[:10]} is not in what is checked out now"]


async def test_nothing_moved_is_nothing_told(repo, open_in, told):
    workspace = await open_in(repo)
    await workspace.prepare()
    await _committed(repo, workspace)
    assert await told(await open_in(repo)) == ["commits go to branch work"]


# --- the agent rewrites history --------------------------------------------------------------------


def _reset_and_forget(project):
    project.git("reset", "-q", "--hard", "HEAD~1")
    project.git("reflog", "expire", "--expire=now", "--all")
    project.git("gc", "-q", "--prune=now")


def _amend(project):
    project.write("a", "amended\n")
    project.git("commit", "-q", "-a", "--amend", "-m", "amended")


@pytest.mark.parametrize("rewrite", [_reset_and_forget, _amend])
async def test_a_commit_on_no_branch_any_more_is_told_and_kept(repo, open_in, rewrite):
    workspace = await open_in(repo)
    lost = (await _committed(repo, workspace)).commit
    before = await workspace.observe()
    rewrite(repo)
    repo.write("next")
    settled = await workspace.settle(before, iteration_num=2, message="next")
    assert settled.warning == (
        f"commit {lost[:10]} that this run built on is on no branch any more (reset, amended or rebased); "
        f"it is kept by {REF}/1: `git branch NAME {lost[:10]}` brings it back"
    )
    assert repo.git("show", f"{lost}:a") == "text"
    assert settled.commit == repo.git("rev-parse", "HEAD") == repo.git("rev-parse", f"{REF}/2")
    again = await workspace.settle(settled.tree, iteration_num=3, message="m")
    assert again.warning == ""


async def test_a_second_lost_commit_gets_a_ref_of_its_own(repo, open_in):
    workspace = await open_in(repo)
    for ref in (f"{REF}/1", f"{REF}/1-2"):
        lost = (await _committed(repo, workspace, "a", f"{ref}\n")).commit
        before = await workspace.observe()
        repo.git("reset", "-q", "--hard", "HEAD~1")
        settled = await workspace.settle(before, iteration_num=2, message="m")
        assert f"it is kept by {ref}:" in settled.warning
        assert repo.git("rev-parse", ref) == lost


async def test_history_rewritten_while_no_driver_lived_is_told_and_kept(repo, open_in, told):
    lost = (await _committed(repo, await open_in(repo))).commit
    _reset_and_forget(repo)
    [_, line] = await told(await open_in(repo))
    assert line.startswith(f"commit {lost[:10]} that this run built on is on no branch any more")
    assert repo.git("rev-parse", f"{REF}/1") == lost


async def test_a_change_of_branch_loses_nothing(repo, open_in):
    workspace = await open_in(repo)
    await workspace.prepare()
    await _committed(repo, workspace)
    before = await workspace.observe()
    repo.git("switch", "-q", "main")
    settled = await workspace.settle(before, iteration_num=2, message="m")
    assert (settled.commit, settled.warning) == (None, "")
    assert settled.elsewhere.startswith("the folder is on branch main now")


async def test_a_commit_that_is_gone_for_good_is_told_without_a_crash(repo, open_in):
    workspace = await open_in(repo)
    lost = (await _committed(repo, workspace)).commit
    before = await workspace.observe()
    repo.git("update-ref", "-d", f"{REF}/1")
    _reset_and_forget(repo)
    settled = await workspace.settle(before, iteration_num=2, message="m")
    assert settled.warning.startswith(f"commit {lost[:10]} that this run built on is on no branch any more")
    assert settled.warning.endswith(", and it could not be kept")
