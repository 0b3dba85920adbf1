"""Taking a folder up again: what the run left there is its own, everything else is the human's."""

import subprocess

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


# --- after the work has landed ----------------------------------------------------------------------


def squashed(repo, branch: str = "untildone/tidy-up") -> str:
    """What a landing by squash makes of a branch, on a base that is checked out nowhere."""
    tree = repo.git("rev-parse", f"{branch}^{{tree}}")
    merged = repo.git("commit-tree", tree, "-p", "main", "-m", "squashed")
    repo.git("update-ref", "refs/heads/main", merged)
    return merged


async def test_a_landed_run_leaves_the_folder_on_its_base(repo, open_in):
    workspace = await stopped(repo, open_in, landing=MERGE)
    merged = squashed(repo)
    assert await workspace.leave(landed=True) == ""
    assert (repo.git("branch", "--show-current"), repo.git("rev-parse", "HEAD")) == ("main", merged)
    assert repo.git("status", "--porcelain") == ""
    assert "untildone/tidy-up" in repo.git("branch"), "a branch that was merged here is kept"


async def test_a_folder_with_work_in_the_way_stays_where_it_is_and_one_line_says_so(repo, open_in):
    workspace = await stopped(repo, open_in, landing=MERGE)
    squashed(repo)
    repo.write("theirs", "on the base\n")
    blob = repo.git("hash-object", "-w", "theirs")
    with_file = f"100644 blob {blob}\ttheirs\n" + repo.git("ls-tree", "main") + "\n"
    tree = subprocess.run(["git", "mktree"], cwd=repo.path, input=with_file, text=True, capture_output=True, check=True)
    repo.git("update-ref", "refs/heads/main", repo.git("commit-tree", tree.stdout.strip(), "-p", "main", "-m", "more"))
    repo.write("theirs", "a human's, not committed\n")
    line = await workspace.leave(landed=True)
    assert line.startswith(f"{repo.path} stays on untildone/tidy-up: git cannot switch to main: ")
    assert line.endswith("theirs")
    assert (repo.path / "theirs").read_text() == "a human's, not committed\n"
    assert repo.git("branch", "--show-current") == "untildone/tidy-up"


@pytest.mark.parametrize(
    ("doing", "there", "said"),
    [
        (lambda repo: repo.git("switch", "-q", "work"), "work", ""),
        (
            lambda repo: repo.write("late") and repo.commit(),
            "untildone/tidy-up",
            "it has commits that main does not have",
        ),
    ],
    ids=["a human has switched", "something came after"],
)
async def test_a_landed_run_takes_no_folder_away_from_other_work(repo, open_in, doing, there, said):
    workspace = await stopped(repo, open_in, landing=MERGE)
    squashed(repo)
    doing(repo)
    assert (await workspace.leave(landed=True)).endswith(said)
    assert repo.git("branch", "--show-current") == there


@pytest.mark.parametrize(
    ("there", "is_left"),
    [("", False), ("on the remote", True), ("not merged", True), ("kept", True)],
    ids=["gone there and merged", "the remote has it still", "not all of it is merged", "--keep-branch"],
)
async def test_a_branch_of_a_pull_request_goes_when_it_is_gone_on_the_remote_and_merged(repo, open_in, there, is_left):
    workspace = await stopped(repo, open_in, landing=Landing(land="pr", delete_branch=there != "kept"))
    if there != "not merged":
        squashed(repo)
    if there == "on the remote":
        repo.git("update-ref", "refs/remotes/origin/untildone/tidy-up", "HEAD")
    repo.git("branch", "untildone/another", "main")
    await workspace.leave(landed=True)
    names = repo.git("branch", "--format=%(refname:short)").split()
    assert ("untildone/tidy-up" in names) is is_left
    assert {"main", "work", "untildone/another"} <= {*names}
    known = repo.git("config", "--get-regexp", r"^branch\.") if is_left else repo.git("config", "-l")
    assert ("untildone/tidy-up" in known) is is_left


@pytest.mark.parametrize("strategy", ["squashed", "merged", "elsewhere checked out"])
async def test_the_next_run_begins_at_the_base_that_has_the_last_ones_work(repo, open_in, strategy):
    """Also where the folder could not be brought there, or the last driver died before it could."""
    await stopped(repo, open_in, landing=MERGE)
    if strategy == "merged":
        repo.git("update-ref", "refs/heads/main", repo.git("rev-parse", "HEAD"))
        base = repo.git("rev-parse", "main")
    else:
        base = squashed(repo)
    if strategy == "elsewhere checked out":
        repo.git("worktree", "add", "-q", str(repo.path.parent / "users"), "main")
    place = await (await open_in(repo, run_id="r2", name="next", landing=MERGE)).prepare()
    assert (place.branch, place.base) == ("untildone/next", "main")
    assert repo.git("rev-parse", "HEAD") == base
    assert place.lines[0] == "commits go to the new branch untildone/next (from main)"


# --- what people change while the run is stopped ----------------------------------------------------


@pytest.mark.parametrize(
    ("by_run", "by_human", "compared_with"),
    [
        ({"a": "run\n"}, {}, None),
        ({"a": "run\n"}, {"b": "human\n"}, {"a": "a\n", "b": "human\n"}),
        ({"a": "run\n"}, {"b": None, "c": "new\n"}, {"a": "a\n", "c": "new\n"}),
        ({"a": "run\n"}, {"a": "human\n"}, {"a": "human\n", "b": "b\n"}),
        ({"a": None}, {"b": "human\n"}, {"a": "a\n", "b": "human\n"}),
        ({"new": "run\n"}, {"new": None}, None),
    ],
    ids=["nothing", "another file", "deleted and added", "the same file", "beside a deletion", "took it back"],
)
async def test_what_people_change_meanwhile_is_no_change_of_the_runs(repo, open_in, by_run, by_human, compared_with):
    repo.git("switch", "-q", "main")
    repo.git("rm", "-q", "-r", ".")
    repo.write("a", "a\n")
    repo.write("b", "b\n")
    repo.commit()
    workspace = await open_in(repo)
    start = (await workspace.prepare()).start
    before = await workspace.observe()
    change(repo, by_run)
    await workspace.settle(before, iteration_num=1, message="m")
    left = await workspace.left()
    await workspace.leave()
    if by_human:
        change(repo, by_human)
        repo.commit()
    found = (await (await open_in(repo)).prepare(known(left=left, judged_from=start))).judged_from
    told = {}
    for name in repo.git("ls-tree", "--name-only", found).split() if found else ():
        told[name] = repo.git("show", f"{found}:{name}") + "\n"
    assert (told or None) == compared_with
    died = known(left=left, judged_from=start, broken_off=True)
    assert (await (await open_in(repo)).prepare(died)).judged_from is None, "nobody can tell whose it is"


def change(repo, files) -> None:
    for name, text in files.items():
        repo.write(name, text) if text is not None else (repo.path / name).unlink()
