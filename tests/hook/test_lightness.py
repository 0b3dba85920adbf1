"""A hook starts in milliseconds because of what it does not load."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hook.stop_kit import HOOK, STOP, Stage

HEAVY = {
    "asyncio", "dataclasses", "datetime", "enum", "functools", "hashlib", "importlib", "inspect", "json", "pathlib",
    "re", "sqlite3", "subprocess", "traceback", "typing", "unicodedata", "warnings",
}  # fmt: skip


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def loaded(stage: Stage, event: str, **fields: Any) -> set[str]:
    """Every module that a hook loads."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-I", "-S", str(HOOK / "main.py"), event],
        input=json.dumps({**STOP, "cwd": str(stage.project), **fields}).encode(),
        env=stage.env,
        capture_output=True,
        timeout=240,
        check=True,
    )
    assert stage.log == ""
    return {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines() if "import time:" in line}


def test_going_on_loads_nothing_heavy(stage: Stage) -> None:
    stage.start(promises=("DONE",), checks=("true",), max_iterations=50, iteration_seconds=60.0, total_seconds=600.0)
    assert loaded(stage, "Stop", last_assistant_message="I go on 🎉") & HEAVY == set()
    assert stage.turn == 2


def test_the_last_turn_loads_nothing_heavy_either(stage: Stage) -> None:
    stage.start(max_iterations=1)
    assert loaded(stage, "Stop") & HEAVY == set()
    assert stage.entry is None


@pytest.mark.parametrize("event", ["StopFailure", "PostToolUse", "PreToolUse"])
def test_what_happens_often_loads_nothing_heavy(stage: Stage, event: str) -> None:
    stage.start()
    given = {"tool_name": "Bash", "tool_input": {"command": "make test"}, "tool_response": {"stdout": ""}}
    assert loaded(stage, event, **given) & HEAVY == set()


def test_a_promise_is_judged_and_the_loop_ended_without_anything_heavy(stage: Stage) -> None:
    stage.start(promises=("DONE",))
    assert loaded(stage, "Stop", last_assistant_message="Everything is verified.\n\nDONE") & HEAVY == set()
    assert stage.entry is None


NOT_DONE = (
    "---LOOP_STATUS---\nSTATUS: IN_PROGRESS\nTASKS_COMPLETED_THIS_LOOP: 1\nEXIT_SIGNAL: false\n---END_LOOP_STATUS---"
)
WORDS = ["STATUS: fine", f"I completed a part, true.\n{NOT_DONE}", "The HTTP STATUS is BLOCKED or COMPLETE"]


@pytest.mark.parametrize("message", WORDS)
@pytest.mark.parametrize("promises", [(), ("DONE",)])
def test_a_status_that_ends_nothing_loads_nothing_heavy(stage: Stage, message: str, promises: tuple[str, ...]) -> None:
    stage.start(promises=promises)
    assert loaded(stage, "Stop", last_assistant_message=message) & HEAVY == set()
    assert stage.turn == 2


def test_open_boxes_are_counted_without_anything_heavy(stage: Stage) -> None:
    stage.put("TODO.md", "# Plan\n- [x] one\n1. [ ] two\n")
    stage.start(tasks=("TODO.md",))
    assert loaded(stage, "Stop") & HEAVY == set()


def test_a_status_loads_what_it_takes_to_judge_it(stage: Stage) -> None:
    stage.start()
    found = loaded(stage, "Stop", last_assistant_message=NOT_DONE.replace("IN_PROGRESS", "BLOCKED"))
    assert "untildone.core.claims" in found
    assert found & {"sqlite3", "subprocess", "json", "asyncio"} == set()
