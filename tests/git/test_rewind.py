"""Back to the tree of an earlier iteration, byte for byte; and the same tree elsewhere."""

import os
import stat
from pathlib import Path

import pytest

from untildone.errors import WorkspaceError
from untildone.git.repository import open_repository
from untildone.git.rewind import fork, rewind
from untildone.git.snapshot import saved_states, state_after

pytestmark = pytest.mark.anyio

REF = "refs/untildone/r1"


def files(top: Path) -> dict[str, tuple[str, bool, bytes]]:
    """Every file: its kind, whether it may be executed, its bytes. Without what git keeps."""
    found = {}
    for path in top.rglob("*"):
        name, mode = str(path.relative_to(top)), path.lstat().st_mode
        if ".git" in path.relative_to(top).parts:
            continue
        if stat.S_ISLNK(mode):
            found[name] = ("link", False, os.fsencode(path.readlink()))
        elif stat.S_ISREG(mode):
            found[name] = ("file", bool(mode & stat.S_IXUSR), path.read_bytes())
    return found


def state(project) -> dict[str, object]:
    return {
        "files": files(project.path),
        "status": project.git("status", "--porcelain=v2", "-z", "-uall", "--branch"),
        "index": project.git("ls-files", "-s", "-z"),
        "branch": project.git("branch", "--show-current"),
    }


def odd_things(project, text: str) -> None:
    """All that a tree may hold besides plain text files."""
    (project.path / "tool").write_text(f"#!/bin/sh\necho {text}\n")
    (project.path / "tool").chmod(0o755)
    (project.path / "empty").write_bytes(b"")
    (project.path / "binary").write_bytes(bytes(range(256)) + text.encode())
    for name in ("with space", "new\nline", "ünï☃", "-dash", 'quo"te', "sub/[x]*?", os.fsdecode(b"bad\xff"), ":(top)x"):
        project.write(name, text)
    link = project.path / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(f"nowhere/{text}")
    folder = project.path / "to-folder"
    folder.unlink(missing_ok=True)
    folder.symlink_to("sub")


async def iterate(workspace, number: int):
    before = await workspace.observe()

    async def settle(**named):
        return await workspace.settle(before, iteration_num=number, message=f"iteration {number}", **named)

    return settle


async def go_back(project, private, number: int, **named):
    repository = await open_repository(project.path, private=private)
    target = state_after(await saved_states(repository, "r1"), number)
    assert target is not None
    return await rewind(repository, "r1", target, **named)


@pytest.mark.parametrize("commit", [True, pytest.param(False, marks=pytest.mark.soak)])
async def test_every_iteration_can_be_gone_back_to_exactly_and_forth_again(repo, open_in, private, commit):
    repo.write(".gitignore", "ignored\n")
    repo.commit()
    workspace = await open_in(repo, commit=commit)
    await workspace.prepare()
    seen = {0: state(repo)}
    for number in (1, 2, 3, 4):
        settle = await iterate(workspace, number)
        if number == 1:
            odd_things(repo, "one")
        elif number == 2:
            odd_things(repo, "two")
            (repo.path / "README.md").unlink()
            (repo.path / "tool").chmod(0o644)
        elif number == 3:
            for name in ("empty", "link", "sub/[x]*?", "new\nline"):
                (repo.path / name).unlink()
            repo.write("sub/now/deeper")
            repo.write("link/is/a/folder/now")
        else:
            repo.git("mv", "-f", ".gitignore", "moved") if commit else repo.write("README.md", "back\n")
        await settle()
        seen[number] = state(repo)
    repo.write("ignored", "mine\n")
    for number in (2, 0, 4, 1, 3):
        went = await go_back(repo, private, number)
        kept = {**state(repo), "files": {k: v for k, v in files(repo.path).items() if k != "ignored"}}
        expected = seen[number]
        if commit and number == 4:  # what was ignored is not any more
            kept["status"], expected = kept["status"].replace("? ignored\0", ""), seen[4]
        assert kept == expected, number
        assert (repo.path / "ignored").read_text() == "mine\n"
        assert went.saved in repo.git("for-each-ref")
    assert repo.git("for-each-ref", "--format=%(refname)", f"{REF}/before-rewind-*").split() == [
        f"{REF}/before-rewind-{number}" for number in range(1, 6)
    ]


async def test_what_is_there_is_saved_first_commits_index_and_untracked_files(repo, open_in, private):
    workspace = await open_in(repo)
    await workspace.prepare()
    settle = await iterate(workspace, 1)
    repo.write("a")
    await settle()
    repo.write("b")
    by_hand = repo.commit("by hand")
    repo.write("a", "staged\n")
    repo.git("add", "a")
    repo.write("a", "unstaged\n")
    repo.write("new")
    went = await go_back(repo, private, 1, branch="work")
    assert (went.saved, went.branch) == (f"{REF}/before-rewind-1", "work")
    assert repo.git("rev-parse", f"{went.saved}^1") == by_hand
    assert [repo.git("show", f"{went.saved}:{name}") for name in ("a", "b", "new")] == ["unstaged", "text", "text"]
    assert repo.git("show", f"{went.saved}^2:a") == "staged"
    assert repo.git("log", "--format=%s") == "iteration 1\nfirst"
    assert repo.git("status", "--porcelain") == ""
    assert sorted(path.name for path in repo.path.iterdir()) == [".git", "README.md", "a"]


async def test_a_rewound_run_goes_on_without_being_told_about_lost_commits(repo, open_in, private, told):
    workspace = await open_in(repo)
    await workspace.prepare()
    for number in (1, 2):
        settle = await iterate(workspace, number)
        repo.write("a", f"{number}\n")
        await settle()
    await go_back(repo, private, 1)
    assert await told(await open_in(repo)) == ["commits go to branch work"]
    await go_back(repo, private, 2)
    assert await told(await open_in(repo)) == ["commits go to branch work"]
    await go_back(repo, private, 1)
    workspace = await open_in(repo)
    assert await told(workspace) == ["commits go to branch work"]
    settle = await iterate(workspace, 3)
    repo.write("a", "3\n")
    settled = await settle()
    assert (settled.snapshot, settled.warning) == (f"{REF}/3", "")


@pytest.mark.parametrize("named_in", ["environment", "configuration"])
async def test_whoever_the_user_commits_as_nothing_of_ours_gets_on_a_branch(
    repo, open_in, private, monkeypatch, named_in
):
    if named_in == "environment":
        monkeypatch.setenv("GIT_COMMITTER_EMAIL", "me@example.org")
    else:
        repo.git("config", "committer.email", "me@example.org")
    head = repo.git("rev-parse", "HEAD")
    workspace = await open_in(repo, commit=False)
    await workspace.prepare()
    for number in (1, 2):
        settle = await iterate(workspace, number)
        repo.write("new", f"{number}\n")
        await settle()
    await go_back(repo, private, 1)
    assert (repo.path / "new").read_text() == "1\n"
    assert (repo.git("rev-parse", "HEAD"), repo.git("status", "--porcelain").strip()) == (head, "?? new")


async def test_an_iteration_that_changed_nothing_is_the_one_before(repo, open_in, private):
    workspace = await open_in(repo)
    await workspace.prepare()
    settle = await iterate(workspace, 1)
    repo.write("a")
    await settle()
    assert (await (await iterate(workspace, 2))()).snapshot == ""
    settle = await iterate(workspace, 3)
    repo.write("b")
    await settle()
    await go_back(repo, private, 2)
    assert (repo.path / "a").exists()
    assert not (repo.path / "b").exists()


async def test_what_is_ignored_by_now_but_was_not_is_saved_before_it_is_replaced(repo, open_in, private):
    workspace = await open_in(repo, commit=False)
    await workspace.prepare()
    settle = await iterate(workspace, 1)
    repo.write("data", "then\n")
    await settle()
    repo.write(".gitignore", "data\n")
    repo.write("data", "now\n")
    went = await go_back(repo, private, 1)
    assert (repo.path / "data").read_text() == "then\n"
    assert repo.git("show", f"{went.saved}:data") == "now"
    assert repo.git("status", "--porcelain") == "?? data"


async def test_line_ends_and_filters_come_back_as_they_were(repo, open_in, private):
    repo.write(".gitattributes", "*.bat text eol=crlf\n*.up filter=up\n")
    repo.git("config", "filter.up.clean", "tr A-Z a-z")
    repo.git("config", "filter.up.smudge", "tr a-z A-Z")
    repo.commit()
    workspace = await open_in(repo)
    await workspace.prepare()
    settle = await iterate(workspace, 1)
    (repo.path / "a.bat").write_bytes(b"one\r\n")
    repo.write("b.up", "LOUD\n")
    await settle()
    before = state(repo)
    settle = await iterate(workspace, 2)
    (repo.path / "a.bat").write_bytes(b"two\r\n")
    repo.write("b.up", "LOUDER\n")
    await settle()
    await go_back(repo, private, 1)
    assert state(repo) == before
    assert repo.git("show", "HEAD:b.up") == "loud"


async def test_repositories_inside_and_submodules_are_left_alone(repo, open_in, private, tmp_path):
    other = type(repo)(tmp_path / "other")
    other.init()
    other.write("lib")
    other.commit()
    repo.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.path), "sub")
    repo.commit("with submodule")
    module = type(repo)(repo.path / "sub")
    module.git("config", "user.name", "Ada")
    module.git("config", "user.email", "ada@example.org")
    workspace = await open_in(repo)
    await workspace.prepare()
    settle = await iterate(workspace, 1)
    repo.write("a")
    await settle()
    settle = await iterate(workspace, 2)
    module.write("lib", "moved on\n")
    moved = module.commit()
    module.write("uncommitted")
    repo.git("init", "-q", "nested")
    repo.write("nested/work")
    repo.write("b")
    settled = await settle()
    assert repo.git("ls-tree", "HEAD", "sub").split()[2] == moved
    assert settled.left == ()
    went = await go_back(repo, private, 1)
    assert went.lines == ("submodule sub was left as it is: `git submodule update` moves it too",)
    assert module.git("rev-parse", "HEAD") == moved
    assert (module.path / "uncommitted").exists()
    assert (repo.path / "nested/work").exists()
    assert not (repo.path / "b").exists()


async def test_it_is_refused_in_the_middle_of_a_rebase_and_nothing_is_touched(repo, open_in, private):
    workspace = await open_in(repo)
    await workspace.prepare()
    settle = await iterate(workspace, 1)
    repo.write("a")
    await settle()
    repo.git("-c", "sequence.editor=sed -i s/^pick/edit/", "rebase", "-q", "-i", "HEAD~1")
    refs = repo.git("for-each-ref")
    with pytest.raises(
        WorkspaceError, match=r"a rebase is in progress in .*: finish it, or `git rebase --abort`, first"
    ):
        await go_back(repo, private, 0)
    assert repo.git("for-each-ref") == refs


async def test_it_is_refused_on_another_branch_and_on_another_runs(repo, open_in, private):
    repo.git("switch", "-q", "main")
    await (await open_in(repo)).prepare()
    repo.git("switch", "-q", "work")
    with pytest.raises(WorkspaceError, match="is on branch work now: `git switch untildone/tidy-up`"):
        await go_back(repo, private, 0, branch="untildone/tidy-up")
    repo.git("switch", "-q", "untildone/tidy-up")
    repo.git("config", "branch.untildone/tidy-up.untildone-run", "r2")
    with pytest.raises(WorkspaceError, match=r"belongs to another run by now \(r2\): fork instead"):
        await go_back(repo, private, 0, branch="untildone/tidy-up")


async def test_back_to_before_the_first_commit(plain, open_in, private):
    plain.init()
    plain.write("mine")
    workspace = await open_in(plain, keep_dirty=True)
    await workspace.prepare()
    before = state(plain)
    settle = await iterate(workspace, 1)
    plain.write("a")
    committed = (await settle()).commit
    went = await go_back(plain, private, 0)
    assert state(plain) == before
    assert plain.git("rev-parse", f"{went.saved}^") == committed


async def test_a_plain_folder_goes_back_too(plain, open_in, private):
    plain.write("a", "0\n")
    workspace = await open_in(plain)
    await workspace.prepare()
    seen = [files(plain.path)]
    for number in (1, 2):
        settle = await iterate(workspace, number)
        odd_things(plain, str(number))
        plain.write("a", f"{number}\n")
        await settle()
        seen.append(files(plain.path))
    for number in (1, 0, 2):
        await go_back(plain, private, number)
        assert files(plain.path) == seen[number]


# --- fork ------------------------------------------------------------------------------------------


async def forked(project, private, number: int, place: Path) -> Path:
    repository = await open_repository(project.path, private=private)
    target = state_after(await saved_states(repository, "r1"), number)
    assert target is not None
    return await fork(repository, target, place=place, branch="again")


@pytest.mark.parametrize("commit", [True, False])
async def test_a_fork_has_the_tree_of_the_iteration_on_a_branch_of_its_own(repo, open_in, private, tmp_path, commit):
    workspace = await open_in(repo, commit=commit)
    await workspace.prepare()
    settle = await iterate(workspace, 1)
    odd_things(repo, "one")
    repo.write("README.md", "changed\n")
    await settle()
    then, status = files(repo.path), repo.git("status", "--porcelain", "-uall", "-z")
    settle = await iterate(workspace, 2)
    odd_things(repo, "two")
    await settle()
    here, refs = state(repo), repo.git("for-each-ref", "refs/heads/work", "refs/heads/main")
    place = await forked(repo, private, 1, tmp_path / "new" / "fork")
    assert files(place) == then
    new = type(repo)(place)
    assert new.git("status", "--porcelain", "-uall", "-z") == status
    assert new.git("branch", "--show-current") == "again"
    assert state(repo) == here
    assert repo.git("for-each-ref", "refs/heads/work", "refs/heads/main") == refs
    with pytest.raises(WorkspaceError, match="exists already: choose another place"):
        await forked(repo, private, 1, place)


async def test_a_fork_from_before_the_first_commit_has_none_either(plain, open_in, private, tmp_path):
    plain.init()
    plain.write("mine")
    workspace = await open_in(plain, keep_dirty=True)
    await workspace.prepare()
    new = type(plain)(await forked(plain, private, 0, tmp_path / "fork"))
    assert new.git("status", "--porcelain") == "?? mine"
    assert new.git("symbolic-ref", "HEAD") == "refs/heads/again"


async def test_a_fork_of_a_plain_folder_is_a_plain_folder(plain, open_in, private, tmp_path):
    odd_things(plain, "x")
    workspace = await open_in(plain)
    await workspace.prepare()
    place = await forked(plain, private, 0, tmp_path / "fork")
    assert files(place) == files(plain.path)
    assert not (place / ".git").exists()
