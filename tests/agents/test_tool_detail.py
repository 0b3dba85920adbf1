"""Tool calls, told in one line."""

from typing import Any

import pytest

from agents.made_lines import fold, lines, said, tool
from untildone.core.trace import AgentToolUse


@pytest.mark.parametrize(
    ("name", "given", "detail"),
    [
        ("Bash", {"command": "\n make test\nrm x"}, "make test"),
        ("Bash", {"command": "echo \x1b[31mred\x07"}, "echo red"),
        ("Bash", {"command": "\x1b[2J\n\x1b]0;title\x07ls \u202egnp"}, "ls gnp"),
        ("Edit", {"file_path": "/work/here/src/a.py"}, "src/a.py"),
        ("Read", {"file_path": "/elsewhere/b.py"}, "/elsewhere/b.py"),
        ("NotebookEdit", {"notebook_path": "/work/here/n.ipynb"}, "n.ipynb"),
        ("Grep", {"pattern": "def x", "path": "/work/here"}, "def x"),
        ("Task", {"subagent_type": "Explore", "description": "look"}, "Explore"),
        ("Agent", {"description": "look"}, "look"),
        ("mcp__github__create_issue", {"title": "x"}, "github/create_issue"),
        ("TodoWrite", {"todos": [{"content": "a", "status": "done"}, {"content": "b", "status": "in_progress"}]}, "b"),
        ("WebFetch", {"url": "https://x.example", "prompt": "read"}, "https://x.example"),
        ("Bash", {"command": "x" * 5000}, "x" * 1000),
        ("Unheard", {"thing": 3}, ""),
        ("Bash", "not an object", ""),
    ],
)  # fmt: skip
def test_a_tool_call_in_one_line(name: str, given: Any, detail: str) -> None:
    [_, event] = fold(lines(said("m1", tool(name, given))), cwd="/work/here")[1]
    assert isinstance(event, AgentToolUse)
    assert event.detail == detail
    assert event.tool == name
