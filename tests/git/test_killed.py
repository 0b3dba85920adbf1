"""`kill -9` after every single git command: nothing is lost, nothing is there twice, and the next try goes through."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from git.agents_kit import boxed
from patience import PATIENCE
from untildone.git.repository import open_repository
from untildone.git.rewind import rewind
from untildone.git.snapshot import saved_states, state_after
from untildone.git.worktrees import add, reclaimable
from untildone.ports import Resumption, TreeState

pytestmark = pytest.mark.anyio

DRIVER = Path(__file__).parent / "killed_driver.py"
MOST = 120
"""Git commands; more than any of these things needs."""


@pytest.fixture
async def deadly(tmp_path):
    """Runs a driver that is killed when its git number N has done its work; False once it needed fewer than that."""
    real, counter, shim = shutil.which("git"), tmp_path / "counter", tmp_path / "deadly" / "git"
    shim.parent.mkdir()
    shim.write_text(
        f'#!/bin/sh\n[ -e "{counter}" ] || exec "{real}" "$@"\n'
        f'"{real}" "$@"; code=$?; n=$(($(cat "{counter}") - 1)); echo $n > "{counter}"\n'
        "[ $n -ne 0 ] || kill -9 $PPID\nexit $code\n"
    )
    shim.chmod(0o755)
    inside = shim.with_name("inside")
    inside.write_text(shim.read_text().replace(f'"{real}" ', ""))
    inside.chmod(0o755)
    path = f"{shim.parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(DRIVER.parents[1])}

    driver = await asyncio.create_subprocess_exec(
        sys.executable,
        str(DRIVER),
        str(counter),
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )

    async def run(what: str, project, private: Path, number: int) -> bool:
        counter.unlink(missing_ok=True)
        driver.stdin.write(json.dumps([what, str(project.path), str(private), number]).encode() + b"\n")
        async with asyncio.timeout(PATIENCE):
            code = int(await driver.stdout.readline())
        assert code in (0, -signal.SIGKILL)
        return code != 0

    yield run
    driver.stdin.close()
    await driver.wait()


@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.soak)])
def stride(request):
    """Killed after every git command in the soak; otherwise after some of them, from the second to the last."""
    return request.param


async def each_step(original, deadly, what, private, stride) -> AsyncIterator:
    """A fresh copy of the project for each moment of death."""
    for number in range(min(2, stride), MOST, stride):
        copy = type(original)(original.path.parent / f"{what}-{number}")
        shutil.copytree(original.path, copy.path, symlinks=True)
        scratch = private / copy.path.name
        scratch.mkdir(parents=True)
        killed = await deadly(what, copy, scratch, number)
        yield number, copy, scratch
        if not killed:
            assert number > 3
            return
    raise AssertionError("it never came to its end")


def commits(project) -> str:
    return project.git("log", "--format=%s", "--reverse")


async def test_a_commit_is_made_once_wherever_the_driver_dies(repo, open_in, deadly, private, stride):
    start = TreeState(fingerprint="as the dead driver found it", head=repo.git("rev-parse", "HEAD"), branch="work")
    async for number, copy, _ in each_step(repo, deadly, "settle", private, stride):
        workspace = await open_in(copy)
        await workspace.prepare(Resumption(broken_off=True))
        if (copy.path / "work").exists():
            settled = await workspace.settle(start, iteration_num=1, message="the work")
            assert (settled.warning, settled.left) == ("", ()), number
            assert commits(copy) == "first\nthe work", number
            assert copy.git("rev-parse", "refs/untildone/r1/1") == copy.git("rev-parse", "HEAD") == settled.commit
        refs = copy.git("for-each-ref", "--format=%(refname)").split()
        assert {ref for ref in refs if "untildone" not in ref} == {"refs/heads/main", "refs/heads/work"}
        assert set(refs) <= {
            "refs/heads/main", "refs/heads/work",
            *(f"refs/untildone/r1/{name}" for name in ("start", "1", "seen-0-1")),
        }, number  # fmt: skip
        assert list((copy.path / ".git").glob("*.lock")) == []
        assert copy.git("status", "--porcelain") == ""


async def test_what_is_committed_in_a_sandbox_is_there_once_wherever_the_driver_dies(repo, deadly, private, stride):
    start = TreeState(fingerprint="as the dead driver found it", head=repo.git("rev-parse", "HEAD"), branch="work")
    async for number, copy, scratch in each_step(repo, deadly, "settle_inside", private, stride):
        one = await boxed(copy, scratch)
        await one.workspace.prepare(Resumption(broken_off=True))
        if (copy.path / "work").exists():
            settled = await one.workspace.settle(start, iteration_num=1, message="the work")
            assert (settled.warning, settled.left) == ("", ()), number
            assert commits(copy) == "first\nby the agent\nthe work", number
            assert copy.git("rev-parse", "refs/untildone/r1/1") == copy.git("rev-parse", "HEAD") == settled.commit
        assert copy.git("rev-parse", "HEAD") == one.agent("git rev-parse HEAD")
        assert one.agent("git status --porcelain") == copy.git("status", "--porcelain") == "", number
        assert copy.git("for-each-ref", "--format=%(refname)", "refs/untildone/r1/agent") == ""
        assert list((copy.path / ".git").glob("*.lock")) == []


@pytest.mark.parametrize("command", ["unpack-objects", "cat-file --batch"])
async def test_what_is_committed_in_a_sandbox_comes_out_although_a_git_is_killed(
    repo, tmp_path, private, monkeypatch, command
):
    """Not the driver: as a machine does that runs out of memory."""
    real, once, shim = shutil.which("git"), tmp_path / "killed", tmp_path / "bin" / "git"
    shim.parent.mkdir()
    shim.write_text(
        f'#!/bin/sh\ncase "$*" in *"{command}"*) [ -e "{once}" ] || {{ touch "{once}"; kill -9 $$; }};; esac\n'
        f'exec "{real}" "$@"\n'
    )
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")
    one = await boxed(repo, private)
    await one.workspace.prepare(None)
    before = await one.workspace.observe()
    one.agent("echo new > new.txt")
    settled = await one.workspace.settle(before, iteration_num=1, message="the work")
    assert once.exists()
    assert (settled.warning, settled.left) == ("", ())
    assert commits(repo).endswith("the work")
    assert commits(repo).count("the work") == 1
    assert settled.commit == repo.git("rev-parse", "HEAD") == one.agent("git rev-parse HEAD")
    assert repo.git("status", "--porcelain") == ""


async def test_a_branch_of_an_iteration_is_begun_once_wherever_the_driver_dies(repo, open_in, deadly, private, stride):
    repo.git("switch", "-q", "main")
    workspace = await open_in(repo, branch_per="iteration")
    await workspace.prepare()
    await workspace.begin_iteration(1)
    before = await workspace.observe()
    repo.write("a")
    await workspace.settle(before, iteration_num=1, message="one")
    async for number, copy, _ in each_step(repo, deadly, "begin", private, stride):
        again = await open_in(copy, branch_per="iteration")
        assert (await again.prepare(Resumption(broken_off=True))).base == "main"
        branch = await again.begin_iteration(2)
        made = copy.git("branch", "--format=%(refname:short)", "--list", "untildone/*").split()
        assert len(made) == 2, number
        assert branch == made[1] == copy.git("branch", "--show-current")
        assert commits(copy) == "first\none"


async def prepared_for_going_back(repo, open_in):
    workspace = await open_in(repo)
    await workspace.prepare()
    for number in (1, 2):
        before = await workspace.observe()
        repo.write("a", f"{number}\n")
        repo.write(f"only-{number}")
        await workspace.settle(before, iteration_num=number, message=f"iteration {number}")
    (repo.path / "only-1").unlink()
    repo.write("untracked", "precious\n")
    repo.write("a", "uncommitted\n")


async def go_back(folder: Path, private: Path) -> None:
    repository = await open_repository(folder, private=private)
    target = state_after(await saved_states(repository, "r1"), 1)
    assert target is not None
    await rewind(repository, "r1", target)


def holds(project, name: str, text: str) -> bool:
    """Whether a file with this text is in the tree or under any ref."""
    places = project.git("for-each-ref", "--format=%(refname)").split()
    found = [project.path / name] if (project.path / name).exists() else []
    if any(path.read_text() == text for path in found):
        return True
    listed = (ref for ref in places if name in project.git("ls-tree", "-r", "--name-only", ref).split("\n"))
    return any(project.git("show", f"{ref}:{name}") == text.strip() for ref in listed)


async def test_a_rewind_loses_nothing_and_can_be_repeated_wherever_it_is_cut_off(
    repo, open_in, deadly, private, stride
):
    await prepared_for_going_back(repo, open_in)
    second = repo.git("rev-parse", "HEAD")
    async for number, copy, scratch in each_step(repo, deadly, "go_back", private, stride):
        assert holds(copy, "untracked", "precious\n"), number
        assert holds(copy, "a", "uncommitted\n"), number
        assert copy.git("for-each-ref", f"--contains={second}"), number
        await go_back(copy.path, scratch)
        assert commits(copy) == "first\niteration 1"
        assert copy.git("status", "--porcelain") == ""
        assert sorted(path.name for path in copy.path.iterdir()) == [".git", "README.md", "a", "only-1"]
        assert holds(copy, "untracked", "precious\n")
        assert holds(copy, "a", "uncommitted\n")


async def test_a_worktree_that_was_never_finished_is_kept_and_a_finished_one_is_ours(repo, deadly, private, stride):
    async for number, copy, scratch in each_step(repo, deadly, "make_worktree", private, stride):
        repository = await open_repository(copy.path, private=scratch)
        fates = [fate for fate in await reclaimable(repository) if not fate.tree.main]
        assert [fate.tree.branch for fate in fates] in ([], ["apart"]), number
        assert copy.git("branch", "--show-current") == "work"
        assert (await add(repository, "another", place=scratch / "another")).ours
