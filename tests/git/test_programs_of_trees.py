"""What an agent in a sandbox may have written runs nowhere else: hooks, filters and drivers that lie in the tree."""

from dataclasses import replace
from pathlib import Path

import pytest

from git.agents_kit import boxed
from git.conftest import Project
from untildone import trees
from untildone.core.policy import AgentOptions
from untildone.git.base import Base
from untildone.git.filters import leads_into
from untildone.git.snapshot import saved_states

pytestmark = pytest.mark.anyio

PROGRAMS = {
    "filter.x.clean": "sh tools/f.sh",
    "filter.x.smudge": "sh tools/f.sh",
    "merge.m.driver": "sh tools/f.sh %A",
    "diff.d.textconv": "sh tools/f.sh",
    "core.hooksPath": ".husky",
}
HOOKS = ("post-checkout", "post-commit", "post-merge", "reference-transaction", "post-index-change")
HOSTILE = """
printf 'touch {mark}; cat $1' > tools/f.sh
for hook in {hooks}; do printf '#!/bin/sh\\ntouch {mark}\\n' > .husky/$hook; chmod +x .husky/$hook; done
sed -i 's/^3$/three/' text; echo zz > z.dat; echo n > n.dat
"""


def with_programs(repo: Project, mark: Path) -> str:
    """What the agent does to the user's own programs in the tree."""
    repo.write("tools/f.sh", "cat $1\n")
    repo.write(".husky/post-checkout", "#!/bin/sh\n")
    repo.write(".gitattributes", "*.dat filter=x\ntext merge=m diff=d\n")
    repo.write("z.dat", "z\n")
    repo.write("text", "".join(f"{number}\n" for number in range(20)))
    for key, value in PROGRAMS.items():
        repo.git("config", key, value)
    repo.commit("programs")
    repo.git("branch", "-f", "main", "work")
    return HOSTILE.format(mark=mark, hooks=" ".join(HOOKS))


async def test_nothing_in_the_tree_runs_when_work_lands_goes_back_or_is_forked(repo: Project, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    script = with_programs(repo, mark)
    one = await boxed(repo, tmp_path)
    await one.workspace.prepare()
    start = await one.workspace.observe()
    one.agent(script)
    result = await one.workspace.settle(start, iteration_num=1, message="m")
    assert result.commit is not None, result.warning
    main = repo.git("rev-parse", "main")
    await Base(one.repository, "main").forward(main, result.commit, why="a test")
    assert repo.git("rev-parse", "main") == result.commit
    repo.git("update-ref", "refs/heads/main", main)
    other = tmp_path / "other"
    repo.git("-c", "core.hooksPath=/dev/null", "worktree", "add", "-q", str(other), "main")
    mark.unlink(missing_ok=True)  # these two were the user
    await Base(one.repository, "main").forward(main, result.commit, why="a test")
    assert (other / "z.dat").read_text() == "zz\n"
    spec = replace(one.workspace._spec, options=AgentOptions(sandbox="bwrap"))
    state = (await saved_states(one.repository, "r1"))[-1]
    repository, _ = await trees.snapshot_after(spec, "r1", 1, tmp_path)
    placed = await trees.make_fork(repository, state, spec, name="fork", parent=str(tmp_path / "forks"))
    assert (placed.folder / "n.dat").read_text() == "n\n"
    repo.write("z.dat", "changed\n")
    await trees.go_back(repository, "r1", state, branch="work")
    assert (repo.path / "z.dat").read_text() == "zz\n"
    assert not mark.exists()


def test_a_program_of_the_tree_is_told_from_one_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "here.sh").touch()
    inside = ("tools/new.sh", "sh ./x.sh", "sh here.sh", f"{tmp_path}/tools/x", "sh -c 'cd . && tools/x'", "sh 'x")
    outside = ("git-lfs clean -- %f", "sed -e s/a/b/", "/usr/bin/env cat", "cat")
    assert [one for one in inside if not leads_into(one, tmp_path)] == []
    assert [one for one in outside if leads_into(one, tmp_path)] == []
