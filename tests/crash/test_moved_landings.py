"""Killed with -9 in the middle of a landing, then taken up on another machine: it lands once, and nothing is lost."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from archives import new_archive
from crash.crash_kit import KILLED, TESTS, naming
from crash.points import kind_of
from e2e.worker_kit import Server
from engine.pull_kit import GREEN, RED, PullRig, git_in, pull_rig

PR_STEPS = (
    "append landing.committed", "append landing.begun", "lander push", "append landing.pushed", "forge open",
    "append landing.pr_opened", "append landing.rejected", "forge merge", "lander tidy", "forge delete_branch",
    "append landing.merged",
)  # fmt: skip
MERGE_STEPS = ("append landing.begun", "lander merge", "append landing.merged")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    server = Server(folder, new_archive(folder))
    server.start()
    yield server
    server.end()
    assert "Traceback" not in server.log()


class Move:
    """Two machines, one remote, one scripted GitHub whose CI wants more than the checks do, one server."""

    def __init__(self, rig: PullRig, server: Server, land: str) -> None:
        self.rig, self._server, self._land = rig, server, land
        rig.github.checks.ci = lambda commit, _: [GREEN if rig.github.branches.has(commit, "fix.txt") else RED]
        self.there = rig.tmp.parent / f"{rig.tmp.name}-b"

    def drive(self, folder: Path, when: str, die_at: str = "") -> subprocess.CompletedProcess[str]:
        words = (str(folder), self.rig.run_id, self.rig.github.url, self._server.url, self._land, when, die_at)
        known = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "crash.moving_driver", *words],
            cwd=TESTS, env={**known, "OPERATOR": self._server.operator},
            check=False, capture_output=True, text=True, timeout=400,
        )  # fmt: skip
        assert done.returncode in (0, KILLED), done.stdout + done.stderr
        return done

    def dies(self, when: str, die_at: str) -> None:
        assert self.drive(self.rig.tmp, when, die_at).returncode == KILLED, "the boundary was not reached"

    def goes_on(self) -> str:
        """On another machine, in a fresh clone; what it said."""
        self.there.mkdir()
        git_in(self.there, "clone", "-q", str(self.rig.bare), "repo")
        git_in(self.there / "repo", "config", "user.name", "B")
        git_in(self.there / "repo", "config", "user.email", "b@b")
        said = self.drive(self.there, "takes").stdout
        assert said.splitlines()[-1].startswith("completed validation_passed"), said
        assert git_in(self.there / "repo", "status", "--porcelain") == ""
        return said

    def check(self) -> None:
        """Landed once: on the remote by a pull request, or on the base of the clone that the run is in now."""
        here = self.there / "repo"
        if self._land == "pr":
            assert (len(self.rig.github.pulls), self.rig.github.merges) == (1, [1])
            assert self.rig.subjects() == ["make it work (#1)", "first"]
            assert (self.rig.on_base("new.txt"), self.rig.on_base("fix.txt")) == ("new.txt", "fix.txt")
            assert self.rig.branches() == ["main"]
        else:
            assert git_in(here, "log", "--format=%s", "main").splitlines() == ["make it work", "first"]
            assert git_in(here, "show", "main:new.txt") == "new.txt"


def moved(folder: Path, server: Server, land: str, when: str, point: str) -> None:
    folder.mkdir()
    with naming(f"{point} ({land}, {when})"), pull_rig(folder, lambda _, __: []) as rig:
        move = Move(rig, server, land)
        move.dies(when, point)
        move.goes_on()
        move.check()


def last_points(folder: Path, server: Server, land: str, kinds: tuple[str, ...]) -> list[str]:
    """Of each kind of step the last one that a driver passes whom nothing disturbs."""
    folder.mkdir()
    with pull_rig(folder, lambda _, __: []) as rig:
        move = Move(rig, server, land)
        assert move.drive(rig.tmp, "sudden").returncode == 0
        passed = (rig.tmp / "passed.txt").read_text().splitlines()
    found = {kind_of(point): point for point in passed if point.startswith("after")}
    return [found[kind] for kind in kinds]


@pytest.mark.soak
def test_death_after_the_forge_merged_and_a_move(tmp_path: Path, server: Server) -> None:
    moved(tmp_path / "stage", server, "pr", "sudden", "after forge merge 1")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("land", "when", "kinds"),
    [
        ("pr", "sudden", PR_STEPS),
        ("merge", "sudden", MERGE_STEPS),
        ("pr", "told", PR_STEPS),
        ("merge", "told", MERGE_STEPS),
    ],
)
def test_death_in_a_landing_and_a_move(
    tmp_path: Path, server: Server, land: str, when: str, kinds: tuple[str, ...]
) -> None:
    for number, point in enumerate(last_points(tmp_path / "undisturbed", server, land, kinds)):
        moved(tmp_path / str(number), server, land, when, point)


@pytest.mark.soak
def test_what_the_other_machine_merged_and_pushed_is_not_merged_again(tmp_path: Path, server: Server) -> None:
    with pull_rig(tmp_path, lambda _, __: []) as rig:
        move = Move(rig, server, "merge")
        move.dies("told", "after append landing.merged 1")
        rig.git("push", "-q", "origin", "main")
        assert "push only one of them" in move.goes_on()
        move.check()
        assert git_in(move.there / "repo", "rev-parse", "main") == git_in(rig.bare, "rev-parse", "main")
