"""Kills at random moments, on the real Claude Code: the books stay right, no work is lost, nothing is left running."""

import os
import sys
from pathlib import Path

import pytest

from crash.torture import torture

pytestmark = pytest.mark.claude

NOBODY = 65534


def check(tmp_path: Path, kills: int, seed: int, uid: int | None = None) -> None:
    told: list[str] = []
    sums = torture(kills, seed, tmp_path, uid=os.getuid() if uid is None else uid, append=told.append)
    print(sums.line())
    assert (sums.kills, sums.wrong) == (kills, 0), "\n".join(told)


@pytest.mark.soak
def test_two_kills_at_random_moments(tmp_path: Path) -> None:
    check(tmp_path, 2, seed=15)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_sixty_kills_at_random_moments(tmp_path: Path, seed: int) -> None:
    """Fifteen each, so that several processes can share them."""
    check(tmp_path, 15, seed=1000 + seed)


@pytest.mark.soak
def test_kills_of_an_ordinary_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where this user may execute the Python of the tests."""
    if os.getuid() != 0 or not _may_enter(Path(sys.executable).resolve()):
        pytest.skip("needs root, and a Python that everybody may execute: python tests/crash/torture.py --uid")
    folder = tmp_path_factory.mktemp("ordinary")
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o755)
    check(folder, 15, seed=3, uid=NOBODY)


def _may_enter(program: Path) -> bool:
    return all(place.stat().st_mode & 0o001 for place in (program, *program.parents))
