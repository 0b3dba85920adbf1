"""Repositories and neighbours that are not as one expects them: each has a behaviour, and it is told."""

import asyncio
import os
import sys

import pytest

from untildone.git.repository import open_repository
from untildone.git.unfit import LARGE, TOO_LARGE

pytestmark = pytest.mark.anyio

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 5\n"


async def begun(project, open_in, **spec):
    workspace = await open_in(project, **spec)
    await workspace.prepare()
    return workspace, await workspace.observe()


def sparse(project, name: str, size: int) -> None:
    """A file that is large and costs no disk."""
    with (project.path / name).open("wb") as file:
        file.truncate(size)


# --- filters that are not installed ----------------------------------------------------------------


@pytest.fixture
def without_lfs(repo):
    """Git-lfs was set up for this repository on another machine."""
    repo.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    repo.write("a.bin", POINTER % "aaa")
    repo.commit("with a pointer")
    for key, value in (
        ("clean", "no-such-git-lfs clean -- %f"),
        ("smudge", "no-such-git-lfs smudge -- %f"),
        ("process", "no-such-git-lfs filter-process"),
        ("required", "true"),
    ):
        repo.git("config", f"filter.lfs.{key}", value)
    return repo


async def test_pointers_are_committed_as_they_are_although_git_lfs_is_missing(without_lfs, open_in):
    workspace, before = await begun(without_lfs, open_in)
    without_lfs.write("a.bin", POINTER % "bbb")
    without_lfs.write("code")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert (settled.warning, settled.left, settled.files_changed) == ("", (), 2)
    assert without_lfs.git("show", "HEAD:a.bin") == (POINTER % "bbb").strip()


async def test_a_plain_file_that_needs_a_missing_filter_is_held_back_and_the_rest_is_committed(without_lfs, open_in):
    workspace, before = await begun(without_lfs, open_in)
    without_lfs.write("raw.bin", "not a pointer\n")
    without_lfs.write("code")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.warning == (
        "not committed: raw.bin, because the filter lfs that .gitattributes asks for is not installed"
    )
    assert settled.left == ("raw.bin",)
    assert without_lfs.git("show", "--format=", "--name-only", settled.commit) == "code"
    assert (without_lfs.path / "raw.bin").read_text() == "not a pointer\n"


async def test_a_filter_that_is_there_stays_on(repo, private):
    repo.git("config", "filter.up.clean", "tr a-z A-Z")
    repo.git("config", "filter.odd.clean", "f() { cat; }; f")
    assert (await open_repository(repo.path, private=private)).missing_filters == frozenset()


# --- large files -----------------------------------------------------------------------------------


async def test_a_large_file_is_committed_and_named(repo, open_in):
    workspace, before = await begun(repo, open_in)
    sparse(repo, "big", LARGE)
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.warning == "large files were committed: big (50 MB); git-lfs is the place for them"
    assert (settled.commit, settled.left) == (repo.git("rev-parse", "HEAD"), ())


async def test_a_file_no_forge_takes_is_held_back_with_what_to_do_and_the_rest_is_committed(repo, open_in):
    workspace, before = await begun(repo, open_in)
    sparse(repo, "huge", TOO_LARGE)
    repo.write("code")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.warning == (
        "not committed: huge (100 MB), and forges refuse files of more than 100 MB; "
        "delete them, add them to .gitignore, or let git-lfs track them"
    )
    assert settled.left == ("huge",)
    assert repo.git("show", "--format=", "--name-only", "HEAD") == "code"
    assert repo.git("ls-tree", "-r", "--name-only", settled.snapshot) == "README.md\ncode"
    again = await workspace.settle(settled.tree, iteration_num=2, message="m")
    assert (again.commit, again.left, again.warning) == (None, ("huge",), settled.warning)
    repo.write(".gitignore", "huge\n")
    mended = await workspace.settle(again.tree, iteration_num=3, message="m")
    assert (mended.left, mended.warning) == ((), "")
    assert (repo.path / "huge").stat().st_size == TOO_LARGE


async def test_a_large_file_behind_a_filter_that_works_is_nothing_special(repo, open_in):
    repo.write(".gitattributes", "*.bin filter=small\n")
    repo.git("config", "filter.small.clean", "wc -c")
    repo.commit()
    workspace, before = await begun(repo, open_in)
    sparse(repo, "huge.bin", TOO_LARGE)
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert (settled.warning, settled.left) == ("", ())
    assert repo.git("show", "HEAD:huge.bin") == str(TOO_LARGE)


# --- submodules ------------------------------------------------------------------------------------


async def test_a_submodule_that_moved_is_committed_and_its_own_work_is_not_touched(repo, open_in, tmp_path):
    other = type(repo)(tmp_path / "other")
    other.init()
    other.write("lib")
    other.commit()
    repo.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.path), "sub")
    repo.commit("with submodule")
    module = type(repo)(repo.path / "sub")
    workspace, before = await begun(repo, open_in)
    module.git("config", "user.name", "Ada")
    module.git("config", "user.email", "ada@example.org")
    module.write("lib", "moved on\n")
    moved = module.commit()
    module.write("uncommitted")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert (settled.changed, settled.files_changed, settled.left) == (True, 1, ())
    assert repo.git("ls-tree", "HEAD", "sub").split()[2] == moved
    assert module.git("status", "--porcelain") == "?? uncommitted"


# --- files that are hard to add --------------------------------------------------------------------


async def test_a_file_that_vanishes_while_it_is_added_does_not_keep_the_others_out(repo, open_in):
    repo.write(".gitattributes", "a filter=thief\n")
    repo.git("config", "filter.thief.clean", "rm -f b; cat")
    repo.commit()
    workspace, before = await begun(repo, open_in)
    for name in ("a", "b", "c"):
        repo.write(name)
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert (settled.warning, settled.left) == ("", ())
    assert repo.git("show", "--format=", "--name-only", "HEAD") == "a\nc"


async def test_files_that_come_and_go_all_the_time(repo, open_in):
    workspace, before = await begun(repo, open_in)
    repo.write("work")
    script = "import os,sys\nwhile True:\n for n in range(50):\n  open(f'tmp{n}','w').close()\n  os.remove(f'tmp{n}')"
    busy = await asyncio.create_subprocess_exec(sys.executable, "-c", script, cwd=repo.path)
    try:
        for number in range(1, 6):
            settled = await workspace.settle(before, iteration_num=number, message="m")
            before = settled.tree
    finally:
        busy.kill()
        await busy.wait()
    assert "work" in repo.git("ls-tree", "--name-only", "HEAD")


async def test_read_only_files_and_names_that_differ_only_in_case(repo, open_in):
    workspace, before = await begun(repo, open_in)
    for name in ("Name", "name", "NAME"):
        repo.write(name, name).chmod(0o444)
    (repo.path / "locked").mkdir()
    repo.write("locked/file")
    (repo.path / "locked").chmod(0o555)
    settled = await workspace.settle(before, iteration_num=1, message="m")
    (repo.path / "locked").chmod(0o755)
    assert (settled.warning, settled.left) == ("", ())
    assert {repo.git("show", f"HEAD:{name}") for name in ("Name", "name", "NAME")} == {"Name", "name", "NAME"}
    assert (repo.path / "name").stat().st_mode & 0o777 == 0o444


async def test_a_file_outside_of_a_sparse_checkout_is_work_too_and_what_is_not_checked_out_stays(repo, open_in):
    for name in ("web/x", "app/y"):
        repo.write(name)
    repo.commit()
    repo.git("sparse-checkout", "set", "--no-cone", "/app/")
    workspace, before = await begun(repo, open_in)
    repo.write("work", "outside\n")
    repo.write("app/y", "inside\n")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert (settled.warning, settled.left, settled.files_changed) == ("", (), 2)
    assert repo.git("show", "--format=", "--name-only", "HEAD").split() == ["app/y", "work"]
    assert repo.git("status", "--porcelain") == ""
    assert not (repo.path / "web").exists()


# --- somebody else is at work too ------------------------------------------------------------------


async def test_a_human_commits_on_the_same_branch_meanwhile(repo, open_in):
    workspace, before = await begun(repo, open_in)
    repo.write("agents")
    repo.write("humans")
    repo.git("add", "humans")
    repo.git("commit", "-q", "-m", "of the human")
    settled = await workspace.settle(before, iteration_num=1, message="of the loop")
    assert repo.git("log", "--format=%s") == "of the loop\nof the human\nfirst"
    assert (settled.files_changed, settled.left) == (2, ())
    assert settled.commit == repo.git("rev-parse", "HEAD") == repo.git("rev-parse", "refs/untildone/r1/1")


async def test_a_human_commits_on_another_branch_meanwhile(repo, open_in, tmp_path):
    repo.git("worktree", "add", "-q", str(tmp_path / "theirs"), "main")
    theirs = type(repo)(tmp_path / "theirs")
    workspace, before = await begun(repo, open_in)
    repo.write("agents")
    theirs.write("humans")
    committed = theirs.commit("of the human")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert (settled.by, settled.files_changed, settled.warning) == ("loop", 1, "")
    assert repo.git("rev-parse", "main") == committed


async def test_what_a_human_stages_meanwhile_goes_into_the_commit_as_it_is_in_the_tree(repo, open_in):
    workspace, before = await begun(repo, open_in)
    repo.write("README.md", "staged\n")
    repo.git("add", "README.md")
    repo.write("README.md", "staged, and more\n")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.left == ()
    assert repo.git("show", "HEAD:README.md") == "staged, and more"


async def test_a_human_switches_branch_meanwhile(repo, open_in):
    workspace, before = await begun(repo, open_in)
    repo.write("agents")
    repo.git("switch", "-q", "main")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.elsewhere == (
        "the folder is on branch main now, this run's commits go to branch work: "
        "nothing is committed before `git switch work`"
    )
    assert (settled.commit, settled.left) == (None, ("agents",))
    assert repo.git("log", "-1", "--format=%s", "main") == "first"
    assert repo.git("show", f"{settled.snapshot}:agents") == "text"


# --- nothing of the user's is touched --------------------------------------------------------------


def everything(project, *, without: str = "refs/untildone/") -> dict[str, object]:
    """All refs, the index, the stash and every file, byte for byte."""
    refs = project.git("for-each-ref", "--format=%(refname) %(objectname)").split("\n")
    git_dir = project.path / ".git"
    return {
        "refs": [ref for ref in refs if not ref.startswith(without)],
        "index": (git_dir / "index").read_bytes(),
        "HEAD": (git_dir / "HEAD").read_bytes(),
        "stash": project.git("stash", "list", "-p"),
        "reflogs": {str(p): p.read_bytes() for p in (git_dir / "logs").rglob("*") if p.is_file()},
        "files": {
            os.fsencode(p): (p.lstat().st_mode, p.lstat().st_mtime_ns, b"" if p.is_symlink() else p.read_bytes())
            for p in project.path.rglob("*")
            if ".git" not in p.relative_to(project.path).parts and (p.is_symlink() or p.is_file())
        },
    }


@pytest.fixture
def lived_in(repo, tmp_path):
    """Branches, tags, a stash, a remote, staged, unstaged, untracked and ignored files."""
    bare = tmp_path / "bare.git"
    repo.git("init", "-q", "--bare", str(bare))
    repo.git("remote", "add", "origin", str(bare))
    repo.git("push", "-q", "origin", "main")
    repo.git("tag", "-a", "v1", "-m", "one")
    repo.write("README.md", "stashed\n")
    repo.write("stashed too")
    repo.git("stash", "push", "-q", "-u")
    repo.write(".gitignore", "ignored\n")
    repo.commit("ignore")
    repo.write("README.md", "staged\n")
    repo.git("add", "README.md")
    repo.write("README.md", "staged and changed\n")
    repo.write("untracked")
    repo.write("ignored")
    (repo.path / "link").symlink_to("nowhere")
    return repo


async def run(project, open_in, folder, **spec) -> None:
    """What the engine does with a workspace, for three iterations and a fault."""
    workspace = await open_in(project, cwd=folder, **spec)
    await workspace.prepare()
    for number in (1, 2, 3):
        await workspace.begin_iteration(number)
        before = await workspace.observe()
        (folder / "agents").write_text(f"{number}\n")
        await workspace.look()
        settled = await workspace.settle(before, iteration_num=number, message="m")
        assert (settled.snapshot, settled.warning) == (f"refs/untildone/r1/{number}", "")
        await workspace.snapshot(iteration_num=number, reason="a fault")
    (folder / "agents").unlink()


async def test_a_run_without_commits_touches_nothing_of_the_users(lived_in, open_in):
    lived_in.write(".git/info/exclude", "/SHARED_TASK_NOTES.md\n")
    before = everything(lived_in)
    await run(lived_in, open_in, lived_in.path, commit=False, keep_dirty=True)
    assert everything(lived_in) == before
    assert "refs/untildone/r1/start" in lived_in.git("for-each-ref")


@pytest.mark.parametrize("branch_per", ["iteration", pytest.param("run", marks=pytest.mark.soak)])
async def test_a_run_in_a_worktree_touches_nothing_of_the_users(lived_in, open_in, tmp_path, private, branch_per):
    from untildone.git.worktrees import add

    repository = await open_repository(lived_in.path, private=private)
    before = everything(lived_in)
    tree = await add(repository, "untildone/apart", base="main")
    work = type(lived_in)(tree.path)
    await run(lived_in, open_in, tree.path, branch_per=branch_per, keep_dirty=True)
    assert work.git("log", "-1", "--format=%s") == "m"
    after = everything(lived_in)
    own = "refs/heads/untildone/"
    assert [ref for ref in after["refs"] if not ref.startswith(own)] == before["refs"]
    logs = {path: text for path, text in after["reflogs"].items() if "/heads/untildone/" not in path}
    assert {**after, "refs": before["refs"], "reflogs": logs} == before
