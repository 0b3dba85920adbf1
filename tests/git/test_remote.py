"""A real bare remote: pushed without force, caught up with, and tidied up after."""

from collections.abc import Callable
from pathlib import Path

import pytest

from git.conftest import Project
from git.landing_kit import lander_in, run_git, untouched, work_on
from untildone.errors import WorkspaceError
from untildone.git.base import Base
from untildone.git.remote import Remote
from untildone.git.repository import open_repository

pytestmark = pytest.mark.anyio


@pytest.fixture
def bare(repo: Project, tmp_path: Path) -> Path:
    """The far side. The run works on branch `work` in place."""
    place = tmp_path / "remote.git"
    run_git(tmp_path, "init", "-q", "--bare", "-b", "main", str(place))
    repo.git("remote", "add", "origin", str(place))
    repo.git("push", "-q", "origin", "main")
    repo.git("fetch", "-q", "origin")
    repo.write("a.txt", "a\n")
    repo.commit("by the run")
    return place


def there(bare: Path, branch: str) -> str:
    return run_git(bare, "rev-parse", f"refs/heads/{branch}")


def on_remote(bare: Path, branch: str, name: str, *, start: str = "main") -> str:
    """Somebody else commits there."""
    tree = run_git(bare, "ls-tree", start)
    blob = run_git(bare, "hash-object", "-w", "--stdin", text=f"{name}\n")
    made = run_git(bare, "mktree", text=f"{tree}\n100644 blob {blob}\t{name}\n")
    who = ("-c", "user.name=B", "-c", "user.email=b@b")
    commit = run_git(bare, *who, "commit-tree", made, "-p", start, text=f"{name}\n")
    run_git(bare, "update-ref", f"refs/heads/{branch}", commit)
    return commit


class TestPush:
    async def test_a_commit_becomes_the_branch_there(self, repo: Project, bare: Path) -> None:
        head = repo.git("rev-parse", "HEAD")
        repo.write("later.txt", "not committed\n")
        before, lander = untouched(repo.path), await lander_in(repo.path)
        assert await lander.unpushed() == "origin has no branch work"
        assert await lander.is_new("work")
        await lander.push(head, "work")
        await lander.push(head, "work")
        assert not await lander.is_new("work")
        assert there(bare, "work") == head
        assert repo.git("rev-parse", "--abbrev-ref", "work@{upstream}") == "origin/work"
        assert await lander.unpushed() == ""
        new_refs = untouched(repo.path) | {"refs": before["refs"]}
        assert new_refs == before
        repo.commit("more")
        assert await lander.unpushed() == "origin does not have 1 commit of work"

    async def test_others_commits_are_never_overwritten(self, repo: Project, bare: Path) -> None:
        theirs = on_remote(bare, "work", "theirs.txt")
        lander = await lander_in(repo.path)
        with pytest.raises(WorkspaceError, match=r"not here.*never pushed by force|by force") as told:
            await lander.push(repo.git("rev-parse", "HEAD"), "work")
        assert "\n" not in str(told.value)
        assert there(bare, "work") == theirs
        assert await lander.unpushed() == "origin does not have 1 commit of work"

    async def test_not_even_when_the_user_configured_force(self, repo: Project, bare: Path) -> None:
        theirs = on_remote(bare, "work", "theirs.txt")
        repo.git("config", "remote.origin.push", "+refs/heads/*:refs/heads/*")
        with pytest.raises(WorkspaceError):
            await (await lander_in(repo.path)).push(repo.git("rev-parse", "HEAD"), "work")
        assert there(bare, "work") == theirs

    async def test_what_the_users_hook_says_is_told(self, repo: Project, bare: Path) -> None:
        repo.hook("pre-push", "echo 'the linter is not happy' >&2; exit 1")
        with pytest.raises(WorkspaceError, match="the linter is not happy"):
            await (await lander_in(repo.path)).push(repo.git("rev-parse", "HEAD"), "work")
        assert run_git(bare, "for-each-ref", "--format=%(refname)") == "refs/heads/main"

    async def test_what_the_far_side_says_is_told(self, repo: Project, bare: Path) -> None:
        hook = bare / "hooks" / "pre-receive"
        hook.write_text("#!/bin/sh\necho 'branch names need a ticket'; exit 1\n")
        hook.chmod(0o755)
        with pytest.raises(WorkspaceError, match="branch names need a ticket"):
            await (await lander_in(repo.path)).push(repo.git("rev-parse", "HEAD"), "work")

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("/nowhere/at/all", "does not appear to be a git repository|not a git repository"),
            ("https://joe:s3cret-token@127.0.0.1:9/x.git", "127.0.0.1"),
        ],
    )
    async def test_a_remote_that_cannot_be_reached(self, repo: Project, bare: Path, url: str, said: str) -> None:
        repo.git("remote", "set-url", "origin", url)
        with pytest.raises(WorkspaceError, match=said) as told:
            await (await lander_in(repo.path)).push(repo.git("rev-parse", "HEAD"), "work")
        assert "s3cret" not in str(told.value)

    async def test_no_such_remote(self, repo: Project, bare: Path) -> None:
        lander = await lander_in(repo.path, remote="upstream")
        with pytest.raises(WorkspaceError, match="git remote add upstream URL"):
            await lander.push(repo.git("rev-parse", "HEAD"), "work")

    async def test_what_is_checked_out_does_not_matter(self, repo: Project, bare: Path) -> None:
        """Somebody switches to the base meanwhile: only the run's own branch is ever pushed."""
        work, main = repo.git("rev-parse", "work"), there(bare, "main")
        repo.git("switch", "-q", "main")
        lander = await lander_in(repo.path)
        await lander.push(work, "work")
        assert (there(bare, "work"), there(bare, "main")) == (work, main)
        commit = on_remote(bare, "work", "news.txt", start="work")
        assert await lander.catch_up(commit, "work") == commit
        assert repo.git("rev-parse", "work") == commit
        assert repo.git("status", "--porcelain", "-b") == "## main"

    async def test_the_base_is_never_pushed(self, repo: Project, bare: Path) -> None:
        before = there(bare, "main")
        with pytest.raises(WorkspaceError, match="never pushed there directly"):
            await (await lander_in(repo.path)).push(repo.git("rev-parse", "HEAD"), "main")
        assert there(bare, "main") == before

    async def test_where_a_remote_leads_is_told_without_its_login(self, repo: Project, bare: Path) -> None:
        lander = await lander_in(repo.path)
        assert await lander.remote_place() == str(bare)
        repo.git("config", "remote.origin.pushurl", "https://joe:s3cret@example.com/x.git")
        assert await lander.remote_place() == f"{bare}, https://example.com/x.git"
        repo.git("remote", "remove", "origin")
        assert await lander.remote_place() == ""


class TestRelation:
    async def test_what_was_merged_is_compared_with_the_work(self, repo: Project, bare: Path) -> None:
        lander, head = await lander_in(repo.path), repo.git("rev-parse", "HEAD")
        await lander.push(head, "work")
        newer = on_remote(bare, "work", "more.txt", start="work")

        async def relation(other: str) -> str:
            return await lander.relation(other, head, branch="work", number=1)

        assert await relation(newer) == "holds"
        assert await relation(repo.git("rev-parse", "main")) == "older"
        other = on_remote(bare, "work", "other.txt", start="main")
        assert await relation(other) == "other"
        assert await relation("1" * 40) == "unknown"

    async def test_a_branch_that_was_deleted_is_found_by_its_pull_request(self, repo: Project, bare: Path) -> None:
        lander, head = await lander_in(repo.path), repo.git("rev-parse", "HEAD")
        await lander.push(head, "work")
        newer = on_remote(bare, "work", "more.txt", start="work")
        run_git(bare, "update-ref", "refs/pull/7/head", newer)
        run_git(bare, "update-ref", "-d", "refs/heads/work")
        assert await lander.relation(newer, head, branch="work", number=7) == "holds"


class TestCatchUp:
    async def test_branch_and_tree_follow_what_the_forge_put_on_top(self, repo: Project, bare: Path) -> None:
        lander = await lander_in(repo.path)
        await lander.push(repo.git("rev-parse", "HEAD"), "work")
        commit = on_remote(bare, "work", "base-news.txt", start="work")
        repo.write("untracked.txt", "mine\n")
        await lander.catch_up(commit, "work")
        assert repo.git("rev-parse", "work") == commit
        assert (repo.path / "base-news.txt").read_text() == "base-news.txt\n"
        assert repo.git("status", "--porcelain") == "?? untracked.txt"
        await lander.catch_up(commit, "work")

    async def test_two_ways_are_not_made_one(self, repo: Project, bare: Path) -> None:
        lander = await lander_in(repo.path)
        await lander.push(repo.git("rev-parse", "HEAD"), "work")
        commit = on_remote(bare, "work", "theirs.txt", start="work")
        repo.write("mine.txt")
        mine = repo.commit("mine")
        with pytest.raises(WorkspaceError, match="git pull origin work"):
            await lander.catch_up(commit, "work")
        assert repo.git("rev-parse", "work") == mine

    async def test_uncommitted_work_in_the_way_is_kept(self, repo: Project, bare: Path) -> None:
        lander = await lander_in(repo.path)
        await lander.push(repo.git("rev-parse", "HEAD"), "work")
        commit = on_remote(bare, "work", "new.txt", start="work")
        repo.write("new.txt", "mine\n")
        with pytest.raises(WorkspaceError, match=r"new\.txt"):
            await lander.catch_up(commit, "work")
        assert (repo.path / "new.txt").read_text() == "mine\n"


class TestTidy:
    async def test_the_local_base_follows(self, repo: Project, bare: Path) -> None:
        commit = on_remote(bare, "main", "merged.txt")
        before = untouched(repo.path)
        assert await (await lander_in(repo.path)).tidy("work") == ""
        assert repo.git("rev-parse", "main") == commit
        assert repo.git("rev-parse", "--abbrev-ref", "HEAD") == "work", "a branch that is in use stays"
        assert untouched(repo.path) | {"refs": ""} == before | {"refs": ""}

    async def test_so_does_its_tree_where_it_is_checked_out(self, repo: Project, bare: Path, tmp_path: Path) -> None:
        repo.git("worktree", "add", "-q", str(tmp_path / "users"), "main")
        on_remote(bare, "main", "merged.txt")
        assert await (await lander_in(repo.path)).tidy("work") == ""
        assert (tmp_path / "users" / "merged.txt").exists()

    async def test_what_is_in_the_way_there_is_told_and_kept(self, repo: Project, bare: Path, tmp_path: Path) -> None:
        repo.git("worktree", "add", "-q", str(tmp_path / "users"), "main")
        (tmp_path / "users" / "merged.txt").write_text("mine\n")
        on_remote(bare, "main", "merged.txt")
        assert "merged.txt" in await (await lander_in(repo.path)).tidy("work")
        assert (tmp_path / "users" / "merged.txt").read_text() == "mine\n"

    async def test_a_base_with_commits_of_its_own_is_left_alone(self, repo: Project, bare: Path) -> None:
        mine = work_on(repo.path, "main", {"mine.txt": "m\n"})
        on_remote(bare, "main", "merged.txt")
        assert "left as it is" in await (await lander_in(repo.path)).tidy("work")
        assert repo.git("rev-parse", "main") == mine

    @pytest.mark.parametrize(
        ("squashed", "checked_out", "stays"), [(True, False, False), (False, False, True), (True, True, True)]
    )
    async def test_a_branch_goes_only_when_all_of_it_has_arrived(
        self, repo: Project, bare: Path, squashed: bool, checked_out: bool, stays: bool
    ) -> None:
        on_remote(bare, "main", "a.txt" if squashed else "other.txt")
        repo.git("branch", "run", "main")
        work_on(repo.path, "run", {"a.txt": "a.txt\n"})
        if checked_out:
            repo.git("worktree", "add", "-q", str(repo.path.parent / "elsewhere"), "run")
        repository = await open_repository(repo.path, private=repo.path.parent / "private")
        assert await Remote(repository, "origin").tidy(Base(repository, "main"), "run") == ""
        assert ("run" in repo.git("branch", "--format=%(refname:short)").split()) == stays

    async def test_a_branch_that_was_not_made_for_the_run_stays(self, repo: Project, bare: Path) -> None:
        for name, owner in (("users", ""), ("other", "r2"), ("mine", "r1")):
            repo.git("branch", name, "main")
            if owner:
                repo.git("config", f"branch.{name}.untildone-run", owner)
            assert await (await lander_in(repo.path, "r1")).tidy(name) == ""
        assert repo.git("branch", "--format=%(refname:short)").split() == ["main", "other", "users", "work"]

    async def test_the_users_ignored_files_are_not_overwritten(self, repo: Project, bare: Path, tmp_path: Path) -> None:
        repo.git("worktree", "add", "-q", str(tmp_path / "users"), "main")
        (repo.path / ".git" / "info" / "exclude").write_text("local.cfg\n")
        (tmp_path / "users" / "local.cfg").write_text("mine\n")
        on_remote(bare, "main", "local.cfg")
        assert "local.cfg" in await (await lander_in(repo.path)).tidy("work")
        assert (tmp_path / "users" / "local.cfg").read_text() == "mine\n"

    async def test_trouble_is_told_not_raised(self, repo: Project, bare: Path) -> None:
        repo.git("remote", "set-url", "origin", "/nowhere/at/all")
        assert "could not be fetched from origin" in await (await lander_in(repo.path)).tidy("work")


async def test_nobody_is_ever_asked_for_a_password(
    repo: Project, bare: Path, git_calls: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remote helper sees what git may ask: nothing."""
    helper = repo.path.parent / "bin" / "git-remote-ask"
    helper.write_text('#!/bin/sh\necho "prompt=$GIT_TERMINAL_PROMPT ssh=$SSH_ASKPASS_REQUIRE" >&2\nexit 1\n')
    helper.chmod(0o755)
    repo.git("remote", "set-url", "origin", "ask::x")
    with pytest.raises(WorkspaceError, match="prompt=0 ssh=never"):
        await (await lander_in(repo.path)).push(repo.git("rev-parse", "HEAD"), "work")
