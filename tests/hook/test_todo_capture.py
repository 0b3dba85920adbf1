"""Claude's own list of tasks, taken over from its tools."""

from pathlib import Path
from typing import Any

import pytest

from hook.stop_kit import SESSION, Stage, goes_on, next_text
from untildone.hook.todo_capture import captured
from untildone.hook.tools import on_posttooluse


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path)
    made.start(tasks=["todos"])
    return made


def use(stage: Stage, tool: str, given: Any, answered: Any = None, **fields: Any) -> None:
    event = {
        "tool_name": tool,
        "tool_input": given,
        "tool_response": answered,
        "hook_event_name": "PostToolUse",
        **fields,
    }
    assert on_posttooluse(stage.call(**event)) is None


def listed(stage: Stage) -> list[tuple[str, str]]:
    return [(todo.content, todo.status) for todo in captured(str(stage.home), SESSION)]


def create(stage: Stage, key: str, subject: str) -> None:
    use(stage, "TaskCreate", {"subject": subject, "description": "d"}, {"task": {"id": key, "subject": subject}})


def test_a_written_list_replaces_the_old_one(stage: Stage) -> None:
    use(stage, "TodoWrite", {"todos": [{"content": "one", "status": "pending", "activeForm": "Doing one"}]})
    use(stage, "TodoWrite", {"todos": [{"content": "two", "status": "in_progress"}]})
    assert listed(stage) == [("two", "in_progress")]


def test_tasks_are_created_updated_and_dropped(stage: Stage) -> None:
    create(stage, "1", "one")
    create(stage, "2", "two")
    use(stage, "TaskUpdate", {"taskId": "1", "status": "completed"}, {"success": True, "taskId": "1"})
    use(stage, "TaskUpdate", {"taskId": "2", "subject": "second"}, {"success": True, "taskId": "2"})
    assert listed(stage) == [("one", "completed"), ("second", "pending")]
    use(stage, "TaskUpdate", {"taskId": "2", "status": "deleted"}, {"success": True, "taskId": "2"})
    assert listed(stage) == [("one", "completed")]


def test_an_update_that_failed_or_means_nothing_changes_nothing(stage: Stage) -> None:
    create(stage, "1", "one")
    use(stage, "TaskUpdate", {"taskId": "1", "status": "completed"}, {"success": False, "error": "Task not found"})
    use(stage, "TaskUpdate", {"taskId": "9", "status": "completed"}, {"success": True})
    use(stage, "TaskCreate", {"subject": "no id"}, "created")
    use(stage, "TaskUpdate", "text", None)
    assert listed(stage) == [("one", "pending")]


def test_a_subagent_keeps_a_list_of_its_own(stage: Stage) -> None:
    use(stage, "TodoWrite", {"todos": [{"content": "its", "status": "pending"}]}, agent_id="a49c71476bb803962")
    assert listed(stage) == []


def test_what_was_captured_is_open_work_for_the_gate(stage: Stage) -> None:
    create(stage, "1", "the last thing")
    stage.edit(promises=("DONE",))
    assert "the last thing" in next_text(stage.stop("DONE"))
    use(stage, "TaskUpdate", {"taskId": "1", "status": "completed"}, {"success": True, "taskId": "1"})
    assert not goes_on(stage.stop("DONE"))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"todos": {}}'])
def test_a_spoilt_file_is_begun_anew(stage: Stage, content: bytes) -> None:
    path = stage.home / "todos" / f"{SESSION}.json"
    path.parent.mkdir()
    path.write_bytes(content)
    create(stage, "1", "one")
    assert listed(stage) == [("one", "pending")]


@pytest.mark.parametrize(
    "given", [None, [], {"todos": None}, {"todos": [[[]]]}, {"subject": 3}, {"taskId": {}, "status": []}]
)
@pytest.mark.parametrize("tool", ["TodoWrite", "TaskCreate", "TaskUpdate"])
def test_odd_input_is_no_trouble(stage: Stage, tool: str, given: Any) -> None:
    use(stage, tool, given, {"task": {"id": None}})
    assert listed(stage) == []
