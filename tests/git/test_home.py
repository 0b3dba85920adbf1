"""The loop commits on the run's own branch, whoever switches the folder to another."""

import pytest

from untildone.ports import Resumption

pytestmark = pytest.mark.anyio


async def begun(repo, open_in, **spec):
    repo.git("switch", "-q", "main")
    workspace = await open_in(repo, **spec)
    await workspace.prepare()
    return workspace


async def work(repo, workspace, number: int, *, after=lambda: None):
    before = await workspace.observe()
    after()
    repo.write(f"f{number}")
    return await workspace.settle(before, iteration_num=number, message=f"iteration {number}")


async def test_nothing_is_committed_on_the_base_and_the_way_back_counts(repo, open_in):
    workspace = await begun(repo, open_in)
    first = await work(repo, workspace, 1)
    base = repo.git("rev-parse", "main")
    astray = await work(repo, workspace, 2, after=lambda: repo.git("switch", "-q", "main"))
    line = (
        "the folder is on branch main now, this run's commits go to branch untildone/tidy-up: "
        "nothing is committed before `git switch untildone/tidy-up`"
    )
    assert (astray.commit, astray.elsewhere, astray.left) == (None, line, ("f2",))
    assert (await workspace.look()).elsewhere == line
    assert repo.git("rev-parse", "main") == base
    assert repo.git("show", "-s", "--format=%P", astray.snapshot) == first.commit, "the run's branch, not the base"
    back = await work(repo, workspace, 3, after=lambda: repo.git("switch", "-q", "untildone/tidy-up"))
    assert (back.elsewhere, back.by) == ("", "loop")
    assert repo.git("show", "--format=%P", "--name-only", "untildone/tidy-up").split() == [first.commit, "f2", "f3"]
    assert (await workspace.look()).elsewhere == ""


async def test_what_the_agent_commits_on_the_base_is_not_the_runs(repo, open_in):
    workspace = await begun(repo, open_in)
    await work(repo, workspace, 1)
    before = await workspace.observe()
    repo.git("switch", "-q", "main")
    repo.write("f2")
    repo.commit("by the agent, on the base")
    astray = await workspace.settle(before, iteration_num=2, message="m")
    assert (astray.commit, astray.left) == (None, ())
    assert "on branch main now" in astray.elsewhere
    before = await workspace.observe()
    repo.git("switch", "-q", "untildone/tidy-up")
    back = await workspace.settle(before, iteration_num=3, message="m")
    assert (back.commit, back.elsewhere) == (None, ""), "what was there before is no new work"


async def test_a_branch_that_leaves_out_the_runs_work_is_not_followed(repo, open_in):
    workspace = await begun(repo, open_in)
    await work(repo, workspace, 1)
    astray = await work(repo, workspace, 2, after=lambda: repo.git("switch", "-q", "-c", "other", "main"))
    assert "on branch other now" in astray.elsewhere
    assert repo.git("rev-parse", "other") == repo.git("rev-parse", "main")


async def test_a_branch_made_on_top_of_the_work_is_followed_by_later_drivers_too(repo, open_in):
    workspace = await begun(repo, open_in)
    await work(repo, workspace, 1)
    moved = await work(repo, workspace, 2, after=lambda: repo.git("switch", "-q", "-c", "feature"))
    assert (moved.tree.branch, moved.elsewhere) == ("feature", "")
    assert moved.commit == repo.git("rev-parse", "feature")
    repo.git("switch", "-q", "main")
    place = await (await open_in(repo)).prepare(Resumption(branch="feature", base="main"))
    assert (place.branch, place.base) == ("feature", "main")


async def test_commits_that_are_rewritten_on_the_runs_own_branch_are_fine(repo, open_in):
    workspace = await begun(repo, open_in)
    await work(repo, workspace, 1)
    amended = await work(repo, workspace, 2, after=lambda: repo.git("commit", "-q", "--amend", "-m", "better"))
    assert (amended.elsewhere, amended.commit) == ("", repo.git("rev-parse", "untildone/tidy-up"))


async def test_a_detached_head_is_not_the_runs_branch(repo, open_in):
    workspace = await begun(repo, open_in)
    await work(repo, workspace, 1)
    astray = await work(repo, workspace, 2, after=lambda: repo.git("switch", "-q", "--detach"))
    assert "on a detached HEAD" in astray.elsewhere


async def test_no_branch_for_an_iteration_is_begun_on_a_strange_one(repo, open_in):
    workspace = await begun(repo, open_in, branch_per="iteration")
    first = await workspace.begin_iteration(1)
    await work(repo, workspace, 1)
    repo.git("switch", "-q", "work")
    assert await workspace.begin_iteration(2) is None
    assert f"commits go to branch {first}" in (await workspace.look()).elsewhere
    place = await (await open_in(repo, branch_per="iteration")).prepare(Resumption(branch=first, base="main"))
    assert place.branch == first


async def test_a_branch_whose_name_has_a_line_separator_in_it_is_somebodys_too(repo, open_in):
    name = "a\u2028b"
    repo.git("branch", name)
    workspace = await begun(repo, open_in)
    await work(repo, workspace, 1)
    repo.git("branch", "-f", name)
    astray = await work(repo, workspace, 2, after=lambda: repo.git("switch", "-q", name))
    assert (astray.commit, astray.left) == (None, ("f2",))
