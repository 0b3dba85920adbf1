"""Trees from elsewhere, looked at before they are laid out: bombs, ways out, and files that act by themselves."""

import subprocess
from pathlib import Path

import pytest

from git.conftest import Project
from untildone.errors import WorkspaceError
from untildone.git import weighing
from untildone.git.repository import Repository, open_repository
from untildone.git.weighing import acting, refuse_detour, refuse_too_much

pytestmark = pytest.mark.anyio


async def opened(repo: Project, tmp_path: Path) -> Repository:
    return await open_repository(repo.path, private=tmp_path / "folders")


def stored(repo: Project, *words: str, content: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=repo.path, input=content.encode(), capture_output=True, check=True, timeout=240
    )
    return done.stdout.decode().strip()


def commit_of(repo: Project, tree: str) -> str:
    return repo.git("commit-tree", tree, "-m", "x")


def nested(repo: Project, *, wide: int, deep: int, size: int = 10) -> str:
    """A commit with folders that hold the same folder many times over."""
    blob = stored(repo, "hash-object", "-w", "--stdin", content="x" * size)
    tree = stored(repo, "mktree", content="".join(f"100644 blob {blob}\tf{n}\n" for n in range(wide)))
    for _ in range(deep):
        tree = stored(repo, "mktree", content="".join(f"040000 tree {tree}\td{n}\n" for n in range(wide)))
    return commit_of(repo, tree)


async def test_few_bytes_that_would_be_many_files_are_refused(repo: Project, tmp_path: Path) -> None:
    repository = await opened(repo, tmp_path)
    await refuse_too_much(repository, nested(repo, wide=10, deep=2))
    with pytest.raises(WorkspaceError, match="larger than any"):
        await refuse_too_much(repository, nested(repo, wide=10, deep=9))


async def test_few_bytes_that_would_be_many_bytes_are_refused(
    repo: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, commit = await opened(repo, tmp_path), nested(repo, wide=10, deep=1, size=1000)
    monkeypatch.setattr(weighing, "MOST_BYTES", 100_000)
    await refuse_too_much(repository, commit)
    monkeypatch.setattr(weighing, "MOST_BYTES", 99_999)
    with pytest.raises(WorkspaceError, match="larger than any"):
        await refuse_too_much(repository, commit)


async def test_folders_without_end_and_long_lists_are_refused(
    repo: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = await opened(repo, tmp_path)
    monkeypatch.setattr(weighing, "DEEPEST", 5)
    await refuse_too_much(repository, nested(repo, wide=1, deep=4))
    with pytest.raises(WorkspaceError, match="larger than any"):
        await refuse_too_much(repository, nested(repo, wide=1, deep=5))
    monkeypatch.setattr(weighing, "MOST_LISTED", 100)
    with pytest.raises(WorkspaceError, match="larger than any"):
        await refuse_too_much(repository, nested(repo, wide=10, deep=0))


async def test_submodules_and_links_are_counted_as_what_they_are(repo: Project, tmp_path: Path) -> None:
    blob = stored(repo, "hash-object", "-w", "--stdin", content="/etc")
    tree = stored(repo, "mktree", "--missing", content=f"160000 commit {'1' * 40}\tsub\n120000 blob {blob}\tlink\n")
    await refuse_too_much(await opened(repo, tmp_path), commit_of(repo, tree))


async def test_the_way_to_the_agents_folder_leads_through_folders_only(repo: Project, tmp_path: Path) -> None:
    repo.write("sub/dir/x.txt")
    (repo.path / "link").symlink_to(tmp_path)
    (repo.path / "sub" / "up").symlink_to("../..")
    repo.commit()
    repository, head = await opened(repo, tmp_path), repo.git("rev-parse", "HEAD")
    for below in (".", "sub", "sub/dir", "sub/new", "./sub"):
        await refuse_detour(repository, head, below)
    for below in ("link", "link/x", "sub/up", "sub/up/x", "sub/dir/x.txt"):
        with pytest.raises(WorkspaceError, match="no folder of the run's tree"):
            await refuse_detour(repository, head, below)


async def test_files_that_act_by_themselves_are_named_where_they_are_other_ones(repo: Project, tmp_path: Path) -> None:
    repo.write(".claude/settings.json", "{}")
    repo.write(".mcp.json", "{}")
    repo.write("hooks-here/pre-commit", "#!/bin/sh\n")
    repo.commit()
    first = repo.git("rev-parse", "HEAD")
    repo.write(".claude/settings.json", '{"hooks": {}}')
    (repo.path / ".mcp.json").unlink()
    repo.write("sub/.claude/skills/x/SKILL.md", "run me")
    repo.write(".husky/pre-commit", "x")
    repo.write("hooks-here/pre-commit", "#!/bin/sh\ntouch x\n")
    repo.write("CLAUDE.md", "only words")
    repo.commit()
    second = repo.git("rev-parse", "HEAD")
    repository = await opened(repo, tmp_path)
    assert await acting(repository, first, first) == {}
    named = {".claude/settings.json", ".mcp.json", "sub/.claude/skills/x/SKILL.md", ".husky/pre-commit"}
    assert set(await acting(repository, first, second)) == named
    assert set(await acting(repository, None, second)) == named - {".mcp.json"}
    repo.git("config", "core.hooksPath", "hooks-here")
    assert set(await acting(repository, first, second)) == {*named, "hooks-here/pre-commit"}


async def test_what_a_link_stands_for_is_never_taken_for_known(repo: Project, tmp_path: Path) -> None:
    repo.write("elsewhere/settings.json", "{}")
    (repo.path / ".claude").symlink_to("elsewhere")
    repo.commit()
    first = repo.git("rev-parse", "HEAD")
    repo.write("elsewhere/settings.json", '{"hooks": {}}')
    repo.commit()
    second = repo.git("rev-parse", "HEAD")
    assert set(await acting(await opened(repo, tmp_path), first, second)) == {".claude"}


def bare(repo: Project, folder: str, *, head: str = "HEAD", config: str = "[core]\n\tbare = true\n") -> None:
    repo.write(f"{folder}{head}", "ref: refs/heads/main\n")
    repo.write(f"{folder}objects/keep", "")
    repo.write(f"{folder}refs/keep", "")
    repo.write(f"{folder}config", config)


@pytest.mark.parametrize("head", ["HEAD", "head"])
@pytest.mark.parametrize(("folder", "named"), [("sub/", "sub/"), ("a/b.git/", "a/b.git/"), ("", "./")])
async def test_a_repository_inside_the_tree_is_named(
    repo: Project, tmp_path: Path, folder: str, named: str, head: str
) -> None:
    first = repo.git("rev-parse", "HEAD")
    bare(repo, folder, head=head)
    repo.commit()
    second = repo.git("rev-parse", "HEAD")
    repo.write(f"{folder}config", "[core]\n\tfsmonitor = touch x\n")
    repo.commit()
    third = repo.git("rev-parse", "HEAD")
    repository, line = await opened(repo, tmp_path), f"{named} (a repository in the tree)"
    assert set(await acting(repository, first, second)) == {line}
    assert set(await acting(repository, None, third)) == {line}
    assert await acting(repository, second, second) == {}
    # Agreed to as it was then, and only so.
    assert (await acting(repository, None, second))[line] != (await acting(repository, None, third))[line]
    assert set(await acting(repository, second, third)) == {line}


async def test_a_folder_is_named_just_when_git_would_take_it_for_a_repository(repo: Project, tmp_path: Path) -> None:
    repo.write("linked/HEAD", "ref: refs/heads/main\n")
    repo.write("linked/commondir", "../elsewhere\n")
    repo.write("odd/HEAD", "ref: refs/heads/main\n")
    (repo.path / "odd" / "objects").symlink_to("..")
    (repo.path / "odd" / "refs").symlink_to("..")
    repo.write("plain/objects/x", "x")
    repo.write("plain/refs/x", "x")
    repo.write("plain/sub/HEAD", "x")
    repo.write("AHEAD/objects/x", "x")
    repo.write("AHEAD/refs.txt", "x")
    repo.commit()
    found = await acting(await opened(repo, tmp_path), None, repo.git("rev-parse", "HEAD"))
    assert set(found) == {f"{folder}/ (a repository in the tree)" for folder in ("linked", "odd")}
