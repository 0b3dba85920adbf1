"""clawker's commands on the real Claude Code: `loop iterate`, `loop tasks`, and what `loop status` says."""

import json
from pathlib import Path

import pytest

from e2e.kit import finished, staged, working
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude


def bash(command: str) -> Reply:
    return Reply(text="Working.", tools=(ToolCall(name="Bash", input={"command": command}),))


def test_a_night_with_the_published_commands(tmp_path: Path) -> None:
    goal = (bash("echo done > done.txt"), Reply(text=finished()))
    ticks = ((bash("sed -i '0,/\\[ \\]/s//[x]/' TODO.md"), Reply(text=working(tasks=1))),) * 2
    rights = ("--skip-permissions", "--check", "test -f done.txt")
    with staged(tmp_path, Scenario(name="published", iterations=(goal, *ticks))) as stage:
        (stage.repo / "TODO.md").write_text("- [ ] one\n- [ ] two\n")
        stage.git("add", "-A")
        stage.git("commit", "-qm", "tasks")
        done = stage.result_here("loop", "iterate", "--prompt", "Make done.txt", "--name", "dev", *rights)
        assert (done["exit_reason"], done["verified"]) == ("validation_passed", True), done
        told = json.loads(stage.here("loop", "status", "--agent", "dev", "--json").stdout)
        assert (told["exists"], told["session"]["loops_completed"]) == (True, 1)
        assert told["limits"]["max_iterations"]["limit"] == 50
        done = stage.result_here("loop", "tasks", "--tasks", "TODO.md", "--worktree", "tasks", *rights)
        assert (done["success"], done["total_tasks_completed"]) == (True, 2), done
        assert "[ ]" in (stage.repo / "TODO.md").read_text(), "the work is in the worktree"
