"""A hooks file is checked to the last field: Claude Code would ignore a wrong one silently."""

import json
from pathlib import Path
from typing import Any

import pytest

from untildone.agents.hooks_file import load_hooks
from untildone.errors import ConfigError

GOOD = {
    "Stop": [{"hooks": [{"type": "command", "command": "./stop.sh", "timeout": 5}]}],
    "PreToolUse": [
        {
            "matcher": "Bash",
            "hooks": [{"type": "http", "url": "http://127.0.0.1/"}, {"type": "prompt", "prompt": "ok?"}],
        }
    ],
    "SessionStart": [
        {"hooks": [{"type": "agent", "prompt": "look"}, {"type": "mcp_tool", "server": "s", "tool": "t"}]}
    ],
}


def written(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "hooks.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("content", [GOOD, {"hooks": GOOD}, {"hooks": {}}])
def test_good_files_are_read_bare_or_as_settings(tmp_path: Path, content: dict[str, Any]) -> None:
    assert load_hooks(written(tmp_path, content)) == content.get("hooks", content)


def one(handler: Any) -> dict[str, Any]:
    return {"Stop": [{"hooks": [handler]}]}


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ([], "hooks must be an object"),
        ({"hooks": 3}, "hooks must be an object"),
        ({"stop": []}, "stop is no hook event: did you mean Stop"),
        ({"Nonsense": []}, "Nonsense is no hook event; known are"),
        ({"Stop": {}}, "Stop must be a list"),
        ({"Stop": []}, "Stop must be a list with at least one"),
        ({"Stop": [3]}, "Stop[0] must be an object"),
        ({"Stop": [{"matcher": "x"}]}, "Stop[0].hooks must be a list"),
        ({"Stop": [{"hooks": []}]}, "Stop[0].hooks must be a list with at least one"),
        ({"Stop": [{"matcher": 3, "hooks": [{"type": "command", "command": "x"}]}]}, "Stop[0].matcher must be text"),
        (one("x"), "Stop[0].hooks[0].type must be one of"),
        (one({"type": "shell"}), "Stop[0].hooks[0].type must be one of"),
        (one({"type": ["command"]}), "Stop[0].hooks[0].type must be one of"),
        (one({"type": "command"}), "Stop[0].hooks[0].command must be text"),
        (one({"type": "command", "command": "  "}), "Stop[0].hooks[0].command must be text"),
        (one({"type": "prompt", "prompt": 3}), "Stop[0].hooks[0].prompt must be text"),
        (one({"type": "http"}), "Stop[0].hooks[0].url must be text"),
        (one({"type": "mcp_tool", "server": "s"}), "Stop[0].hooks[0].tool must be text"),
        (one({"type": "command", "command": "x", "timeout": -1}), "Stop[0].hooks[0].timeout must be a number"),
        (one({"type": "command", "command": "x", "timeout": "5"}), "Stop[0].hooks[0].timeout must be a number"),
        (one({"type": "command", "command": "x", "timeout": True}), "Stop[0].hooks[0].timeout must be a number"),
        ('{"Stop":[{"hooks":[{"type":"command","command":"x","timeout":Infinity}]}]}', "timeout must be a number"),
    ],
)  # fmt: skip
def test_every_mistake_is_one_line_with_file_and_place(tmp_path: Path, content: Any, place: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigError) as error:
        load_hooks(path)
    assert place in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_hooks(tmp_path / name)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "hooks.json"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ConfigError, match="not valid JSON"):
        load_hooks(path)
