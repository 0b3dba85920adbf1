"""One goal after the other, on the real Claude Code: what is asked between two of them."""

import json
import time
from pathlib import Path

import pytest

from e2e.kit import finished, staged
from untildone.rehearsal.scenario import Reply, Scenario

pytestmark = pytest.mark.claude


def test_a_stop_between_two_goals_keeps_the_next_one_from_starting(tmp_path: Path) -> None:
    goal, stopping = tmp_path / "next.md", tmp_path / "stopping"
    goal.write_text("Then write the manual.\n")
    with staged(tmp_path, Scenario(name="claims", replies=(Reply(text=finished()),))) as stage:
        on_stop = f"touch {stopping}; sleep 4"
        run = ("run", "a goal", "-m", "3", "--check", "true", "--on-stop", on_stop, "--then", str(goal), "--json")
        driver = stage.popen(*run)
        give_up = time.monotonic() + 60
        while not stopping.exists() and time.monotonic() < give_up:
            time.sleep(0.05)
        asked = stage.untildone("stop")
        assert asked.returncode == 0, asked.stderr
        said, _ = driver.communicate(timeout=60)
        assert json.loads(said)["exit_reason"] == "validation_passed"
        assert len(json.loads(stage.untildone("ls", "--json").stdout)) == 1
        assert len(stage.model.ledger.served()) == 1
