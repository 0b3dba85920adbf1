"""Lines of stream-json, made by hand or captured, and the conversation they fold into."""

import json
from pathlib import Path
from typing import Any

from untildone.agents.conversation import Conversation
from untildone.agents.stream import Parsed, StreamParser
from untildone.core.events import Event

FOLDER = Path(__file__).parent.parent / "fixtures" / "claude-stream"
MODEL = "claude-opus-5-5"


def parsed(data: bytes) -> list[Parsed]:
    parser = StreamParser()
    return parser.feed(data) + parser.finish()


def fold(data: bytes, **more: Any) -> tuple[Conversation, list[Event]]:
    conversation = Conversation(7, **more)
    return conversation, [event for line in parsed(data) for event in conversation.feed(line)]


def capture(name: str) -> bytes:
    return (FOLDER / f"{name}.jsonl").read_bytes()


def lines(*objects: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in objects)


def of(events: list[Event], kind: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def start(message_id: str, tokens: int = 1000, model: str = MODEL) -> dict[str, Any]:
    message = {"id": message_id, "model": model, "usage": {"input_tokens": tokens, "output_tokens": 1}}
    return {"type": "stream_event", "event": {"type": "message_start", "message": message}}


def end(output: int = 100, **more: Any) -> dict[str, Any]:
    event = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}}
    return {"type": "stream_event", "event": event, **more}


STOPPED = {"type": "stream_event", "event": {"type": "message_stop"}}


def said(message_id: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {
        "id": message_id,
        "model": MODEL,
        "content": list(blocks),
        "usage": {"input_tokens": 1000, "output_tokens": 1},
    }
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(name: str, given: Any, tool_use_id: str = "t1") -> dict[str, Any]:
    return {"type": "tool_use", "id": tool_use_id, "name": name, "input": given}


def answered(content: Any, *, tool_use_id: str = "t1", is_error: bool = False) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content, "is_error": is_error}
    return {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": None}


def result(**more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "terminal_reason": "completed", **more}


def books(dollars: float, tokens: int = 0) -> dict[str, Any]:
    return {"model_usage_since_last_result": {MODEL: {"costUSD": dollars, "inputTokens": tokens}}}


def state(name: str) -> dict[str, Any]:
    return {"type": "system", "subtype": "session_state_changed", "state": name}


def tasks(*ids: str) -> dict[str, Any]:
    return {"type": "system", "subtype": "background_tasks_changed", "tasks": [{"task_id": name} for name in ids]}


def task(what: str) -> dict[str, Any]:
    return {"type": "system", "subtype": f"task_{what}"}
