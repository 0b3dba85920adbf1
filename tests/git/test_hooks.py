"""Programs that git runs for the loop: they are not the operator, get no login, and nothing of them stays."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from patience import soon
from untildone.git.repository import Keeping, open_repository
from untildone.git.workspace import GitWorkspace
from untildone.sandbox.host import CHECK_MARKER, behind_guard

pytestmark = pytest.mark.anyio


@pytest.fixture
async def kept(repo, open_in, private):
    """A workspace as a run has it."""
    spec = (await open_in(repo))._spec
    keeping = Keeping(
        marks=((CHECK_MARKER, "r1"),), behind=behind_guard(whole_tree=True), withheld=frozenset({"GITHUB_TOKEN"})
    )
    repository = replace(await open_repository(repo.path, private=private), keeping=keeping)
    workspace = GitWorkspace(spec, run_id="r1", repository=repository)
    await workspace.prepare()
    return workspace


async def committed(repo, workspace):
    before = await workspace.observe()
    repo.write("b.txt", os.urandom(8).hex())
    return await workspace.settle(before, iteration_num=1, message="m")


async def test_a_hook_and_a_filter_carry_the_mark_and_no_login(repo, kept, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "login-of-the-user")
    repo.hook("post-commit", f"env > {tmp_path}/hook")
    repo.git(
        "config", "filter.x.clean", f"tee {tmp_path}/seen > /dev/null; env > {tmp_path}/filter; cat {tmp_path}/seen"
    )
    repo.write(".git/info/attributes", "*.txt filter=x\n")
    assert (await committed(repo, kept)).commit is not None
    for name in ("hook", "filter"):
        told = (tmp_path / name).read_text()
        assert f"{CHECK_MARKER}=r1\n" in told
        assert "login-of-the-user" not in told


async def test_what_a_hook_leaves_behind_is_ended(repo, kept, tmp_path):
    repo.hook("post-commit", f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600' >/dev/null 2>&1 </dev/null &\n"
                             f"while ! test -s {tmp_path}/pid; do sleep 0.01; done")  # fmt: skip
    assert (await committed(repo, kept)).commit is not None
    left = Path("/proc") / (tmp_path / "pid").read_text().strip()
    await soon(lambda: not left.exists())


async def test_a_hook_that_fails_is_told_as_ever(repo, kept):
    repo.hook("pre-commit", "echo line 80 is too long >&2; exit 1")
    settled = await committed(repo, kept)
    assert settled.commit is None
    assert settled.warning.endswith("line 80 is too long")
