"""What the door saw of the model's replies, to compare with what Claude Code says about them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from untildone.core.dataclass import dataclass
from untildone.core.outcome import Usage

_LONGEST_LINE = 1 << 20
_LIMITS = "anthropic-ratelimit-"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireReply:
    """One answer of the model as it came over the wire."""

    status: int
    message_id: str = ""
    model: str = ""
    usage: Usage = Usage()
    complete: bool = False
    """It came to its end."""
    retry_after: str = ""
    limits: tuple[tuple[str, str], ...] = ()
    """Headers that tell how much is left of a usage limit."""


class ReplyReader:
    """Reads one reply as it passes by, in whatever pieces; nothing of it is kept but the figures."""

    def __init__(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        given = {name.lower(): value for name, value in headers}
        self._status = status
        self._is_stream = given.get("content-type", "").startswith("text/event-stream")
        self._retry_after = given.get("retry-after", "")
        self._limits = tuple(sorted((name, value) for name, value in given.items() if name.startswith(_LIMITS)))
        self._rest = b""
        self._message_id = self._model = ""
        self._usage: dict[str, int] = {}
        self._complete = False

    def feed(self, piece: bytes) -> None:
        """The next bytes of the body."""
        self._rest += piece
        if not self._is_stream:
            self._rest = self._rest[:_LONGEST_LINE]
            return
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._heard(_object(line[len(b"data:") :]))
        self._rest = self._rest[:_LONGEST_LINE]

    def reply(self) -> WireReply:
        """What was seen of it so far."""
        if not self._is_stream and self._rest:
            self._message(_object(self._rest))
        known = self._usage
        return WireReply(
            status=self._status,
            message_id=self._message_id,
            model=self._model,
            usage=Usage(
                input_tokens=known.get("input_tokens", 0),
                output_tokens=known.get("output_tokens", 0),
                cache_read_tokens=known.get("cache_read_input_tokens", 0),
                cache_write_tokens=known.get("cache_creation_input_tokens", 0),
            ),
            complete=self._complete,
            retry_after=self._retry_after,
            limits=self._limits,
        )

    def _heard(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                self._message(event.get("message"))
                self._complete = False
            case "message_delta":
                self._count(event.get("usage"))
            case "message_stop":
                self._complete = True

    def _message(self, message: Any) -> None:
        if isinstance(message, dict) and message.get("type") == "message":
            self._message_id, self._model = str(message.get("id") or ""), str(message.get("model") or "")
            self._count(message.get("usage"))
            self._complete = True

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage |= {name: number for name, number in usage.items() if isinstance(number, int)}


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
