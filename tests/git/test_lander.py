"""Work that arrives on its base: merged without a working tree, verified first, moved once."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from git.conftest import Project
from git.landing_kit import Looks, files_of, green, lander_in, run_git, untouched, work_on
from patience import soon
from untildone.errors import WorkspaceError
from untildone.ports.delivery import Landed, NotLanded

pytestmark = pytest.mark.anyio


def usually(strategy: str) -> list[Any]:
    """All strategies in the soak, otherwise this one."""
    return [
        one if one == strategy else pytest.param(one, marks=pytest.mark.soak) for one in ("squash", "merge", "rebase")
    ]


def log_of(repo: Project, ref: str = "main") -> list[str]:
    return repo.git("log", "--first-parent", "--format=%s", ref).splitlines()


def dirty(repo: Project) -> None:
    """A human at work: something staged, something changed, something untracked, something stashed."""
    repo.write("README.md", "stashed\n")
    repo.git("stash")
    repo.write("staged.txt", "staged\n")
    repo.git("add", "staged.txt")
    repo.write("README.md", "in the middle of a thought\n")
    repo.write("new.txt", "untracked\n")


async def test_a_squash_is_one_commit_on_the_base_and_touches_nothing_else(repo: Project) -> None:
    work_on(repo.path, "run", {"a.txt": "a\n"}, message="one")
    commit = work_on(repo.path, "run", {"b.txt": "b\n"}, message="two")
    dirty(repo)
    before, old = untouched(repo.path), repo.git("rev-parse", "main")
    looks = Looks(repo.path)
    landed = await (await lander_in(repo.path)).merge(commit, message="Add a and b\n\nBoth.", verify=looks)
    assert isinstance(landed, Landed)
    assert landed.merged == repo.git("rev-parse", "main")
    assert looks.seen == [landed.merged], "exactly what lands was looked at"
    assert repo.git("show", "-s", "--format=%P", "main") == old
    assert repo.git("show", "-s", "--format=%B %an", "main") == "Add a and b\n\nBoth.\n Ada"
    assert files_of(repo.path, "main") == {"README.md", "a.txt", "b.txt"}
    assert untouched(repo.path) == before


async def test_a_merge_has_two_parents(repo: Project) -> None:
    commit, old = work_on(repo.path, "run", {"a.txt": "a\n"}), repo.git("rev-parse", "main")
    lander = await lander_in(repo.path, strategy="merge")
    assert isinstance(await lander.merge(commit, message="m", verify=green(repo.path)), Landed)
    assert repo.git("show", "-s", "--format=%P", "main").split() == [old, commit]


async def test_a_rebase_replays_commits_with_their_authors_and_words(repo: Project) -> None:
    repo.git("switch", "-q", "-c", "run", "main")
    repo.write("a.txt", "a\n")
    repo.git("add", "-A")
    words = "Grüße\n\nbody line\n  indented"
    repo.git("commit", "-q", "-m", words, "--author=Zoë <z@x.org>", "--date=2001-02-03T04:05:06+0200")
    repo.write("b.txt", "b\n")
    commit = repo.commit("second")
    work_on(repo.path, "main", {"other.txt": "o\n"}, message="meanwhile")
    lander = await lander_in(repo.path, strategy="rebase")
    assert isinstance(await lander.merge(commit, message="unused", verify=green(repo.path)), Landed)
    assert log_of(repo) == ["second", "Grüße", "meanwhile", "first"]
    shown = repo.git("show", "-s", "--format=%an|%ae|%ai|%B", "main~1")
    assert shown.rstrip() == f"Zoë|z@x.org|2001-02-03 04:05:06 +0200|{words}"
    assert files_of(repo.path, "main") == {"README.md", "a.txt", "b.txt", "other.txt"}


async def test_a_rebase_with_nothing_in_between_keeps_the_very_commits(repo: Project) -> None:
    commit = work_on(repo.path, "run", {"a.txt": "a\n"})
    lander = await lander_in(repo.path, strategy="rebase")
    assert await lander.merge(commit, message="m", verify=green(repo.path)) == Landed(merged=commit)


async def test_a_rebase_of_a_branch_with_merges_lands_as_one_commit(repo: Project) -> None:
    """Replayed one by one, what was resolved in the merge would be lost."""
    repo.git("switch", "-q", "-c", "run", "main")
    repo.write("README.md", "mine\n")
    repo.commit("mine")
    work_on(repo.path, "main", {"README.md": "theirs\n"}, message="meanwhile")
    with pytest.raises(Exception, match="non-zero"):
        repo.git("merge", "-q", "main")
    repo.write("README.md", "both\n")
    commit = repo.commit("resolved")
    lander = await lander_in(repo.path, strategy="rebase")
    assert isinstance(await lander.merge(commit, message="as one", verify=green(repo.path)), Landed)
    assert log_of(repo) == ["as one", "meanwhile", "first"]
    assert repo.git("show", "main:README.md") == "both"


@pytest.mark.parametrize("strategy", usually("merge"))
async def test_a_conflict_is_told_and_can_be_mended(repo: Project, strategy: str) -> None:
    repo.git("switch", "-q", "-c", "run", "main")
    repo.write("README.md", "mine\n")
    commit = repo.commit("mine")
    old = work_on(repo.path, "main", {"README.md": "theirs\n"})
    lander, looks = await lander_in(repo.path, strategy=strategy), Looks(repo.path)
    refused = await lander.merge(commit, message="m", verify=looks)
    assert isinstance(refused, NotLanded)
    assert refused.cause == "conflict"
    assert "README.md" in refused.detail
    assert "git merge main" in refused.detail
    assert (looks.seen, repo.git("rev-parse", "main")) == ([], old)
    with pytest.raises(Exception, match="non-zero"):
        repo.git("merge", "-q", "main")
    repo.write("README.md", "both\n")
    assert isinstance(await lander.merge(repo.commit("both"), message="m", verify=looks), Landed)
    assert repo.git("show", "main:README.md") == "both"


async def test_a_red_merged_tree_is_sent_back_and_the_base_stays(repo: Project) -> None:
    """Each side is fine alone."""
    commit = work_on(repo.path, "run", {"a.txt": "a\n"})
    old = work_on(repo.path, "main", {"b.txt": "b\n"})
    looks = Looks(repo.path, lambda files: "a and b do not go together" if {"a.txt", "b.txt"} <= files else "")
    refused = await (await lander_in(repo.path)).merge(commit, message="m", verify=looks)
    assert refused == NotLanded(cause="checks", detail="a and b do not go together")
    assert repo.git("rev-parse", "main") == old


async def test_a_base_that_moves_meanwhile_is_merged_with_and_verified_anew(repo: Project) -> None:
    commit = work_on(repo.path, "run", {"a.txt": "a\n"})
    others = iter(["b.txt"])

    def once() -> None:
        for name in others:
            work_on(repo.path, "main", {name: "b\n"})

    looks = Looks(repo.path, before=once)
    landed = await (await lander_in(repo.path)).merge(commit, message="m", verify=looks)
    assert isinstance(landed, Landed)
    assert landed.verified
    assert len(looks.seen) == 2
    assert looks.seen[-1] == landed.merged
    assert files_of(repo.path, "main") == {"README.md", "a.txt", "b.txt"}


async def test_a_base_that_never_stands_still_is_landed_on_and_looked_at_afterwards(repo: Project) -> None:
    commit, count = work_on(repo.path, "run", {"a.txt": "a\n"}), iter(range(100))
    looks = Looks(repo.path, before=lambda: work_on(repo.path, "main", {f"m{next(count)}.txt": "m\n"}) and None)
    lander = await lander_in(repo.path)
    landed = await lander.merge(commit, message="m", verify=looks)
    assert isinstance(landed, Landed)
    assert not landed.verified
    assert landed.merged not in looks.seen
    again = await lander.merge(commit, message="m", verify=looks)
    assert again == landed, "a driver that died before it looked is told again that nobody has"


async def test_what_has_landed_does_not_land_twice(repo: Project) -> None:
    commit = work_on(repo.path, "run", {"a.txt": "a\n"})
    lander, looks = await lander_in(repo.path), Looks(repo.path)
    first = await lander.merge(commit, message="m", verify=looks)
    work_on(repo.path, "main", {"later.txt": "l\n"})
    assert isinstance(first, Landed)
    again = await lander.merge(commit, message="m", verify=looks)
    assert again == replace(first, verified=False), "a ref says so, and that is no witness: whoever lands looks"
    assert len(looks.seen) == 1
    assert log_of(repo) == ["work", "m", "first"]


async def test_work_that_is_on_the_base_already_has_arrived(repo: Project) -> None:
    """Commits made right on the base, or somebody did the same meanwhile."""
    tip = work_on(repo.path, "main", {"a.txt": "a\n"})
    lander = await lander_in(repo.path)
    assert await lander.merge(tip, message="m", verify=green(repo.path)) == Landed(merged=tip)
    again = await lander.merge(tip, message="m", verify=green(repo.path))
    assert again == Landed(merged=tip, verified=False)  # only a ref says so
    same = work_on(repo.path, "run", {"a.txt": "a\n"}, start="main~1", message="the same, by somebody else")
    assert await lander.merge(same, message="m", verify=green(repo.path)) == Landed(merged=tip)
    assert repo.git("rev-parse", "main") == tip


@pytest.mark.parametrize("strategy", usually("squash"))
async def test_iteration_after_iteration_lands_from_one_branch(repo: Project, strategy: str) -> None:
    """Each changes the same lines again: what was squashed before must be known as the same work."""
    lander = await lander_in(repo.path, strategy=strategy)
    for number in range(3):
        commit = work_on(repo.path, "run", {"README.md": f"line {number}\n"}, start="main~0", message=f"i{number}")
        work_on(repo.path, "main", {f"other{number}.txt": "o\n"}, message=f"other{number}")
        landed = await lander.merge(commit, message=f"i{number}", verify=green(repo.path))
        assert isinstance(landed, Landed), landed
        assert repo.git("show", "main:README.md") == f"line {number}"
    expected = [name for n in reversed(range(3)) for name in (f"i{n}", f"other{n}")]
    assert log_of(repo) == [*expected, "first"]


class TestCheckedOut:
    """The base is checked out in the user's own tree, and the run works in another."""

    @pytest.fixture
    def users(self, repo: Project) -> Project:
        repo.git("switch", "-q", "main")
        return repo

    async def test_it_is_fast_forwarded_and_uncommitted_work_stays(self, users: Project) -> None:
        commit = work_on(users.path, "run", {"a.txt": "a\n"})
        users.write("README.md", "in the middle of a thought\n")
        users.write("new.txt", "untracked\n")
        assert isinstance(
            await (await lander_in(users.path)).merge(commit, message="m", verify=green(users.path)), Landed
        )
        assert (users.path / "a.txt").read_text() == "a\n"
        assert (users.path / "README.md").read_text() == "in the middle of a thought\n"
        assert users.git("status", "--porcelain").splitlines() == [" M README.md", "?? new.txt"]

    @pytest.mark.parametrize(
        ("staged", "autostash"),
        [
            (True, "true"),
            *(
                pytest.param(*rare, marks=pytest.mark.soak)
                for rare in [(False, "false"), (False, "true"), (True, "false")]
            ),
        ],
    )
    async def test_work_in_the_way_keeps_everything_as_it_is(
        self, users: Project, staged: bool, autostash: str
    ) -> None:
        users.git("config", "merge.autoStash", autostash)
        commit = work_on(users.path, "run", {"README.md": "of the run\n"})
        users.write("README.md", "in the middle of a thought\n")
        if staged:
            users.git("add", "README.md")
        before, old = untouched(users.path), users.git("rev-parse", "main")
        refused = await (await lander_in(users.path)).merge(commit, message="m", verify=green(users.path))
        assert isinstance(refused, NotLanded)
        assert refused.cause == "base"
        assert "README.md" in refused.detail
        assert str(users.path) in refused.detail
        assert (untouched(users.path), users.git("rev-parse", "main")) == (before, old)
        users.git("checkout", "-q", "HEAD", "README.md")
        assert isinstance(
            await (await lander_in(users.path)).merge(commit, message="m", verify=green(users.path)), Landed
        )

    async def test_an_untracked_file_in_the_way_is_not_overwritten(self, users: Project) -> None:
        commit = work_on(users.path, "run", {"a.txt": "of the run\n"})
        users.write("a.txt", "mine\n")
        refused = await (await lander_in(users.path)).merge(commit, message="m", verify=green(users.path))
        assert isinstance(refused, NotLanded)
        assert (refused.cause, "a.txt" in refused.detail) == ("base", True)
        assert (users.path / "a.txt").read_text() == "mine\n"

    async def test_a_stop_while_the_tree_moves_takes_effect_afterwards(self, users: Project) -> None:
        """A hook that takes its time: the merge is under way when it is called off."""
        commit = work_on(users.path, "run", {"a.txt": "a\n"})
        users.hook("post-merge", "touch ../moving; sleep 0.5; touch ../moved")
        task = asyncio.ensure_future((await lander_in(users.path)).merge(commit, message="m", verify=green(users.path)))
        await soon((users.path.parent / "moving").exists)
        task.cancel()
        assert isinstance(await task, Landed), "what has happened is told"
        assert (users.path.parent / "moved").exists()
        assert users.git("status", "--porcelain") == ""


async def test_a_stop_while_it_is_verified_leaves_no_trace(repo: Project) -> None:
    commit, before, old = (
        work_on(repo.path, "run", {"a.txt": "a\n"}),
        untouched(repo.path),
        repo.git("rev-parse", "main"),
    )
    looking = asyncio.Event()

    async def forever(_: str) -> str:
        looking.set()
        await asyncio.sleep(600)
        return ""

    task = asyncio.ensure_future((await lander_in(repo.path)).merge(commit, message="m", verify=forever))
    await looking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert repo.git("rev-parse", "main") == old
    assert untouched(repo.path).items() >= {k: v for k, v in before.items() if k != "refs"}.items()
    assert list((repo.path / ".git/untildone/queue/main").glob("*.work")) == []
    assert isinstance(await (await lander_in(repo.path)).merge(commit, message="m", verify=green(repo.path)), Landed)


class TestRevert:
    @pytest.mark.parametrize("strategy", usually("rebase"))
    async def test_a_landing_is_taken_back_and_what_came_later_stays(self, repo: Project, strategy: str) -> None:
        work_on(repo.path, "run", {"a.txt": "a\n"}, message="one")
        commit = work_on(repo.path, "run", {"b.txt": "b\n"}, message="two")
        work_on(repo.path, "main", {"meanwhile.txt": "m\n"})
        lander = await lander_in(repo.path, strategy=strategy)
        landed = await lander.merge(commit, message="bad", verify=green(repo.path))
        assert isinstance(landed, Landed)
        work_on(repo.path, "main", {"later.txt": "l\n"}, message="later")
        before = untouched(repo.path)
        revert = await lander.revert(landed.merged, reason="it is red")
        assert repo.git("rev-parse", "main") == revert
        assert files_of(repo.path, "main") == {"README.md", "meanwhile.txt", "later.txt"}
        assert "it is red" in repo.git("show", "-s", "--format=%B", "main")
        assert untouched(repo.path) == before
        assert await lander.revert(landed.merged, reason="again") == revert, "once is enough"

    @pytest.mark.parametrize("strategy", usually("merge"))
    async def test_mended_work_lands_whole(self, repo: Project, strategy: str) -> None:
        """After a plain merge and its revert git would bring only what is new."""
        commit = work_on(repo.path, "run", {"a.txt": "a\n"})
        work_on(repo.path, "main", {"meanwhile.txt": "m\n"})
        lander = await lander_in(repo.path, strategy=strategy)
        landed = await lander.merge(commit, message="bad", verify=green(repo.path))
        assert isinstance(landed, Landed)
        await lander.revert(landed.merged, reason="red")
        mended = work_on(repo.path, "run", {"b.txt": "b\n"})
        assert isinstance(await lander.merge(mended, message="good", verify=green(repo.path)), Landed)
        assert files_of(repo.path, "main") == {"README.md", "meanwhile.txt", "a.txt", "b.txt"}

    async def test_the_same_commit_may_land_again(self, repo: Project) -> None:
        commit, lander = work_on(repo.path, "run", {"a.txt": "a\n"}), await lander_in(repo.path)
        landed = await lander.merge(commit, message="m", verify=green(repo.path))
        assert isinstance(landed, Landed)
        await lander.revert(landed.merged, reason="red")
        assert "a.txt" not in files_of(repo.path, "main")
        again = await lander.merge(commit, message="m", verify=green(repo.path))
        assert isinstance(again, Landed)
        assert again.merged != landed.merged
        assert "a.txt" in files_of(repo.path, "main")

    async def test_what_others_built_on_is_not_taken_back(self, repo: Project) -> None:
        commit, lander = work_on(repo.path, "run", {"a.txt": "a\n"}), await lander_in(repo.path)
        landed = await lander.merge(commit, message="m", verify=green(repo.path))
        assert isinstance(landed, Landed)
        tip = work_on(repo.path, "main", {"a.txt": "built on\n"})
        with pytest.raises(WorkspaceError, match=r"a\.txt.*git revert"):
            await lander.revert(landed.merged, reason="red")
        assert repo.git("rev-parse", "main") == tip

    async def test_a_checked_out_base_is_reverted_in_its_tree(self, repo: Project) -> None:
        repo.git("switch", "-q", "main")
        commit, lander = work_on(repo.path, "run", {"a.txt": "a\n"}), await lander_in(repo.path)
        landed = await lander.merge(commit, message="m", verify=green(repo.path))
        assert isinstance(landed, Landed)
        await lander.revert(landed.merged, reason="red")
        assert not (repo.path / "a.txt").exists()
        assert repo.git("status", "--porcelain") == ""


class TestObstacles:
    async def test_no_such_base(self, repo: Project) -> None:
        lander = await lander_in(repo.path, base="trunk")
        with pytest.raises(WorkspaceError, match="no branch trunk"):
            await lander.merge(repo.git("rev-parse", "HEAD"), message="m", verify=green(repo.path))

    async def test_nobody_knows_the_base(self, repo: Project) -> None:
        lander = await lander_in(repo.path, base=None)
        with pytest.raises(WorkspaceError, match="--base"):
            await lander.merge(repo.git("rev-parse", "HEAD"), message="m", verify=green(repo.path))

    async def test_a_plain_folder(self, plain: Project) -> None:
        with pytest.raises(WorkspaceError, match="no git repository"):
            await (await lander_in(plain.path)).merge("0" * 40, message="m", verify=green(plain.path))

    async def test_a_git_that_is_too_old(self, repo: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shim = tmp_path / "old" / "git"
        shim.parent.mkdir()
        shim.write_text(
            '#!/bin/sh\ncase " $* " in *" version "*) echo git version 2.34.1; exit;; esac\nexec /usr/bin/git "$@"\n'
        )
        shim.chmod(0o755)
        lander = await lander_in(repo.path)
        monkeypatch.setenv("PATH", f"{shim.parent}:/usr/bin:/bin")
        with pytest.raises(WorkspaceError, match=r"2\.38 or newer.*2\.34\.1"):
            await lander.merge(repo.git("rev-parse", "HEAD"), message="m", verify=green(repo.path))

    async def test_histories_that_have_nothing_in_common(self, repo: Project) -> None:
        tree = repo.git("rev-parse", "HEAD^{tree}")
        stranger = run_git(repo.path, "commit-tree", tree, text="x\n")
        with pytest.raises(WorkspaceError, match="unrelated"):
            await (await lander_in(repo.path)).merge(stranger, message="m", verify=green(repo.path))

    async def test_no_name_of_the_users(self, plain: Project, git_calls: Callable[[], list[str]]) -> None:
        plain.init(identity=False)
        plain.write("README.md")
        plain.git("add", "-A")
        plain.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
        plain.git("branch", "run")
        plain.git("switch", "-qc", "work")
        plain.git("switch", "-q", "run")
        plain.write("a.txt")
        plain.git("add", "-A")
        plain.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "second")
        git_calls()
        done = await (await lander_in(plain.path)).merge(
            plain.git("rev-parse", "HEAD"), message="m", verify=green(plain.path)
        )
        assert isinstance(done, Landed)
        assert plain.git("show", "-s", "--format=%an", "main") == "untildone"
        assert len(git_calls()) < 40
