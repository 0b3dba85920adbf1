"""What the door sees of the model's replies as they pass: enough to book them, and nothing of what they say."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from untildone.core.dataclass import dataclass

OK = 200
_LONGEST_LINE = 1 << 20
_LONGEST_MESSAGE = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class WireReply:
    """One request of the model and what is known of its answer so far."""

    status: int = 0
    """0: it was passed on, and no answer has begun."""
    message_id: str = ""
    model: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """As the model sends it: prices need more of it than sums of tokens."""
    is_whole: bool = False
    """The final usage was seen: it is paid in full."""
    is_over: bool = False
    """Nothing more of it passes."""
    retry_after: float | None = None
    """Seconds, from the headers of an error."""


class ReplyReader:
    """Reads one reply as it passes by, in whatever pieces; nothing of it is kept but the figures."""

    def __init__(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        given = {name.lower(): value for name, value in headers}
        self._status = status
        self._is_stream = given.get("content-type", "").startswith("text/event-stream")
        self._retry_after = _seconds(given.get("retry-after", ""))
        self._rest = b""
        self._message_id = self._model = ""
        self._usage: dict[str, Any] = {}
        self._is_whole = False

    def feed(self, piece: bytes) -> bool:
        """Take in the next bytes of the body; returns whether a reply has begun in them or is whole with them."""
        before = (self._message_id, self._is_whole)
        if self._status == OK and not self._is_whole:
            self._rest += piece
            if self._is_stream:
                *lines, rest = self._rest.split(b"\n")
                for line in lines:
                    self._read_line(line)
                self._rest = rest[:_LONGEST_LINE]
            elif self._rest.rstrip().endswith(b"}"):
                self._begin(_object(self._rest), is_whole=True)
            self._rest = self._rest[:_LONGEST_MESSAGE]
        return (self._message_id, self._is_whole) != before

    def reply(self, *, is_over: bool = False) -> WireReply:
        """What was seen of it so far."""
        return WireReply(
            status=self._status,
            message_id=self._message_id,
            model=self._model,
            usage=dict(self._usage),
            is_whole=self._is_whole,
            is_over=is_over,
            retry_after=self._retry_after if self._status != OK else None,
        )

    def _read_line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        event = _object(line[len(b"data:") :])
        match event.get("type"):
            case "message_start":
                self._begin(event.get("message"), is_whole=False)
            case "message_delta":
                self._count(event.get("usage"))
                delta = event.get("delta")
                self._is_whole = isinstance(delta, dict) and delta.get("stop_reason") is not None

    def _begin(self, message: Any, *, is_whole: bool) -> None:
        if isinstance(message, dict) and message.get("type") == "message":
            self._message_id, self._model = str(message.get("id") or ""), str(message.get("model") or "")
            self._count(message.get("usage"))
            self._is_whole = is_whole

    def _count(self, usage: Any) -> None:
        """A delta may leave out, or send as zero, what the beginning said of the input; of the output it knows best."""
        if isinstance(usage, dict):
            known = self._usage.keys() - {"output_tokens"}
            self._usage |= {name: value for name, value in usage.items() if value or name not in known}


def _seconds(text: str) -> float | None:
    """A date instead of seconds is not used by the model."""
    return float(text) if text.isascii() and text.isdigit() else None


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
