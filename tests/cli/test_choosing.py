"""Which run is meant when none is named: the one of this folder, wherever in the repository it works."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cli.cli_kit import SUSPENDED, Runs, Say
from untildone.engine.clock import SystemClock
from untildone.git.kin import kin_of
from untildone.store.sqlite import SqliteLog


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, capture_output=True, check=True, timeout=240)
    return os.fsdecode(done.stdout).rstrip("\n")


@pytest.fixture
def repo(project: Path) -> Path:
    git(project, "init", "-q", "-b", "main")
    (project / "web").mkdir()
    (project / "web" / "a.txt").write_text("a\n")
    git(project, "add", "-A")
    git(project, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    return project


def tree_of(repo: Path, name: str) -> Path:
    place = repo.parent / "project-worktrees" / name
    git(repo, "worktree", "add", "-q", "-b", name, str(place))
    return place


@contextmanager
def being_driven(runs: Runs, folder: Path, name: str, run_id: str) -> Iterator[None]:
    async def take() -> SqliteLog:
        log = SqliteLog(runs.path, SystemClock())
        await log.acquire(run_id, name=name, folder=str(folder))
        return log

    log = asyncio.run(take())
    try:
        yield
    finally:
        asyncio.run(log.close())


Drives = Callable[[Path, str, str], None]


@pytest.fixture
def driven(runs: Runs) -> Iterator[Drives]:
    """Begin a run, and have somebody drive it until the test ends."""
    with ExitStack() as held:

        def begin(folder: Path, name: str, run_id: str) -> None:
            runs.begin(folder, name=name, run_id=run_id, status="running")
            held.enter_context(being_driven(runs, folder, name, run_id))

        yield begin


def test_the_run_in_a_worktree_is_found_from_the_repository_and_from_within(
    repo: Path, runs: Runs, say: Say, driven: Drives, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.begin(repo, SUSPENDED, name="older", run_id="aaaaaaaaaaaa")
    tree = tree_of(repo, "fix")
    driven(tree, "fix", "bbbbbbbbbbbb")
    for place in (repo, repo / "web", tree, tree / "web"):
        monkeypatch.chdir(place)
        said = say("status")
        assert "fix (bbbbbbbbbbbb)" in said.out, place
        assert (f"this is fix, in {tree}" in said.err) == (place != tree)
    assert "fix stops now" in say("stop").out


def test_inside_a_worktree_its_own_run_is_meant(
    repo: Path, runs: Runs, say: Say, driven: Drives, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_of(repo, "fix")
    runs.begin(tree, SUSPENDED, name="fix", run_id="aaaaaaaaaaaa")
    driven(repo, "main-run", "bbbbbbbbbbbb")
    monkeypatch.chdir(tree)
    assert "fix (aaaaaaaaaaaa)" in say("status").out
    assert "main-run (bbbbbbbbbbbb)" in say("status", "--cwd", str(repo)).out


def test_of_several_at_work_one_is_shown_and_the_others_are_named(repo: Path, say: Say, driven: Drives) -> None:
    for number in (1, 2, 3):
        driven(tree_of(repo, f"t{number}"), f"t{number}", f"{number}" * 12)
    said = say("status")
    assert "t3 (333333333333)" in said.out
    assert said.err == "untildone: this is t3; also running in this repository: t2, t1\n"
    refused = say("stop")
    assert refused.code == 2
    assert refused.err == "untildone: 3 runs are running in this repository: name the one you mean (t3, t2, t1)\n"
    driven(repo, "here", "444444444444")
    assert "here stops now" in say("stop").out, "the one of this very folder needs no name"


def test_another_folder_of_the_same_tree_is_another_project(
    repo: Path, runs: Runs, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.begin(repo / "web", SUSPENDED, name="web", run_id="aaaaaaaaaaaa")
    runs.begin(repo, SUSPENDED, name="top", run_id="bbbbbbbbbbbb")
    monkeypatch.chdir(repo / "web")
    said = say("status")
    assert "web (aaaaaaaaaaaa)" in said.out
    assert said.err == ""


def test_a_worktree_that_was_tidied_away_still_has_its_report(repo: Path, runs: Runs, say: Say) -> None:
    runs.begin(repo, SUSPENDED, name="older", run_id="aaaaaaaaaaaa")
    tree = tree_of(repo, "fix")
    runs.begin(tree, SUSPENDED, name="fix", run_id="bbbbbbbbbbbb", repository=str(repo))
    git(repo, "worktree", "remove", str(tree))
    assert "fix" in say("brief").out.splitlines()[0] + say("status").out
    assert "fix (bbbbbbbbbbbb)" in say("status").out


def test_strangers_are_not_meant(repo: Path, runs: Runs, say: Say, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    runs.begin(other, SUSPENDED)
    assert "no run in" in say("status").out
    git(other, "init", "-q")
    assert "no run in" in say("status").out


def test_a_home_kept_in_git_makes_no_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "plain").mkdir()
    assert kin_of(tmp_path / "plain") is None
    assert kin_of(tmp_path / "nowhere") is None


def test_kin_is_told_as_git_tells_it(repo: Path) -> None:
    tree = tree_of(repo, "fix")
    own, linked = kin_of(repo / "web"), kin_of(tree / "web")
    assert own is not None
    assert linked is not None
    asked = ("rev-parse", "--path-format=absolute", "--git-common-dir")
    assert str(own.common) == str(linked.common) == git(tree, *asked)
    assert own.below == linked.below == Path("web")
    assert (own.is_linked, linked.is_linked) == (False, True)
