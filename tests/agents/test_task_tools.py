"""The tools for tasks: words that nothing can slip options into, answers in the words of the command."""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.sdk_stage import DONE, staged
from untildone.agents.argv import claude_argv
from untildone.agents.own_tools import ToolRefused
from untildone.agents.task_tools import LONGEST_ANSWER, TASK_TOOLS, call, words_for
from untildone.core.policy import AgentOptions
from untildone.hook.task_command import run_task
from untildone.rehearsal.scenario import Reply, ToolCall

pytestmark = pytest.mark.anyio


def command(folder: Path) -> Any:
    (folder / ".git").mkdir(exist_ok=True)

    def run(words: Sequence[str]) -> str:
        return run_task(words, {"HOME": str(folder)}, 0.0, cwd=str(folder))

    return run


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        (
            "task_add", {"title": "--json", "description": "-x\ny", "sprint": 2, "depends": ["1", "--blocked"]},
            ["add", "--description=-x\ny", "--sprint=2", "--depends=1", "--depends=--blocked", "--", "--json"],
        ),
        ("task_add", {"title": "a", "note": "no such field", "blocked": True}, ["add", "--", "a"]),
        ("task_start", {"id": 7}, ["start", "--", "7"]),
        ("task_done", {"id": "7", "note": "ran it"}, ["done", "--note=ran it", "--", "7"]),
        ("task_fail", {"id": "7", "blocked": True}, ["fail", "--blocked", "--", "7"]),
        ("task_fail", {"id": "7", "blocked": "yes"}, ["fail", "--", "7"]),
        ("task_list", {"open": True, "id": "x"}, ["ls", "--open"]),
        ("task_list", {}, ["ls"]),
    ],
)  # fmt: skip
def test_a_call_becomes_words_and_no_value_becomes_an_option(
    tool: str, given: dict[str, Any], words: list[str]
) -> None:
    assert words_for(tool, given) == words


async def test_tasks_go_their_way_and_what_cannot_be_is_an_error(tmp_path: Path) -> None:
    tasks = command(tmp_path)

    async def said(tool: str, **given: Any) -> tuple[str, bool]:
        try:
            return await call(tasks, tool, given), False
        except ToolRefused as refused:
            return str(refused), True

    assert await said("task_add", title="--help") == ("TASK-001 added: --help", False)
    assert await said("task_add", title="second", depends=["1"]) == ("TASK-002 added: second", False)
    text, wrong = await said("task_start", id="2")
    assert wrong
    assert "waits for TASK-001" in text
    assert await said("task_done", id="1", note="ran the tests") == ("TASK-001 is done; 1 more open", False)
    assert (await said("task_done", id="9"))[1]
    assert (await said("task_add", title=" "))[1]
    listed, _ = await said("task_list", open=True)
    assert [line.split()[0] for line in listed.splitlines()] == ["TASK-002", "all:"]


async def test_a_long_answer_is_cut() -> None:
    answer = await call(lambda _: "x" * 10 * LONGEST_ANSWER, "task_list", {})
    assert len(answer) == LONGEST_ANSWER


def test_the_tools_are_allowed_only_where_they_are_given() -> None:
    def allowed(*, given: bool, read_only: bool = False) -> list[str]:
        argv = claude_argv(AgentOptions(task_tools=given), claude="/c", rules="r", mode="warm", read_only=read_only)
        return argv[argv.index("--allowedTools") + 1].split(",")

    assert set(TASK_TOOLS) <= set(allowed(given=True))
    assert not set(TASK_TOOLS) & set(allowed(given=False))
    assert not set(TASK_TOOLS) & set(allowed(given=True, read_only=True))


@pytest.mark.claude
async def test_the_agent_keeps_its_tasks_and_cannot_use_what_is_forbidden(tmp_path: Path) -> None:
    def tool(name: str, **given: Any) -> ToolCall:
        return ToolCall(f"mcp__untildone__{name}", given)

    script = (
        Reply(tools=(tool("task_add", title="write it"),)),
        Reply(tools=(tool("task_start", id="1"),)),
        Reply(tools=(tool("task_done", id="nine"),)),
        Reply(tools=(tool("task_done", id="1", note="ran"),)),
        DONE,
    )
    (tmp_path / "folder").mkdir()
    options = AgentOptions(
        allowed_tools=("Bash",), task_tools=True, disallowed_tools=("Task", "Agent", "Skill"),
        extra_args=("--system-prompt=You are a stone.", "--setting-sources=user"),
    )  # fmt: skip
    async with staged(tmp_path, *script, options=options, tasks=command(tmp_path / "folder")) as stage:
        outcome = await stage.iterate()
        assert outcome.failure is None
        offered = {tool["name"] for tool in stage.model.requests[0].body["tools"]}
        assert set(TASK_TOOLS) <= offered
        assert not {"Task", "Agent", "Skill"} & offered
        system = json.dumps(stage.model.requests[0].body["system"])
        assert "You are a stone." in system
        assert "These are the rules of the house." in system
        told = stage.messages(-1)
        assert "TASK-001 added: write it" in told
        assert "no task 'nine'" in told
    with sqlite3.connect(tmp_path / "folder/.untildone/tasks.db") as database:
        assert database.execute("SELECT title, status, notes FROM tasks").fetchall() == [
            ("write it", "completed", "ran")
        ]
    database.close()
