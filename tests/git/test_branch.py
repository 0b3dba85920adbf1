"""Which branch a run's commits go to."""

import re

import pytest

from untildone.core.policy import Landing
from untildone.errors import WorkspaceError

pytestmark = pytest.mark.anyio


async def test_on_the_default_branch_a_run_branch_is_made(repo, open_in, told):
    repo.git("switch", "-q", "main")
    lines = await told(await open_in(repo, name="Fix: the ~^ thing.."))
    assert lines == ["commits go to the new branch untildone/Fix-the-thing (from main)"]
    assert repo.git("branch", "--show-current") == "untildone/Fix-the-thing"


async def test_a_taken_branch_name_gets_a_number(repo, open_in):
    repo.git("switch", "-q", "main")
    repo.git("branch", "untildone/tidy-up")
    repo.git("branch", "untildone/tidy-up-2")
    await (await open_in(repo)).prepare()
    assert repo.git("branch", "--show-current") == "untildone/tidy-up-3"


@pytest.mark.parametrize("letter", ["x", "\u00fc", "\U00020000"])
async def test_a_very_long_name_gives_a_branch_of_its_own(repo, open_in, letter):
    repo.git("switch", "-q", "main")
    await (await open_in(repo, name=letter * 300)).prepare()
    first = repo.git("branch", "--show-current")
    repo.git("switch", "-q", "main")
    await (await open_in(repo, run_id="r2", name=letter * 301)).prepare()
    second = repo.git("branch", "--show-current")
    for branch in (first, second):
        assert re.fullmatch(rf"untildone/{letter}+-[0-9a-f]{{4}}", branch)
        assert len(branch.encode()) <= 120
    assert first != second


async def test_a_second_goal_on_the_branch_of_another_run_is_told(repo, open_in, told):
    repo.git("switch", "-q", "main")
    await (await open_in(repo)).prepare()
    repo.write("of-the-first")
    repo.commit()
    [where, note] = await told(await open_in(repo, run_id="r2", name="other"))
    assert where == "commits go to branch untildone/tidy-up"
    assert note == (
        "untildone/tidy-up is the branch of another run (r1): this run's commits go on top of that run's; "
        "for a branch of its own, switch to the default branch before you start it"
    )
    assert (await told(await open_in(repo)))[0] == "commits go to branch untildone/tidy-up"


async def test_a_resumed_run_stays_on_its_branch_and_comes_back_to_it(repo, open_in, told):
    repo.git("switch", "-q", "main")
    await (await open_in(repo)).prepare()
    assert await told(await open_in(repo)) == ["commits go to branch untildone/tidy-up"]
    repo.git("switch", "-q", "main")
    assert await told(await open_in(repo)) == ["back on this run's branch untildone/tidy-up (from main)"]
    assert repo.git("branch", "--show-current") == "untildone/tidy-up"
    repo.git("switch", "-q", "main")
    repo.git("branch", "-q", "-D", "untildone/tidy-up")
    assert await told(await open_in(repo)) == ["commits go to the new branch untildone/tidy-up (from main)"]


async def test_the_remotes_head_says_which_branch_is_the_default(repo, open_in, told):
    repo.git("update-ref", "refs/remotes/origin/work", "HEAD")
    repo.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/work")
    assert "untildone/tidy-up (from work)" in (await told(await open_in(repo)))[0]
    repo.git("switch", "-q", "main")
    assert await told(await open_in(repo, run_id="r2")) == ["commits go to branch main"]


async def test_a_configured_default_branch_counts(repo, open_in, told):
    repo.git("config", "init.defaultBranch", "work")
    assert "(from work)" in (await told(await open_in(repo)))[0]


@pytest.mark.parametrize("spec", [{"branch": False}, {"commit": False}])
async def test_no_branch_when_not_asked_for_or_nothing_is_committed(repo, open_in, spec):
    repo.git("switch", "-q", "main")
    await (await open_in(repo, **spec)).prepare()
    assert repo.git("branch", "--show-current") == "main"


async def test_detached_head_stays_and_is_told(repo, open_in, told):
    repo.git("switch", "-q", "--detach")
    workspace = await open_in(repo)
    lines = await told(workspace)
    assert lines[0].startswith(f"HEAD is detached at {repo.git('rev-parse', 'HEAD')[:10]}: commits go there")
    before = await workspace.observe()
    repo.write("a")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.commit == repo.git("rev-parse", "HEAD")
    assert settled.tree.branch is None


async def test_a_branch_that_cannot_be_made_is_one_clear_line(repo, open_in):
    repo.git("switch", "-q", "main")
    repo.git("branch", "untildone")
    with pytest.raises(WorkspaceError, match="git switch failed"):
        await (await open_in(repo)).prepare()


# --- the branch the work is meant for ---------------------------------------------------------------


async def place_of(workspace):
    prepared = await workspace.prepare()
    return prepared.branch, prepared.base


async def test_the_branch_that_was_checked_out_is_the_base_also_after_a_resume(repo, open_in):
    repo.git("switch", "-q", "main")
    assert await place_of(await open_in(repo)) == ("untildone/tidy-up", "main")
    assert await place_of(await open_in(repo)) == ("untildone/tidy-up", "main")
    repo.git("branch", "-q", "-m", "main", "trunk")
    assert await place_of(await open_in(repo)) == ("untildone/tidy-up", "main")


async def test_work_on_a_branch_of_the_users_is_meant_for_the_default_branch(repo, open_in):
    assert await place_of(await open_in(repo)) == ("work", "main")
    assert await place_of(await open_in(repo, landing=Landing(land="pr"))) == ("work", "main")
    repo.git("branch", "-q", "-D", "main")
    assert await place_of(await open_in(repo)) == ("work", None)


async def test_what_is_merged_here_gets_a_branch_wherever_it_starts(repo, open_in):
    spec = {"landing": Landing(land="merge")}
    assert await place_of(await open_in(repo, **spec)) == ("untildone/tidy-up", "work")
    repo.git("switch", "-q", "work")
    assert await place_of(await open_in(repo, **spec)) == ("untildone/tidy-up", "work")


async def test_a_base_that_was_named_counts_before_all_others(repo, open_in):
    repo.git("branch", "release")
    repo.git("switch", "-q", "main")
    spec = {"landing": Landing(base="release")}
    assert await place_of(await open_in(repo, **spec)) == ("untildone/tidy-up", "release")
    assert await place_of(await open_in(repo, landing=Landing(base="work"))) == ("untildone/tidy-up", "work")
    repo.git("switch", "-q", "release")
    assert await place_of(await open_in(repo, run_id="r2", name="two", **spec)) == ("untildone/two", "release")


async def test_without_a_branch_of_its_own_base_and_branch_are_the_same(repo, open_in):
    repo.git("switch", "-q", "main")
    assert await place_of(await open_in(repo, branch=False)) == ("main", "main")


async def test_detached_without_commits_and_without_git(repo, plain, open_in, tmp_path):
    repo.git("switch", "-q", "--detach")
    assert await place_of(await open_in(repo)) == (None, "main")
    new = type(repo)(tmp_path / "new")
    new.init()
    prepared = await (await open_in(new)).prepare()
    assert (prepared.branch, prepared.base) == ("main", None)
    assert prepared.start == new.git("rev-parse", "refs/untildone/r1/start")
    folder = type(repo)(tmp_path / "folder")
    folder.write("a")
    prepared = await (await open_in(folder)).prepare()
    assert (prepared.branch, prepared.base) == (None, None)
    assert re.fullmatch("[0-9a-f]{40}", prepared.start)


async def test_the_start_is_the_tree_with_the_users_own_work(repo, open_in):
    repo.write("mine")
    prepared = await (await open_in(repo, keep_dirty=True)).prepare()
    assert repo.git("show", f"{prepared.start}:mine") == "text"
    repo.write("more")
    assert (await (await open_in(repo, keep_dirty=True)).prepare()).start == prepared.start
