"""On the real Claude Code: the work arrives where it was wanted, and nobody's tree is touched on the way."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.kit import Stage, finished, staged, working
from engine.pull_kit import GREEN, RUNNING, git_in
from untildone.rehearsal.github import TOKEN, ScriptedGitHub
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

MAKE_B = ("make b.txt", "--check", "test -f b.txt", "--allowed-tools", "Bash", "--name", "it", "-m", "3")
HUMAN_MOVES_THE_BASE = "git update-ref refs/heads/work $(git commit-tree work^{tree} -p work -m human)"


def acts(command: str, text: str | None = None) -> tuple[Reply, ...]:
    """An iteration: one command, then a claim or other words."""
    return (Reply(tools=(ToolCall("Bash", {"command": command}),)), Reply(text=text or finished("b.txt is there.")))


WORK = acts("echo b > b.txt")


def script(*iterations: tuple[Reply, ...]) -> Scenario:
    return Scenario(name="arrival", iterations=iterations)


def tree_of(folder: Path) -> dict[str, bytes]:
    """Every file of a tree, without what git keeps."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


def reached(result: dict[str, Any]) -> tuple[Any, ...]:
    return (result["exit_reason"], result["verified"], result["exit_code"])


DONE = ("validation_passed", True, 0)


def test_a_worktree_of_its_own_leaves_the_users_tree_as_it_is(tmp_path: Path) -> None:
    with staged(tmp_path, script(WORK)) as stage:
        (stage.repo / "a.txt").write_text("to be put aside\n")
        stage.git("stash", "-q")
        (stage.repo / "staged.txt").write_text("staged\n")
        stage.git("add", ".")
        (stage.repo / "staged.txt").write_text("and edited again\n")
        (stage.repo / "untracked.txt").write_text("mine\n")

        def users() -> tuple[object, ...]:
            refs = [line for line in stage.git("show-ref", "--head").splitlines() if "untildone" not in line]
            return tree_of(stage.repo), (stage.repo / ".git/index").read_bytes(), refs

        before = users()
        assert reached(stage.result_here("run", *MAKE_B, "--worktree")) == DONE
        assert users() == before
        (own,) = [tree for tree in json.loads(stage.here("worktrees", "ls", "--json").stdout) if tree["run_id"]]
        place = Path(own["path"])
        assert (own["branch"], own["base"], own["unmerged"], own["reclaimable"]) == ("untildone/it", "work", 1, False)
        assert tree_of(place) == {"a.txt": b"a\n", "b.txt": b"b\n"}
        kept = stage.here("worktrees", "reclaim", "--yes").stdout
        assert kept.startswith(f"keep    {place}: "), "its commit is nowhere else"
        stage.git("commit", "-qm", "mine")
        stage.git("merge", "-q", "--no-edit", "untildone/it")
        assert "nothing was removed: --yes does it" in stage.here("worktrees", "reclaim").stdout
        assert place.is_dir()
        assert "removed 1 worktree" in stage.here("worktrees", "reclaim", "--yes").stdout
        assert not place.exists()
        assert "untildone/it" in stage.git("branch")


@pytest.mark.soak
def test_rewind_and_fork_bring_back_the_exact_tree_untracked_files_included(tmp_path: Path) -> None:
    iterations = (
        acts("echo 1 > n.txt; echo 1 > only1", working()),
        acts("echo 2 > n.txt; mv only1 only2; echo 2 > only2; echo 2 >> a.txt", working()),
        acts("true", working()),
        acts("echo end >> n.txt"),
    )
    with staged(tmp_path, script(*iterations)) as stage:
        trees = {1: {"a.txt": b"a\n", "n.txt": b"1\n", "only1": b"1\n"}}
        trees[2] = {"a.txt": b"a\n2\n", "n.txt": b"2\n", "only2": b"2\n"}
        head = stage.git("rev-parse", "HEAD")
        args = ("--check", "grep -q end n.txt", "--allowed-tools", "Bash", "--land", "none", "--name", "it")
        assert stage.here("run", "go on", "-m", "2", *args).returncode == 3
        assert tree_of(stage.repo) == trees[2]
        back = stage.here("rewind", "it", "1")
        assert back.returncode == 0, back.stderr
        assert tree_of(stage.repo) == trees[1]
        assert stage.git("status", "--porcelain") == "?? n.txt\n?? only1\n", "nothing is staged or committed"
        assert (stage.git("rev-parse", "HEAD"), stage.git("branch", "--show-current")) == (head, "work\n")

        forked = stage.here("fork", "it", "--from", "2", "-m", "1")
        assert forked.returncode == 3, forked.stderr
        elsewhere = tmp_path / "repo-worktrees/untildone-it-from-2"
        assert tree_of(elsewhere) == trees[2]
        assert git_in(elsewhere, "status", "--porcelain") == "M a.txt\n?? n.txt\n?? only2"
        assert reached(stage.result_here("resume", "it-from-2", "--max-runs", "2")) == DONE
        assert tree_of(elsewhere) == {**trees[2], "n.txt": b"2\nend\n"}
        assert tree_of(stage.repo) == trees[1], "a fork is not here"
        assert reached(stage.result_here("resume", "it", "--max-runs", "3")) == DONE
        assert tree_of(stage.repo) == {**trees[1], "n.txt": b"1\nend\n"}


@pytest.mark.parametrize(
    ("strategy", "subjects", "parents"),
    [
        ("squash", ["make b.txt", "human", "first"], 1),
        pytest.param("merge", ["make b.txt", "human", "b.txt is there", "first"], 2, marks=pytest.mark.soak),
        pytest.param("rebase", ["b.txt is there", "human", "first"], 1, marks=pytest.mark.soak),
    ],
)
def test_done_work_is_merged_into_a_base_that_moved(
    tmp_path: Path, strategy: str, subjects: list[str], parents: int
) -> None:
    with staged(tmp_path, script(WORK)) as stage:
        more = ("--land", "merge", "--merge-strategy", strategy, "--after-iteration", HUMAN_MOVES_THE_BASE)
        result = stage.result_here("run", *MAKE_B, *more)
        assert reached(result) == DONE, result
        assert sorted(stage.git("log", "--format=%s", "work").splitlines()) == sorted(subjects)
        assert len(stage.git("log", "-1", "--format=%P", "work").split()) == parents
        assert stage.git("ls-tree", "--name-only", "work").split() == ["a.txt", "b.txt"]
        merged = stage.git("rev-parse", "work").strip()
        assert f"\nIt has landed in work as {merged[:8]}.\n" in stage.here("brief", "it").stdout


@pytest.mark.soak
def test_what_a_reviewer_finds_is_fixed_before_it_lands(tmp_path: Path) -> None:
    asks = (Reply(text="b.txt:1 must say two\n\nREVIEW: CHANGES"),)
    agrees = (Reply(text="It does what it should.\n\nREVIEW: APPROVE"),)
    with staged(tmp_path, script(WORK, asks, acts("echo two > b.txt"), agrees)) as stage:
        result = stage.result_here("run", *MAKE_B, "--review", "--land", "merge")
        assert (*reached(result), result["attempts"]) == (*DONE, 2)
        kinds = [event["event_type"] for event in stage.events("it")]
        assert kinds.count("landing.merged") == 1
        assert stage.git("show", "work:b.txt") == "two\n"
        assert any("> b.txt:1 must say two" in str(request.body["messages"]) for request in stage.model.requests)
        assert "2 reviews, 1 approved" in stage.here("brief", "it").stdout


@contextmanager
def on_github(stage: Stage) -> Iterator[ScriptedGitHub]:
    """The repository on its default branch, a bare remote, and a forge whose CI takes a moment."""
    bare = stage.tmp / "origin.git"
    stage.git("branch", "-m", "main")
    git_in(stage.tmp, "init", "-q", "--bare", "-b", "main", str(bare))
    stage.git("remote", "add", "origin", str(bare))
    stage.git("push", "-q", "-u", "origin", "main")
    stage.git("remote", "set-head", "origin", "main")
    stage.env["GITHUB_TOKEN"] = TOKEN
    with ScriptedGitHub(bare, lambda _, look: [RUNNING if look == 1 else GREEN]) as github:
        yield github


@pytest.mark.parametrize(
    "at_once",
    [
        pytest.param(True, id="run --land pr"),
        pytest.param(False, id="run, then land --land pr", marks=pytest.mark.soak),
    ],
)
def test_work_arrives_through_a_pull_request(tmp_path: Path, at_once: bool) -> None:
    with staged(tmp_path, script(WORK)) as stage, on_github(stage) as github:
        by_pull = ("--land", "pr", "--repo", github.repo, "--forge-url", github.url, "--ci-poll", "1")
        result = stage.result_here("run", *MAKE_B, *(by_pull if at_once else ()))
        assert reached(result) == DONE, result
        proven = stage.git("rev-parse", f"refs/untildone/{result['run_id']}/1").strip()
        if not at_once:
            assert github.requests == []
            assert reached(stage.result_here("land", "it", *by_pull)) == DONE
        assert github.merges == [1]
        pull = github.pulls[1]
        assert (pull.base, pull.branch, pull.title, pull.head) == ("main", "untildone/it", "make b.txt", proven)
        assert f"verified commit {proven}" in pull.body
        bare = tmp_path / "origin.git"
        assert git_in(bare, "show", "main:b.txt") == "b"
        assert git_in(bare, "for-each-ref", "--format=%(refname:short)", "refs/heads") == "main"
        assert stage.git("branch", "--format=%(refname:short) %(HEAD)") == "main *\n"
        assert stage.git("rev-parse", "main").strip() == git_in(bare, "rev-parse", "main") == pull.merged
        kinds = [event["event_type"] for event in stage.events("it") if event["event_type"].startswith("landing.")]
        assert kinds[-2:] == ["landing.watched", "landing.merged"]
        assert not any(TOKEN.encode() in kept for kept in tree_of(tmp_path / "state").values())
        assert not any(TOKEN in str(request.body) for request in stage.model.requests)
        assert len(stage.model.ledger.served()) == 2, "landing asked no agent"


def test_goals_that_follow_each_other_land_one_after_the_other(tmp_path: Path) -> None:
    """Both change the same line: built on what was squashed, the second would conflict."""
    goals = ("Say one in a.txt", "Say two in a.txt")
    (tmp_path / "second.md").write_text(f"# Goal\n\n{goals[1]}\n")
    words = [goal.split()[1] for goal in goals]
    with staged(tmp_path, script(*(acts(f"echo {word} > a.txt", finished("Done.")) for word in words))) as stage:
        allowed = ("--check", "true", "--allowed-tools", "Bash", "-m", "2", "--land", "merge")
        result = stage.result_here("run", goals[0], *allowed, "--then", str(tmp_path / "second.md"))
        assert reached(result) == DONE, result
        assert stage.git("log", "--format=%s", "work").splitlines() == [*reversed(goals), "first"]
        assert stage.git("branch", "--show-current") == "work\n"
        assert (stage.git("status", "--porcelain"), stage.git("show", "HEAD:a.txt")) == ("", "two\n")
        assert len(stage.model.ledger.served()) == 2 * len(goals), "nothing had to be mended"


@pytest.mark.soak
def test_a_lock_that_a_dead_git_left_costs_no_iteration(tmp_path: Path) -> None:
    # Claude Code lets no command name a file of .git.
    dies = tmp_path / "dies.sh"
    dies.write_text("echo b > b.txt; touch -d '1 hour ago' .git/index.lock .git/refs/heads/work.lock\n")
    with staged(tmp_path, script(acts(f"sh {dies}"))) as stage:
        result = stage.result_here("run", *MAKE_B)
        assert (*reached(result), result["attempts"], result["error"]) == (*DONE, 1, None), result
        assert stage.git("show", "work:b.txt") == "b\n"
        assert stage.here("log", "it", "-v").stdout.count("left behind by a git that is not running any more") == 2


@pytest.mark.soak
def test_a_conflict_is_resolved_by_a_merge_with_the_default_permissions(tmp_path: Path) -> None:
    other, flag = tmp_path / "other", tmp_path / "done"
    human = (
        f"test -e {flag} || {{ touch {flag}; git worktree add -q {other} work; echo theirs > {other}/b.txt; "
        f"git -C {other} add b.txt; git -C {other} commit -qm human; git worktree remove {other}; }}"
    )
    b = str(tmp_path / "repo/b.txt")
    makes = (Reply(tools=(ToolCall("Write", {"file_path": b, "content": "ours\n"}),)), Reply(text=finished("Made.")))
    merges = (
        Reply(tools=(ToolCall("Bash", {"command": "git merge work"}),)),
        Reply(tools=(ToolCall("Read", {"file_path": b}),)),
        Reply(tools=(ToolCall("Write", {"file_path": b, "content": "theirs and ours\n"}),)),
        Reply(tools=(ToolCall("Bash", {"command": "git add b.txt && git commit --no-edit"}),)),
        Reply(text=finished("Merged.")),
    )
    with staged(tmp_path, script(makes, merges)) as stage:
        told = ("--check", "test -f b.txt", "--name", "it", "-m", "3", "--land", "merge")
        result = stage.result_here("run", "make b.txt", *told, "--after-iteration", human)
        assert (*reached(result), result["attempts"]) == (*DONE, 2), result
        assert stage.git("show", "work:b.txt") == "theirs and ours\n"
        assert stage.git("branch", "--show-current") == "work\n"
