"""One goal after the other, on the real Claude Code: what is asked between two of them."""

import json
from pathlib import Path

import pytest

from e2e.kit import finished, staged
from patience import eventually
from untildone.rehearsal.scenario import Reply, Scenario

# Outside the soak: tests/cli/test_chaining.py has the same story with a small program in place of Claude Code.
pytestmark = [pytest.mark.claude, pytest.mark.soak]


def test_a_stop_between_two_goals_keeps_the_next_one_from_starting(tmp_path: Path) -> None:
    goal, stopping, asked_for = (tmp_path / name for name in ("next.md", "stopping", "asked for"))
    goal.write_text("Then write the manual.\n")
    with staged(tmp_path, Scenario(name="claims", replies=(Reply(text=finished()),))) as stage:
        on_stop = f"touch '{stopping}'; until [ -e '{asked_for}' ]; do sleep 0.1; done"
        run = ("run", "a goal", "-m", "3", "--check", "true", "--on-stop", on_stop, "--then", str(goal), "--json")
        driver = stage.popen(*run)
        eventually(stopping.exists)
        asked = stage.here("stop")
        assert asked.returncode == 0, asked.stderr
        asked_for.touch()
        said, _ = driver.communicate(timeout=400)
        assert json.loads(said)["exit_reason"] == "validation_passed"
        assert len(json.loads(stage.here("ls", "--json").stdout)) == 1
        assert len(stage.model.ledger.served()) == 1
