"""Where a state file came from: what a repository brings along is never taken up by itself."""

import os
from pathlib import Path

import pytest

from hook.stop_kit import Stage, git, goes_on
from untildone.core import loop_file
from untildone.hook import adopting
from untildone.hook.adopting import came_with_repository, read_state
from untildone.hook.places import AUTONOMOUS, CONTINUATION, LOOP, TODOS

TEXT = '---\niteration_count: 1\nmax_iterations: 3\ncompletion_promise: "SHIPPED"\nactive: true\n---\nGoal'
BOTH = [CONTINUATION, AUTONOMOUS]
BLOCKED = "---LOOP_STATUS---\nSTATUS: BLOCKED\n---END_LOOP_STATUS---"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def tracked(stage: Stage, name: str, root: Path | None = None) -> None:
    root = root or stage.project
    git(root, "init", "-q")
    git(root, "add", "-f", str((stage.project / name).relative_to(root)))


def untouched(stage: Stage, name: str) -> bool:
    return stage.stop() == {} and stage.entry is None and (stage.project / name).read_text() == TEXT


@pytest.mark.parametrize("name", BOTH)
def test_a_repository_that_does_not_know_it_leaves_it_to_the_user(stage: Stage, name: str) -> None:
    stage.put(name, TEXT)
    stage.under_git()
    assert goes_on(stage.stop())


@pytest.mark.parametrize("repository", ["none", "nothing added", "version 4"])
@pytest.mark.parametrize("name", BOTH)
def test_writing_the_file_starts_the_loop_wherever_git_does_not_track_it(
    stage: Stage, name: str, repository: str
) -> None:
    stage.put(name, TEXT)
    if repository == "nothing added":
        git(stage.project, "init", "-q")
    elif repository == "version 4":
        stage.under_git()
        git(stage.project, "update-index", "--index-version", "4")
    assert not came_with_repository(str(stage.project), name)
    assert goes_on(stage.stop())


def test_an_index_that_git_cannot_read_tells_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.put(CONTINUATION, TEXT)
    git(stage.project, "init", "-q")
    index = stage.project / ".git" / "index"
    index.mkdir()
    assert untouched(stage, CONTINUATION)
    index.rmdir()
    os.mkfifo(index)
    monkeypatch.setattr(adopting, "PATIENCE", 0.2)
    assert untouched(stage, CONTINUATION), "a pipe does not block"


def test_a_project_of_a_machine_without_git_tells_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.put(CONTINUATION, TEXT)
    stage.under_git()
    monkeypatch.setenv("PATH", "/nowhere")
    assert untouched(stage, CONTINUATION)


def test_nothing_that_a_repository_names_is_run(stage: Stage, tmp_path: Path) -> None:
    stage.put(CONTINUATION, TEXT)
    stage.under_git()
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/pwned'\n")
    program.chmod(0o755)
    git(stage.project, "config", "core.fsmonitor", str(program))
    assert goes_on(stage.stop())
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("name", "message", "ended"),
    [
        (CONTINUATION, "Shipped, I renamed the variable.", "done"),
        (AUTONOMOUS, "EXIT_SIGNAL: true", "done"),
        (CONTINUATION, BLOCKED, "blocked"),
        (CONTINUATION, "I renamed the variable.", "no turns are left"),
    ],
)
def test_the_very_first_stop_counts(stage: Stage, name: str, message: str, ended: str) -> None:
    stage.put(name, TEXT.replace("max_iterations: 3", "max_iterations: 1"))
    answer = stage.stop(message)
    assert not goes_on(answer)
    assert ended in answer["systemMessage"]
    assert not (stage.project / name).exists()


def test_a_pointer_to_an_empty_folder_tells_nothing(stage: Stage) -> None:
    stage.put(CONTINUATION, TEXT)
    (stage.project / "empty").mkdir()
    stage.put(".git", "gitdir: empty\n")
    assert untouched(stage, CONTINUATION)


@pytest.mark.parametrize("name", [CONTINUATION, AUTONOMOUS, LOOP, TODOS])
def test_a_submodule_is_part_of_the_repository(stage: Stage, tmp_path: Path, name: str) -> None:
    folder, _, file = name.partition("/")
    evil = tmp_path / "evil"
    evil.mkdir()
    git(evil, "init", "-q")
    (evil / file).write_text(TEXT)
    git(evil, "add", file)
    git(evil, "commit", "-q", "-m", "all of it")
    stage.under_git()
    git(stage.project, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(evil), folder)
    assert untouched(stage, name)
    assert came_with_repository(str(stage.project), name)
    (stage.project / folder / ".git").unlink()
    assert came_with_repository(str(stage.project), name), "the outer index has the folder"
    git(stage.project, "update-index", "--force-remove", folder)
    assert not came_with_repository(str(stage.project), name)
    git(stage.project / folder, "init", "-q")
    assert came_with_repository(str(stage.project), name), "nobody makes our folder a repository of its own"


def test_a_sparse_index_has_whole_folders(stage: Stage) -> None:
    stage.put(CONTINUATION, TEXT)
    stage.under_git()
    git(stage.project, "add", "-f", ".")
    git(stage.project, "commit", "-q", "-m", "all of it")
    git(stage.project, "sparse-checkout", "set", "--cone", "--sparse-index", "nothing")
    stage.put(CONTINUATION, TEXT)
    assert untouched(stage, CONTINUATION)


@pytest.mark.parametrize("name", BOTH)
def test_tracked_it_came_with_the_repository(stage: Stage, name: str) -> None:
    stage.put(name, TEXT)
    tracked(stage, name)
    assert untouched(stage, name)


def test_a_project_may_be_a_folder_of_a_repository(stage: Stage) -> None:
    stage.put(CONTINUATION, TEXT)
    tracked(stage, CONTINUATION, stage.project.parent)
    assert untouched(stage, CONTINUATION)


def test_a_file_of_that_name_elsewhere_in_the_repository_is_another_one(stage: Stage) -> None:
    stage.put(f"docs/{CONTINUATION}", TEXT)
    tracked(stage, f"docs/{CONTINUATION}")
    stage.put(CONTINUATION, TEXT)
    assert not came_with_repository(str(stage.project), CONTINUATION)


def test_names_that_differ_in_case_may_be_the_same_file(stage: Stage) -> None:
    stage.put(".Stravinsky/Continuation-Loop.md", TEXT)
    tracked(stage, ".Stravinsky/Continuation-Loop.md")
    assert came_with_repository(str(stage.project), CONTINUATION)


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_every_version_of_an_index(stage: Stage, version: str) -> None:
    stage.put(CONTINUATION, TEXT)
    stage.put(".stravinsky/continuation-loo.md", TEXT)
    tracked(stage, ".stravinsky")
    git(stage.project, "update-index", "--index-version", version)
    assert untouched(stage, CONTINUATION)


def test_an_index_that_is_split(stage: Stage) -> None:
    stage.put(CONTINUATION, TEXT)
    tracked(stage, CONTINUATION)
    git(stage.project, "update-index", "--split-index")
    assert untouched(stage, CONTINUATION)


def test_a_worktree_has_an_index_of_its_own(stage: Stage, tmp_path: Path) -> None:
    main = tmp_path / "main"
    (main / ".stravinsky").mkdir(parents=True)
    (main / CONTINUATION).write_text(TEXT)
    git(main, "init", "-q")
    git(main, "add", ".")
    git(main, "commit", "-q", "-m", "first")
    stage.project.rmdir()
    git(main, "worktree", "add", "-q", "--detach", str(stage.project))
    assert untouched(stage, CONTINUATION)


@pytest.mark.parametrize("damage", ["gone", "garbage", "pointer"])
def test_where_it_cannot_be_told_it_is_left_alone(stage: Stage, damage: str) -> None:
    stage.put(CONTINUATION, TEXT)
    folder = stage.project / ".git"
    if damage == "pointer":
        folder.write_text("gitdir: /nowhere/at/all\n")
    else:
        git(stage.project, "init", "-q")
        (folder / "index").write_bytes(b"garbage" if damage == "garbage" else b"")
    assert untouched(stage, CONTINUATION)


def test_one_of_ours_is_only_taken_up_by_a_command(stage: Stage) -> None:
    stage.put(LOOP, loop_file.new_file("Goal"))
    stage.put(CONTINUATION, TEXT)
    stage.under_git()
    assert untouched(stage, CONTINUATION)


def test_links_are_no_state_files(stage: Stage, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text(TEXT)
    stage.under_git()
    (stage.project / ".stravinsky").mkdir()
    (stage.project / CONTINUATION).symlink_to(secret)
    assert stage.stop() == {}
    (stage.project / CONTINUATION).unlink()
    (stage.project / ".stravinsky").rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "continuation-loop.md").write_text(TEXT)
    (stage.project / ".stravinsky").symlink_to(elsewhere)
    assert stage.stop() == {}
    assert stage.entry is None
    assert [secret.read_text(), (elsewhere / "continuation-loop.md").read_text()] == [TEXT, TEXT]


def test_pipes_folders_and_huge_files_are_no_state_files(stage: Stage) -> None:
    stage.under_git()
    path = stage.project / CONTINUATION
    path.parent.mkdir()
    os.mkfifo(path)
    assert stage.stop() == {}
    path.unlink()
    path.mkdir()
    assert stage.stop() == {}
    path.rmdir()
    path.write_text(TEXT + "x" * (2 << 20))
    assert stage.stop() == {}
    assert read_state(str(stage.project), CONTINUATION) is None


def test_a_folder_that_cannot_be_written_is_left_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.put(CONTINUATION, TEXT)
    stage.under_git()
    really = os.access
    # The tests may run as root, who may write everywhere: the system's answer is the only thing that can be changed.
    monkeypatch.setattr(os, "access", lambda path, mode: ".stravinsky" not in str(path) and really(path, mode))
    assert untouched(stage, CONTINUATION)
