"""What an agent leaves in its folder keeps git outside from nothing, and makes it start nothing."""

import subprocess
from pathlib import Path

import pytest

from core.run_kit import with_contract
from git.conftest import Project
from git.test_agents_repository import prepared
from untildone.core.policy import RunSpec
from untildone.git import repository
from untildone.git.repository import Inside, Keeping
from untildone.git.workspace import open_workspace

pytestmark = pytest.mark.anyio

BARE = "mkdir -p {0}objects {0}refs/heads; echo 'ref: refs/heads/main' > {0}HEAD; cat > {0}config"
SETTINGS = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {0}\n\tfsmonitor = touch {1}; false\n"


async def test_a_pipe_by_a_name_that_git_reads_is_put_aside(
    repo: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "STATUS_PATIENCE", 1.0)
    one = await prepared(repo, tmp_path)
    start = await one.workspace.observe()
    one.agent("mkdir d; mkfifo .gitattributes d/.gitignore d/pipe; echo x > x")
    result = await one.workspace.settle(start, iteration_num=1, message="m")
    assert result.warning.count("is no file, and git would wait for it") == 2
    assert repo.git("ls-files") == "README.md\nx"
    assert sorted(one.name for one in (repo.path / "d").iterdir()) == [".gitignore.not-for-git", "pipe"]


async def test_a_plain_folder_does_not_become_a_repository(plain: Project, tmp_path: Path) -> None:
    keeping = Keeping(inside=Inside(words=lambda _: (), env={}))
    spec = RunSpec(**with_contract({"goal": "g", "cwd": str(plain.path), "name": "tidy-up"}))
    workspace = await open_workspace(spec, run_id="r1", private=tmp_path / "private", keeping=keeping)
    await workspace.prepare()
    mark = tmp_path / "ran"
    for place in ("", "below/"):
        settings = SETTINGS.format(plain.path, mark)
        subprocess.run(BARE.format(place), shell=True, check=True, cwd=plain.path, input=settings, text=True)
    line = await workspace.leave()
    assert f"{plain.path} looked like a repository" in line
    assert "below is a repository" in line
    subprocess.run(["git", "status"], cwd=plain.path, check=False, capture_output=True)
    assert not mark.exists()
    assert (plain.path / "HEAD.not-for-git").exists()


async def test_a_bare_repository_of_the_user_stays_one(plain: Project, tmp_path: Path) -> None:
    subprocess.run(BARE.format(""), shell=True, check=True, cwd=plain.path, input="", text=True)
    keeping = Keeping(inside=Inside(words=lambda _: (), env={}))
    spec = RunSpec(**with_contract({"goal": "g", "cwd": str(plain.path), "name": "tidy-up"}))
    workspace = await open_workspace(spec, run_id="r1", private=tmp_path / "private", keeping=keeping)
    await workspace.prepare()
    assert await workspace.leave() == ""
    assert (plain.path / "HEAD").exists()
