import asyncio
import os
import signal
from pathlib import Path

import pytest

from patience import PATIENCE, run_out, soon
from processes import until_dead
from untildone.errors import WorkspaceError
from untildone.git.run import git, lend, take_back

pytestmark = pytest.mark.anyio


async def test_answers_with_code_output_and_error(repo):
    assert (await git(["rev-parse", "--abbrev-ref", "HEAD"], cwd=repo.path)).text == "work"
    failed = await git(["rev-parse", "--verify", "-q", "nothing"], cwd=repo.path, check=False)
    assert failed.code != 0


async def test_a_failure_is_one_line_that_names_command_folder_and_cause(repo):
    with pytest.raises(WorkspaceError) as caught:
        await git(["switch", "no-such-branch"], cwd=repo.path)
    assert str(caught.value) == f"git switch failed in {repo.path}: fatal: invalid reference: no-such-branch"


async def test_a_folder_of_another_owner_names_the_fix(repo):
    with pytest.raises(WorkspaceError) as caught:
        await git(["status"], cwd=repo.path, env={"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"})
    assert "dubious ownership" in str(caught.value)
    assert str(caught.value).endswith(f"; run `git config --global --add safe.directory {repo.path}`")


async def test_inherited_variables_do_not_lead_to_another_repository(repo, tmp_path, monkeypatch):
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    assert (await git(["rev-parse", "--show-toplevel"], cwd=repo.path)).text == str(repo.path)


async def test_missing_git_names_the_install_command(repo, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkspaceError, match="git is not installed: run `"):
        await git(["status"], cwd=repo.path)


async def test_missing_folder_is_not_taken_for_missing_git(tmp_path):
    with pytest.raises(WorkspaceError, match=r"cannot work in .*gone"):
        await git(["status"], cwd=tmp_path / "gone")


async def test_a_vanished_folder_for_temporary_files_is_one_clear_line(repo, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(repo.path / "no-such-place"))
    with pytest.raises(
        WorkspaceError, match=r"git status cannot run in .*: the folder for temporary files, .*, is gone"
    ):
        await git(["-c", "a.b=c", "status"], cwd=repo.path)


async def test_stdin_reaches_git(repo):
    answer = await git(["hash-object", "--stdin"], cwd=repo.path, stdin=b"hello\n")
    assert answer.text == "ce013625030ba8dba906f756967f9e9ca394464a"


async def test_a_hook_that_leaves_a_process_behind_does_not_hold_us(repo):
    repo.hook("post-commit", f"sleep 600 & echo $! > {repo.path}/.git/left")
    repo.write("a")
    repo.git("add", "-A")
    async with asyncio.timeout(PATIENCE):
        await git(["commit", "-q", "-m", "x"], cwd=repo.path)
    os.kill(int((repo.path / ".git/left").read_text()), signal.SIGKILL)


async def test_too_late_ends_the_hook_too_and_leaves_no_lock(repo):
    repo.hook("pre-commit", "echo $$ > .git/pid.new; mv .git/pid.new .git/hook-pid; exec sleep 600")
    repo.write("a")
    repo.git("add", "-A")
    committing = asyncio.create_task(git(["commit", "-q", "-m", "x"], cwd=repo.path, timeout=5000))
    await soon((repo.path / ".git/hook-pid").exists, "the hook")
    await run_out(5000)
    with pytest.raises(WorkspaceError, match=r"git commit did not end within 5000 s"):
        await committing
    pid = int((repo.path / ".git/hook-pid").read_text())
    await until_dead(pid)
    assert not (repo.path / ".git/index.lock").exists()


async def test_a_git_that_an_agent_has_put_somewhere_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, elsewhere = tmp_path / "tree", tmp_path / "elsewhere"
    for folder in (tree / ".git", tree / "bin", elsewhere):
        folder.mkdir(parents=True)
    (tree / "bin" / "git").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tree / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"bin:{tree}/bin:{os.environ['PATH']}")
    assert (await git(("--version",), cwd=tree / "bin")).text.startswith("git version"), "lent or not"
    lend([tree])
    try:
        assert (await git(("--version",), cwd=elsewhere)).text.startswith("git version")
        shown = await git(("-c", "alias.path=!echo $PATH", "path"), cwd=elsewhere)
        assert f"{tree}/bin" not in shown.text
    finally:
        take_back([tree])
    assert not (tmp_path / "ran").exists()
    await git(("--version",), cwd=elsewhere)
    assert (tmp_path / "ran").exists(), "who works on the host finds what the PATH says"
