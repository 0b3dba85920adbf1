"""A reply as the Messages API writes it: a JSON message, a stream of server-sent events, or an error. No I/O."""

import json
import re
from collections.abc import Mapping
from typing import Any

from untildone.rehearsal.scenario import Reply
from untildone.rehearsal.script import Turn

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
PIECE = 60
"""Characters of text in one streamed delta."""

_PLACEHOLDER = re.compile(r"\{\{([ni])\}\}|\{([ni])\}")
_MOMENT = re.compile(r"\{now\+(\d{1,9})\}")


def headers(reply: Reply, now: float) -> list[tuple[str, str]]:
    """The reply's own headers; `{now+60}` becomes the epoch second a minute from now."""
    return [(name, _MOMENT.sub(lambda hit: str(round(now) + int(hit[1])), value)) for name, value in reply.headers]


def error_body(reply: Reply) -> dict[str, Any]:
    """The body of an HTTP error."""
    kind = reply.error_type or ERROR_TYPES.get(reply.status or 0, "api_error")
    message = reply.message or kind.removesuffix("_error").replace("_", " ")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_rehearsal"}


def message(turn: Turn, model: str) -> dict[str, Any]:
    """The whole reply as one JSON message."""
    reply = turn.reply
    reason = reply.stop_reason or ("tool_use" if reply.tools else "end_turn")
    usage = {**_input_usage(reply), "output_tokens": reply.output_tokens}
    return {**_envelope(turn, model), "content": _content(turn), "stop_reason": reason, "usage": usage}


def stream(turn: Turn, model: str) -> list[bytes]:
    """The same reply as server-sent events, one per entry."""
    whole = message(turn, model)
    usage = {**_input_usage(turn.reply), "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**_envelope(turn, model), "usage": usage}},
        {"type": "ping"},
    ]
    for index, block in enumerate(whole["content"]):
        events += _block_events(index, block)
    events += [
        {
            "type": "message_delta",
            "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": turn.reply.output_tokens},
        },
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def _envelope(turn: Turn, model: str) -> dict[str, Any]:
    return {
        "id": turn.message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _input_usage(reply: Reply) -> dict[str, Any]:
    return {
        "input_tokens": reply.input_tokens,
        "cache_read_input_tokens": reply.cache_read_tokens,
        "cache_creation_input_tokens": reply.cache_write_tokens + reply.cache_write_1h_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": reply.cache_write_tokens,
            "ephemeral_1h_input_tokens": reply.cache_write_1h_tokens,
        },
    }


def _content(turn: Turn) -> list[dict[str, Any]]:
    reply = turn.reply
    blocks: list[dict[str, Any]] = []
    if reply.thinking:
        blocks.append({"type": "thinking", "thinking": fill(reply.thinking, turn), "signature": "rehearsal"})
    if reply.text or not reply.tools:
        blocks.append({"type": "text", "text": fill(reply.text, turn)})
    for index, call in enumerate(reply.tools):
        use_id = f"{turn.message_id.replace('msg_', 'toolu_')}_{index}"
        blocks.append({"type": "tool_use", "id": use_id, "name": call.name, "input": fill(call.input, turn)})
    return blocks


def _block_events(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    start, deltas = _OPENINGS[block["type"]](block)
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _open_text(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]


def _open_thinking(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
    signature = {"type": "signature_delta", "signature": block["signature"]}
    return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signature]


def _open_tool(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(json.dumps(block["input"]))]
    return {**block, "input": {}}, deltas


_OPENINGS = {"text": _open_text, "thinking": _open_thinking, "tool_use": _open_tool}


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)] or [""]


def fill(value: Any, turn: Turn) -> Any:
    """Put the numbers in place of `{n}` and `{i}`, at any depth; `{{n}}` stands for a literal `{n}`."""
    if isinstance(value, str):
        numbers = {"n": str(turn.n), "i": str(turn.i)}
        return _PLACEHOLDER.sub(lambda hit: f"{{{hit[1]}}}" if hit[1] else numbers[hit[2]], value)
    if isinstance(value, Mapping):
        return {key: fill(entry, turn) for key, entry in value.items()}
    if isinstance(value, list):
        return [fill(entry, turn) for entry in value]
    return value
