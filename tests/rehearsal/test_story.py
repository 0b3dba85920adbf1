import subprocess
from pathlib import Path

import pytest

from patience import PATIENCE
from untildone.errors import WorkspaceError
from untildone.rehearsal.scenario import Reply
from untildone.rehearsal.story import make_scratch_repository, story


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=PATIENCE
    ).stdout


def check(folder: Path) -> int:
    (command,) = story().checks
    return subprocess.run(
        command, cwd=folder, shell=True, capture_output=True, check=False, timeout=PATIENCE
    ).returncode


def apply_edits(folder: Path, replies: tuple[Reply, ...]) -> None:
    for call in (call for reply in replies for call in reply.tools if call.name == "Edit"):
        path = folder / call.input["file_path"]
        text = path.read_text(encoding="utf-8")
        assert text.count(call.input["old_string"]) == 1
        path.write_text(text.replace(call.input["old_string"], call.input["new_string"]), encoding="utf-8")


def test_the_scratch_repository_is_clean_and_its_check_fails(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "repo"
    make_scratch_repository(folder)
    assert git(folder, "log", "--format=%an|%s") == "untildone rehearsal|Two conversions to write\n"
    assert git(folder, "branch", "--show-current") == "main\n"
    assert check(folder) == 1
    assert git(folder, "status", "--porcelain") == ""


def claims_done(replies: tuple[Reply, ...]) -> bool:
    """By the report tool or by a block in the last message."""
    reported = any(call.input.get("exit_signal") for reply in replies for call in reply.tools)
    return reported or "STATUS: COMPLETE" in replies[-1].text


def test_the_check_agrees_only_with_the_last_claim(tmp_path: Path) -> None:
    make_scratch_repository(tmp_path)
    iterations = story().scenario.iterations
    verdicts = []
    for replies in iterations:
        apply_edits(tmp_path, replies)
        verdicts.append((claims_done(replies), check(tmp_path) == 0))
    assert verdicts == [(False, False), (True, False), (True, True)]
    assert [reply.status for reply in iterations[0] if reply.status] == [429]


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine", encoding="utf-8")
    for taken in (tmp_path, precious):
        with pytest.raises(WorkspaceError, match="the scratch repository needs an empty folder"):
            make_scratch_repository(taken)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_without_git_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkspaceError, match="the rehearsal needs git on PATH"):
        make_scratch_repository(tmp_path / "repo")
