"""A branch of its own for each iteration."""

import re

import pytest

from untildone.core.policy import Landing
from untildone.git.iteration_branch import branch_name, number_in
from untildone.ports import Resumption

pytestmark = pytest.mark.anyio

NAME = r"untildone/iteration-%d/\d{4}-\d\d-\d\d-[0-9a-f]{8}"


async def opened(repo, open_in, **spec):
    repo.git("switch", "-q", "main")
    workspace = await open_in(repo, branch_per="iteration", **spec)
    return workspace, await workspace.prepare()


async def work(repo, workspace, number: int) -> str:
    branch = await workspace.begin_iteration(number)
    before = await workspace.observe()
    repo.write(f"file-{number}")
    settled = await workspace.settle(before, iteration_num=number, message=f"iteration {number}")
    assert (settled.warning, settled.tree.branch) == ("", branch)
    return branch


def test_a_name_tells_the_iteration_and_whose_it_is():
    name = branch_name("p/", "r1", 12, "2026-01-02")
    assert re.fullmatch(r"p/iteration-12/2026-01-02-[0-9a-f]{8}", name)
    assert number_in(name, "p/", "r1") == 12
    assert number_in(name, "p/", "r2") is None
    assert number_in("main", "p/", "r1") is None
    assert number_in(None, "p/", "r1") is None


async def test_it_is_not_done_unless_asked_for(repo, open_in):
    workspace = await open_in(repo)
    await workspace.prepare()
    assert await workspace.begin_iteration(1) is None
    assert repo.git("branch", "--show-current") == "work"


async def test_each_iteration_begins_where_the_last_one_ended(repo, open_in):
    workspace, prepared = await opened(repo, open_in)
    assert prepared.lines == ("every iteration gets a branch of its own (from main)",)
    assert (prepared.branch, prepared.base) == ("main", "main")
    main = repo.git("rev-parse", "main")
    first = await work(repo, workspace, 1)
    second = await work(repo, workspace, 2)
    assert re.fullmatch(NAME % 1, first)
    assert re.fullmatch(NAME % 2, second)
    assert repo.git("branch", "--show-current") == second
    assert repo.git("log", "--format=%s", second) == "iteration 2\niteration 1\nfirst"
    assert repo.git("log", "--format=%s", first) == "iteration 1\nfirst"
    assert repo.git("rev-parse", "main") == main


async def test_begun_twice_is_begun_once(repo, open_in):
    workspace, _ = await opened(repo, open_in)
    first = await workspace.begin_iteration(1)
    repo.write("half-done")
    again = await open_in(repo, branch_per="iteration")
    assert (await again.prepare(Resumption(broken_off=True))).branch == first
    assert await again.begin_iteration(1) == first
    assert repo.git("branch", "--format=%(refname:short)", "--list", "untildone/*") == first


async def test_killed_between_the_switch_and_the_rest_it_knows_its_branch_again(repo, open_in):
    workspace, _ = await opened(repo, open_in)
    first = branch_name("untildone/", "r1", 1, "2001-01-01")
    repo.git("switch", "-q", "-c", first)
    assert await workspace.begin_iteration(1) == first


async def test_an_iteration_without_changes_leaves_no_branch(repo, open_in):
    workspace, _ = await opened(repo, open_in)
    empty = await workspace.begin_iteration(1)
    second = await work(repo, workspace, 2)
    assert empty not in repo.git("branch")
    await workspace.begin_iteration(3)
    assert await workspace.leave_iteration() == second
    assert repo.git("branch", "--show-current") == second
    assert repo.git("branch", "--format=%(refname:short)", "--list", "untildone/*") == second
    assert await workspace.leave_iteration() == second


async def test_an_empty_branch_goes_and_uncommitted_work_stays(repo, open_in):
    workspace, _ = await opened(repo, open_in)
    await workspace.begin_iteration(1)
    repo.write("left over")
    assert await workspace.leave_iteration() == "main"
    assert repo.git("status", "--porcelain") == '?? "left over"'


@pytest.mark.parametrize("how", ["merge", "squash"])
async def test_once_landed_the_next_one_begins_at_the_base(repo, open_in, how):
    workspace, _ = await opened(repo, open_in)
    first = await work(repo, workspace, 1)
    repo.git("switch", "-q", "main")
    repo.git("merge", "-q", "--no-ff", first) if how == "merge" else repo.git("merge", "-q", "--squash", first)
    repo.git("commit", "-q", "--allow-empty", "-m", "landed")
    repo.write("meanwhile")
    base = repo.commit("of somebody else")
    repo.git("switch", "-q", first)
    await workspace.begin_iteration(2)
    assert repo.git("rev-parse", "HEAD") == base
    assert (repo.path / "meanwhile").exists()


async def test_uncommitted_work_keeps_it_where_it_is_even_when_the_rest_has_landed(repo, open_in):
    workspace, _ = await opened(repo, open_in)
    first = await work(repo, workspace, 1)
    repo.git("switch", "-q", "main")
    repo.git("merge", "-q", first)
    repo.write("meanwhile")
    repo.commit("of somebody else")
    repo.git("switch", "-q", first)
    repo.write("left over")
    await workspace.begin_iteration(2)
    assert repo.git("rev-parse", "HEAD") == repo.git("rev-parse", first)
    assert (repo.path / "left over").exists()


async def test_a_resumed_run_goes_back_to_its_newest_branch(repo, open_in):
    workspace, _ = await opened(repo, open_in)
    await work(repo, workspace, 1)
    second = await work(repo, workspace, 2)
    again, prepared = await opened(repo, open_in)
    assert prepared.lines == (f"back on this run's branch {second} (from main)",)
    assert (prepared.branch, prepared.base) == (second, "main")
    third = await work(repo, again, 3)
    assert repo.git("log", "--format=%s", third) == "iteration 3\niteration 2\niteration 1\nfirst"


async def test_a_repository_without_commits_stays_on_its_branch(plain, open_in):
    plain.init()
    workspace = await open_in(plain, branch_per="iteration")
    await workspace.prepare()
    assert await workspace.begin_iteration(1) is None


async def test_another_base_and_prefix(repo, open_in):
    workspace, prepared = await opened(repo, open_in, branch_prefix="bot-", landing=Landing(base="work"))
    assert prepared.base == "work"
    assert re.fullmatch(r"bot-iteration-1/.*", await workspace.begin_iteration(1))
