"""Taking a folder up again: what the run left there is its own, everything else is the human's."""

import pytest

from untildone.core.policy import Landing
from untildone.errors import DirtyWorkspace, LandingRefused, WorkspaceError
from untildone.ports import Resumption

pytestmark = pytest.mark.anyio


async def stopped(repo, open_in, **spec):
    """A run that made one commit and stopped in order."""
    repo.git("switch", "-q", "main")
    workspace = await open_in(repo, **spec)
    await workspace.prepare()
    before = await workspace.observe()
    repo.write("agents")
    await workspace.settle(before, iteration_num=1, message="m")
    return workspace


def known(**more) -> Resumption:
    return Resumption(branch="untildone/tidy-up", base="main", **more)


def everything(repo) -> tuple[str, ...]:
    index = (repo.path / ".git/index").read_bytes().hex()
    return repo.git("for-each-ref"), repo.git("status", "--porcelain"), repo.git("symbolic-ref", "HEAD"), index


async def test_what_a_human_left_uncommitted_is_refused_and_nothing_is_touched(repo, open_in):
    await (await stopped(repo, open_in)).leave()
    repo.git("switch", "-q", "main")
    repo.write("private.txt")
    repo.write("half.txt")
    repo.git("add", "half.txt")
    there = everything(repo)
    with pytest.raises(DirtyWorkspace, match=r"not this run's: half\.txt, private\.txt; .*`--dirty keep`") as caught:
        await (await open_in(repo)).prepare(known())
    assert caught.value.exit_code == 2
    assert everything(repo) == there


async def test_what_is_kept_is_saved_first_and_told(repo, open_in):
    await (await stopped(repo, open_in)).leave()
    repo.write("mine")
    place = await (await open_in(repo, keep_dirty=True)).prepare(known())
    ref = "refs/untildone/r1/found-1"
    assert place.lines[0] == (
        f"1 file of yours not committed yet: saved under {ref}; the next commit of this run will contain them"
    )
    assert repo.git("show", f"{ref}:mine") == "text"


async def test_half_done_work_is_the_runs_own_until_somebody_edits_it(repo, open_in):
    workspace = await stopped(repo, open_in)
    repo.write("half", "half\n")
    await workspace.snapshot(iteration_num=2, reason="stopped")
    await workspace.leave()
    assert (await (await open_in(repo)).prepare(known())).branch == "untildone/tidy-up"
    repo.git("switch", "-q", "main")
    assert (await (await open_in(repo)).prepare(known())).branch == "untildone/tidy-up", "carried along"
    repo.write("half", "by hand\n")
    with pytest.raises(DirtyWorkspace, match="not this run's: half;"):
        await (await open_in(repo)).prepare(known())


async def test_what_lies_there_when_the_driver_goes_is_the_runs_own(repo, open_in):
    workspace = await stopped(repo, open_in)
    repo.write("by-a-hook-of-the-users")
    assert await workspace.leave() == ""
    await (await open_in(repo)).prepare(known())
    repo.write("mine")
    with pytest.raises(DirtyWorkspace, match="not this run's: mine;"):
        await (await open_in(repo)).prepare(known())


async def test_a_run_goes_back_to_its_branch_from_any_other(repo, open_in):
    await (await stopped(repo, open_in)).leave()
    for place in ("work", "main"):
        repo.git("switch", "-q", place)
        assert (await (await open_in(repo)).prepare(known())).branch == "untildone/tidy-up"
        assert repo.git("branch", "--show-current") == "untildone/tidy-up"


async def test_what_keeps_git_from_going_back_is_told_in_its_own_words(repo, open_in):
    await (await stopped(repo, open_in)).leave()
    repo.git("switch", "-q", "main")
    repo.write("agents", "mine\n")
    with pytest.raises(WorkspaceError, match=r"cannot go back to this run's branch untildone/tidy-up .*: agents"):
        await (await open_in(repo, keep_dirty=True)).prepare(known())


async def test_a_visit_touches_nothing_and_goes_back_after_it_had_to_take_the_folder(repo, open_in):
    await (await stopped(repo, open_in)).leave()
    repo.git("switch", "-q", "main")
    repo.write("private.txt")
    there = everything(repo)
    workspace = await open_in(repo, landing=Landing(land="merge"))
    place = await workspace.prepare(known(visits=True))
    assert (place.branch, place.base, place.lines) == ("untildone/tidy-up", "main", ())
    assert await workspace.leave() == ""
    assert everything(repo) == there
    with pytest.raises(DirtyWorkspace):
        await workspace.prepare(known())
    (repo.path / "private.txt").unlink()
    await workspace.prepare(known())
    assert repo.git("branch", "--show-current") == "untildone/tidy-up"
    assert await workspace.leave() == f"{repo.path} is back on main"
    assert repo.git("branch", "--show-current") == "main"


# --- landings that can never work -------------------------------------------------------------------

MERGE = Landing(land="merge")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"landing": MERGE, "branch": False}, "the work would go straight to main, done or not"),
        ({"landing": Landing(land="pr"), "branch": False}, "the work would go straight to main, done or not"),
        ({"landing": Landing(land="merge", base="nosuch")}, "there is no branch nosuch to land on"),
        ({"landing": Landing(land="pr", base="nosuch")}, "there is no branch nosuch to land on"),
    ],
)
async def test_a_landing_that_can_never_work_is_refused_before_anything_begins(repo, open_in, spec, said):
    repo.git("switch", "-q", "main")
    there = everything(repo)
    with pytest.raises(LandingRefused, match=said) as caught:
        await (await open_in(repo, **spec)).prepare()
    assert caught.value.exit_code == 2
    assert everything(repo) == there
    assert "untildone" not in (repo.path / ".git/config").read_text()


async def test_without_git_or_without_a_commit_nothing_can_land(plain, open_in):
    with pytest.raises(LandingRefused, match="is no git repository, so --land merge has nothing to land on"):
        await (await open_in(plain, landing=MERGE)).prepare()
    plain.init()
    with pytest.raises(LandingRefused, match="has no commit yet"):
        await (await open_in(plain, landing=MERGE)).prepare()


async def test_without_branches_work_on_a_branch_of_the_users_may_land(repo, open_in):
    place = await (await open_in(repo, landing=MERGE, branch=False)).prepare()
    assert (place.branch, place.base) == ("work", "main")
