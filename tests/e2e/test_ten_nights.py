"""Ten nights, scripted, on the real Claude Code: whatever happens, the morning is as a careful human wants it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.nights import GOALS, KINDS, NIGHT, NIGHTS, PLAIN, TROUBLES, home_of

pytestmark = [pytest.mark.claude, pytest.mark.soak]

TESTS = Path(__file__).parent.parent
LOOPBACK_ONLY = 'ip link set lo up && exec "$@"'


@pytest.mark.parametrize("kind", KINDS)
def test_the_morning_after(tmp_path: Path, kind: str) -> None:
    """All nights of this kind of repository, one after the other in the same place."""
    nights = [night for night in NIGHTS if night.kind.name == kind]
    if kind == "node":
        assert shutil.which("npm"), "the soak needs npm"
    own_network = ["unshare", *(["-n"] if os.geteuid() == 0 else ["-r", "-n"]), "sh", "-c", LOOPBACK_ONLY, "sh"]
    played = subprocess.run(
        [*own_network, sys.executable, "-m", "e2e.nights", str(tmp_path), kind],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=NIGHT * len(nights),
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    told = [json.loads(line)["troubles"] for line in played.stdout.splitlines()]
    assert told == [[trouble.kind for trouble in night.troubles] for night in nights]


def test_ten_nights_know_every_trouble_in_several_kinds_of_repositories() -> None:
    assert len(NIGHTS) == 10
    assert {night.kind.name for night in NIGHTS} == {*KINDS}
    assert all(len(night.troubles) > 1 for night in NIGHTS)
    assert all(1 <= trouble.goal <= GOALS for night in NIGHTS for trouble in night.troubles)
    places = {
        sort: {night.kind.name for night in NIGHTS for one in night.troubles if one.kind == sort} for sort in TROUBLES
    }
    assert [sort for sort, kinds in places.items() if len(kinds) < 2] == []


def test_a_plain_folder_has_no_base_to_land_on(tmp_path: Path) -> None:
    """It is refused in the evening; without landing the work is in the folder."""
    with home_of(PLAIN, tmp_path) as (stage, model):
        done = stage.here("run", "go on", "--check", PLAIN.command, "-m", "1", "--land", "merge")
        assert (done.returncode, model.ledger.lines) == (2, ())
        assert "git" in done.stderr, done.stderr
