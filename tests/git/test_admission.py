"""What comes out of a sandbox is looked at first: no tree of a million paths, no repository inside the repository."""

from pathlib import Path

import pytest

from git.agents_kit import boxed
from git.conftest import Project
from git.test_agents_repository import COMMIT, prepared, settled

pytestmark = pytest.mark.anyio

NESTED = f"git init -q sub; cd sub; echo x > x; git add -A; {COMMIT} -m x; cd .."

# Ten folders in each of ten folders, and so on: 10 ** 7 paths in a few objects.
BOMB = """
blob=$(git hash-object -w README.md)
tree=$(for i in 0 1 2 3 4 5 6 7 8 9; do printf '100644 blob %s\\tf%s\\n' $blob $i; done | git mktree)
for level in 1 2 3 4 5 6; do
  tree=$(for i in 0 1 2 3 4 5 6 7 8 9; do printf '040000 tree %s\\td%s\\n' $tree $i; done | git mktree)
done
tree=$({ git ls-tree HEAD; printf '040000 tree %s\\tbomb\\n' $tree; } | git mktree)
commit=$(git -c user.name=a -c user.email=a@a commit-tree -p HEAD -m bomb $tree)
"""


async def test_a_working_tree_that_the_agent_makes_does_not_keep_it_from_committing(
    repo: Project, tmp_path: Path
) -> None:
    one = await prepared(repo, tmp_path)
    first = await settled(one, 1, "git worktree add -q wt -b side; echo x > wt/x; echo y > y")
    second = await settled(one, 2, f"echo z > z; git add z; {COMMIT} -m z; echo more > more")
    assert (first.warning, second.warning) == ("", "")
    assert repo.git("ls-tree", "-r", "--name-only", "HEAD").split() == ["README.md", "more", "y", "z"]
    assert [path for path in second.tree.dirty if not path.startswith("wt/")] == []


async def test_a_repository_that_the_agent_has_staged_is_left_out_of_commits_and_snapshots(
    repo: Project, tmp_path: Path
) -> None:
    one = await prepared(repo, tmp_path)
    result = await settled(one, 1, f"{NESTED}; git add sub; echo y > y")
    assert result.commit is not None, result.warning
    assert repo.git("ls-tree", "-r", "--name-only", "HEAD").split() == ["README.md", "y"]
    assert one.agent("git rev-parse HEAD") == result.commit
    uncommitted = await boxed(repo, tmp_path / "again", run_id="r2", commit=False)
    await uncommitted.workspace.prepare()
    result = await settled(uncommitted, 1, "git add sub; git ls-files -s sub | grep 160000; echo z > z")
    assert repo.git("ls-tree", "-r", "--name-only", result.snapshot).split() == ["README.md", "y", "z"]


async def test_a_branch_with_a_repository_in_it_is_not_kept(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    script = f"{NESTED}; git switch -q -c side; git add sub; {COMMIT} -m sub; git branch fine HEAD~; git switch -q work"
    await settled(one, 1, f"{script}; git switch -q fine; {COMMIT} --allow-empty -m fine; git switch -q work")
    await one.workspace.leave()
    kept = repo.git("for-each-ref", "--format=%(refname)", "refs/untildone/r1/agent")
    assert kept == "refs/untildone/r1/agent/heads/fine"


async def test_a_tree_of_millions_of_paths_stays_inside(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    head = repo.git("rev-parse", "HEAD")
    result = await settled(one, 1, f"{BOMB}git branch side $commit; git update-ref HEAD $commit")
    assert "10000001 files" in result.warning
    result = await settled(one, 2, "echo x > x")
    assert "10000001 files" in result.warning
    assert repo.git("rev-parse", "HEAD") == head
    told = next(words for words in result.warning.split("`") if words.startswith("git "))
    result = await settled(one, 3, f"{told}; git read-tree HEAD; echo y > y")
    await one.workspace.leave()
    assert (result.warning, repo.git("ls-files").split()) == ("", ["README.md", "x", "y"])
    assert "bomb" not in repo.git("log", "--all", "--format=%s")
