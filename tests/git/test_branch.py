"""Which branch a run's commits go to."""

import re

import pytest

from untildone.errors import WorkspaceError

pytestmark = pytest.mark.anyio


async def test_on_the_default_branch_a_run_branch_is_made(repo, open_in):
    repo.git("switch", "-q", "main")
    lines = await (await open_in(repo, name="Fix: the ~^ thing..")).prepare()
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


async def test_a_second_goal_on_the_branch_of_another_run_is_told(repo, open_in):
    repo.git("switch", "-q", "main")
    await (await open_in(repo)).prepare()
    [where, note] = await (await open_in(repo, run_id="r2", name="other")).prepare()
    assert where == "commits go to branch untildone/tidy-up"
    assert note == (
        "untildone/tidy-up is the branch of another run (r1): this run's commits go on top of that run's; "
        "for a branch of its own, switch to the default branch before you start it"
    )
    assert await (await open_in(repo)).prepare() == ["commits go to branch untildone/tidy-up"]


async def test_a_resumed_run_stays_on_its_branch_and_comes_back_to_it(repo, open_in):
    repo.git("switch", "-q", "main")
    await (await open_in(repo)).prepare()
    assert await (await open_in(repo)).prepare() == ["commits go to branch untildone/tidy-up"]
    repo.git("switch", "-q", "main")
    assert await (await open_in(repo)).prepare() == ["back on this run's branch untildone/tidy-up (from main)"]
    assert repo.git("branch", "--show-current") == "untildone/tidy-up"
    repo.git("switch", "-q", "main")
    repo.git("branch", "-q", "-D", "untildone/tidy-up")
    assert await (await open_in(repo)).prepare() == ["commits go to the new branch untildone/tidy-up (from main)"]


async def test_the_remotes_head_says_which_branch_is_the_default(repo, open_in):
    repo.git("update-ref", "refs/remotes/origin/work", "HEAD")
    repo.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/work")
    assert "untildone/tidy-up (from work)" in (await (await open_in(repo)).prepare())[0]
    repo.git("switch", "-q", "main")
    assert await (await open_in(repo, run_id="r2")).prepare() == ["commits go to branch main"]


async def test_a_configured_default_branch_counts(repo, open_in):
    repo.git("config", "init.defaultBranch", "work")
    assert "(from work)" in (await (await open_in(repo)).prepare())[0]


@pytest.mark.parametrize("spec", [{"branch": False}, {"commit": False}])
async def test_no_branch_when_not_asked_for_or_nothing_is_committed(repo, open_in, spec):
    repo.git("switch", "-q", "main")
    await (await open_in(repo, **spec)).prepare()
    assert repo.git("branch", "--show-current") == "main"


async def test_detached_head_stays_and_is_told(repo, open_in):
    repo.git("switch", "-q", "--detach")
    workspace = await open_in(repo)
    lines = await workspace.prepare()
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
