"""What becomes of an iteration's changes."""

import asyncio

import pytest

from patience import soon

pytestmark = pytest.mark.anyio


async def test_nothing_changed_is_one_call(repo, open_in, git_calls):
    workspace = await open_in(repo)
    await workspace.prepare()
    before = await workspace.observe()
    git_calls()
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert len(git_calls()) == 1
    assert (settled.changed, settled.commit, settled.files_changed) == (False, None, 0)
    assert settled.tree == before


async def test_a_change_is_committed_with_five_calls(repo, open_in, git_calls):
    workspace = await open_in(repo)
    await workspace.prepare()
    before = await workspace.observe()
    repo.write("README.md", "better\n")
    repo.write("src/new.py")
    git_calls()
    settled = await workspace.settle(before, iteration_num=4, message="Improve things\nAnd more.")
    assert len(git_calls()) == 5
    assert (settled.changed, settled.files_changed, settled.by) == (True, 2, "loop")
    assert settled.left == ()
    assert (settled.commit, settled.message) == (repo.git("rev-parse", "HEAD"), "Improve things")
    assert settled.warning == ""
    assert repo.git("log", "-1", "--format=%an <%ae>%n%B") == "Ada <ada@example.org>\nImprove things\n\nAnd more."
    assert repo.git("status", "--porcelain") == ""
    assert settled.tree == await workspace.observe()


async def test_untracked_only_and_deleted_only(repo, open_in):
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("only-new")
    settled = await workspace.settle(before, iteration_num=1, message="new")
    (repo.path / "only-new").unlink()
    settled = await workspace.settle(settled.tree, iteration_num=2, message="gone")
    assert repo.git("log", "-2", "--format=%s") == "gone\nnew"
    assert settled.files_changed == 1
    assert settled.tree == await workspace.observe()


async def test_from_a_subfolder_the_whole_repository_counts(repo, open_in):
    (repo.path / "sub").mkdir()
    workspace = await open_in(repo, cwd=repo.path / "sub")
    before = await workspace.observe()
    repo.write("beside")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert repo.git("show", "--format=", "--name-only") == "beside"
    assert settled.tree == await workspace.observe()


async def test_without_commits_changes_are_counted_and_left_alone(repo, open_in):
    workspace = await open_in(repo, commit=False)
    before = await workspace.observe()
    repo.write("a")
    repo.write("b")
    first = await workspace.settle(before, iteration_num=1, message="m")
    assert (first.changed, first.files_changed, first.commit, first.left) == (True, 2, None, ())
    repo.write("b", "again\n")
    second = await workspace.settle(first.tree, iteration_num=2, message="m")
    assert (second.changed, second.files_changed) == (True, 1)
    assert repo.git("status", "--porcelain") == "?? a\n?? b"


async def test_work_left_by_a_fault_is_committed_by_an_iteration_that_adds_nothing(repo, open_in):
    workspace = await open_in(repo)
    repo.write("left by a crash")
    before = await workspace.observe()
    settled = await workspace.settle(before, iteration_num=2, message="all there already")
    assert (settled.changed, settled.files_changed, settled.by) == (False, 1, "loop")
    assert settled.commit == repo.git("rev-parse", "HEAD")
    assert settled.tree == await workspace.observe()


async def test_files_are_counted_against_the_start_even_if_others_looked_in_between(repo, open_in):
    workspace = await open_in(repo, commit=False)
    repo.write("a")
    before = await workspace.observe()
    repo.write("b")
    await workspace.observe()
    assert (await workspace.settle(before, iteration_num=1, message="m")).files_changed == 1


# --- the agent's own commits -----------------------------------------------------------------------


async def test_what_the_agent_committed_is_the_agents(repo, open_in, git_calls):
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("a")
    repo.commit("agent's first")
    repo.write("a", "again\n")
    repo.write("bü")
    head = repo.commit("agent's second")
    git_calls()
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert len(git_calls()) == 3
    assert (settled.by, settled.commit, settled.message) == ("agent", head, "agent's second")
    assert settled.files_changed == 2
    assert settled.tree == await workspace.observe()


async def test_only_what_the_agent_left_over_is_committed_by_the_loop(repo, open_in):
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("a")
    agents = repo.commit("agent's")
    repo.write("left over")
    settled = await workspace.settle(before, iteration_num=1, message="the rest")
    assert repo.git("log", "-2", "--format=%s") == "the rest\nagent's"
    assert (settled.by, settled.files_changed) == ("agent", 2)
    assert settled.commit == repo.git("rev-parse", "HEAD") != agents
    assert repo.git("show", "--format=", "--name-only") == "left over"


async def test_a_commit_taken_back_by_the_agent_is_a_change_without_a_commit(repo, open_in):
    repo.write("a")
    repo.commit("second")
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.git("reset", "-q", "--hard", "HEAD~1")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert (settled.changed, settled.commit, settled.by) == (True, None, "loop")


async def test_an_agent_that_changes_branch_is_reported(repo, open_in):
    workspace = await open_in(repo)
    await workspace.prepare()
    before = await workspace.observe()
    repo.git("switch", "-q", "-c", "elsewhere")
    repo.write("a")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.warning == "commits go to branch elsewhere now, which was made on top of work"
    assert settled.tree.branch == "elsewhere"
    assert settled.commit == repo.git("rev-parse", "elsewhere")


# --- commits that cannot be made -------------------------------------------------------------------


async def test_no_identity_stands_in_for_that_commit_only(plain, open_in, git_calls, told):
    plain.init(identity=False)
    workspace = await open_in(plain)
    assert "commits carry the name untildone" in (await told(workspace))[-1]
    before = await workspace.observe()
    plain.write("a")
    git_calls()
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert len(git_calls()) == 5
    assert settled.commit
    assert plain.git("log", "--format=%an <%ae>") == "untildone <untildone@localhost>"
    assert "user" not in plain.git("config", "--list", "--local")


async def test_only_the_missing_half_of_an_identity_is_filled_in(plain, open_in):
    plain.init(identity=False)
    plain.git("config", "user.name", "Ada")
    workspace = await open_in(plain)
    before = await workspace.observe()
    plain.write("a")
    await workspace.settle(before, iteration_num=1, message="m")
    assert plain.git("log", "--format=%an <%ae>") == "Ada <untildone@localhost>"


async def test_a_failing_hook_loses_nothing_and_restores_the_index(repo, open_in):
    repo.write("staged", "staged\n")
    repo.git("add", "staged")
    repo.hook("pre-commit", r"printf '\033[31mline 80\033[0m is too long\n'; echo 'mend it' >&2; exit 1")
    workspace = await open_in(repo, keep_dirty=True)
    before = await workspace.observe()
    repo.write("work")
    head, index = repo.git("rev-parse", "HEAD"), (repo.path / ".git/index").read_bytes()
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert (settled.changed, settled.commit, settled.files_changed) == (True, None, 1)
    assert settled.warning == "not committed, the work is kept as it is: line 80 is too long\nmend it"
    assert settled.left == ("staged", "work")
    assert repo.git("rev-parse", "HEAD") == head
    assert (repo.path / ".git/index").read_bytes() == index
    assert repo.git("status", "--porcelain") == "A  staged\n?? work"
    assert settled.tree == await workspace.observe()
    assert list((repo.path / ".git").glob("index.*")) == []


async def test_a_failing_hook_in_a_repository_without_index_restores_that_too(plain, open_in):
    plain.init()
    plain.hook("pre-commit", "exit 3")
    workspace = await open_in(plain)
    before = await workspace.observe()
    plain.write("a")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert "git commit ended with 1 and gave no reason" in settled.warning
    assert not (plain.path / ".git/index").exists()


async def test_work_is_committed_once_the_hook_lets_it(repo, open_in):
    repo.hook("pre-commit", "test ! -e bad")
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("bad")
    refused = await workspace.settle(before, iteration_num=1, message="m")
    (repo.path / "bad").unlink()
    repo.write("good")
    settled = await workspace.settle(refused.tree, iteration_num=2, message="m")
    assert settled.commit
    assert (refused.left, settled.left) == (("bad",), ())
    assert repo.git("show", "--format=", "--name-only") == "good"


async def test_a_hook_that_rewrites_files_is_seen_in_the_tree(repo, open_in):
    repo.hook("post-commit", "echo formatted > a")
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("a")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.tree.dirty == settled.left == ("a",)
    assert settled.tree == await workspace.observe()


async def test_conflict_markers_are_not_committed(repo, open_in):
    repo.git("switch", "-q", "-c", "other")
    repo.write("README.md", "theirs\n")
    repo.commit()
    repo.git("switch", "-q", "work")
    repo.write("README.md", "ours\n")
    repo.commit()
    workspace = await open_in(repo)
    before = await workspace.observe()
    with pytest.raises(Exception, match="merge"):
        repo.git("merge", "other")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert settled.warning == "not committed: merge conflicts are unresolved in README.md"
    assert settled.commit is None
    assert settled.left == ("README.md",)
    saved = await workspace.snapshot(iteration_num=1, reason="conflict")
    assert saved is not None
    assert "<<<<<<<" in repo.git("show", f"{saved[0]}:README.md")
    assert repo.git("status", "--porcelain") == "UU README.md"


async def test_a_rebase_in_progress_is_left_to_the_agent(repo, open_in):
    repo.write("a")
    repo.commit("second")
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.git("-c", "sequence.editor=sed -i s/^pick/edit/", "rebase", "-q", "-i", "HEAD~1")
    repo.write("b")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert "a rebase is in progress" in settled.warning
    assert settled.commit is None


async def test_a_change_that_is_none_to_git_is_no_commit_and_no_warning(repo, open_in):
    repo.write(".gitattributes", "*.txt text eol=lf\n")
    repo.write("a.txt", "line\n")
    repo.commit()
    workspace = await open_in(repo)
    before = await workspace.observe()
    (repo.path / "a.txt").write_bytes(b"line\r\n")
    settled = await workspace.settle(before, iteration_num=1, message="m")
    assert (settled.commit, settled.warning, settled.left) == (None, "", ())


async def test_a_cancelled_commit_restores_the_index_and_leaves_no_lock(repo, open_in):
    repo.hook("pre-commit", "touch .git/hook-runs; exec sleep 600")
    workspace = await open_in(repo)
    before = await workspace.observe()
    repo.write("a")
    index = (repo.path / ".git/index").read_bytes()
    settling = asyncio.create_task(workspace.settle(before, iteration_num=1, message="m"))
    await soon((repo.path / ".git/hook-runs").exists)
    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling
    assert (repo.path / ".git/index").read_bytes() == index
    assert [place.name for place in (repo.path / ".git").glob("index*")] == ["index"]
