"""The autonomous controller in the real Claude Code: from requirements to a project that is done, and seen to be."""

import json
from pathlib import Path

import pytest

from e2e.plugin_kit import bash, house, told
from untildone.rehearsal.scenario import Reply, ToolCall

pytestmark = pytest.mark.claude

CHECK = "[ -e out.txt ] || { echo THERE IS NO OUTPUT; exit 1; }"
PLAN = (
    "untildone task add Read && untildone task add Parse --depends TASK-001 && untildone task add Write --depends "
    "TASK-002 && untildone task plan TASK-001 TASK-002 TASK-003 --sprint 1"
)
WRITER = {"description": "requirements", "prompt": "WRITE THEM DOWN", "subagent_type": "untildone:prd-generator"}


def auto(turn: int, task: str, status: str = "CONTINUING") -> str:
    return f"[AUTO] Iteration {turn} | Sprint 1/1 | Task: {task} | Status: {status}"


def ends(turn: int, task: str) -> Reply:
    return Reply(text=auto(turn, task))


def test_requirements_tasks_and_a_sprint_with_a_task_that_fails_twice(tmp_path: Path) -> None:
    replies = (
        Reply(when="WRITE THEM DOWN", tools=bash("mkdir -p docs && echo '# A parser' > docs/prd.md").tools),
        Reply(tools=(ToolCall("Agent", {**WRITER, "run_in_background": False}),)),
        Reply(text="They stand in docs/prd.md.\n\nEXIT_SIGNAL: true"),  # of the agent: nothing to the loop
        ends(1, "-"),
        *(bash(PLAN), ends(2, "-")),
        *(bash("untildone task start TASK-001 && untildone task done TASK-001"), ends(3, "TASK-001")),
        *(bash("untildone task start TASK-003; untildone task fail TASK-002 --note why"), ends(4, "TASK-002")),
        *(bash("untildone task fail TASK-002 --note 'again'"), Reply(text="Enough.\n\nEXIT_SIGNAL: true")),
        *(bash("untildone task start TASK-002 && untildone task done TASK-002"), ends(6, "TASK-002")),
        bash("sqlite3 .untildone/tasks.db 'UPDATE tasks SET status = 1'; rm -rf .untildone"),
        *(bash("untildone task done TASK-003"), Reply(text="All of it.\n\nEXIT_SIGNAL: true")),
        *(bash("touch out.txt"), Reply(text=f"{auto(8, '-', 'COMPLETE')}\n\nEXIT_SIGNAL: true")),
    )
    with house(tmp_path, *replies) as here, here.session() as claude:
        said = claude.say(f"/untildone:implement a parser --max-iterations 12 --check '{CHECK}'")
        assert said.requests == len(replies)
        assert "untildone: done, every check passed (after 8 turns)" in said.notices
        assert auto(8, "-", "COMPLETE") in said.result
        for answer in (
            "TASK-003 waits for TASK-002: do that first",
            "TASK-002 failed (attempt 2); 2 of 5 failures in a row at this point",
            "untildone refuses this: that is the loop's own state",
            "TASK-003 is done; nothing is open any more",
        ):
            assert answer in said.tool_results
        heard = "\n".join(map(told, said.asked))
        for turn in range(2, 9):
            assert f"[AUTO] Iteration {turn} | Sprint X/Y" in heard
        assert "You said that everything is done, but there is open work (2):" in heard
        assert "THERE IS NO OUTPUT" in heard
        assert (here.project / "docs" / "prd.md").read_text() == "# A parser\n"
        tasks = json.loads(here.untildone("task", "ls", "--json"))
        assert (tasks["open"], [task["attempts"] for task in tasks["tasks"]]) == (0, [0, 2, 0])
        assert "done and verified" in here.untildone("status")
        log = here.untildone("log")
        assert ("failed at task: TASK-002, 2 of 5 in a row" in log, "[validation_passed]" in log) == (True, True)
        brief = here.untildone("brief")
        assert "**Done and verified" in brief
        # No edit of Claude's own tools, and commands that nobody watched: not a word on what changed.
        assert ("no file edited" in brief, "no file changed" in brief, "nothing changed" in log) == (True, False, False)
