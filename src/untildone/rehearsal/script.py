"""Which reply a request gets: the scenario with a bookmark in it. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

from untildone.core.dataclass import dataclass
from untildone.rehearsal.scenario import Reply, Scenario

OVER = Reply(text="The script is over.", input_tokens=0, output_tokens=0)
EXHAUSTED = Reply(status=400, error_type="invalid_request_error", message="the script is used up")
SIDE = Reply(text="ok", input_tokens=0, output_tokens=0)
"""What side requests get: it uses up no part of the script and costs nothing, so that a script's cost is exact."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The reply to serve, and the numbers its `{n}` and `{i}` stand for."""

    reply: Reply
    n: int
    """Number of the main request; 0: a side request."""
    i: int
    """Number of the conversation."""
    message_id: str = ""


@dataclass(slots=True)
class _Conversation:
    number: int
    bookmark: "_Bookmark"
    failed: bool = False
    """Its last reply was an error or a cut one: the client will ask again with the same messages."""


class _Bookmark:
    """A place in one list of replies."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._left = [reply.repeat for reply in replies]
        self._replies = replies

    def take(self, heard: str, *, explicit: bool = False) -> Reply | None:
        """The first reply that is not used up and fits, with `explicit` only by its `when`; None if there is none."""
        for index, reply in enumerate(self._replies):
            if self._left[index] and _fits(reply, heard) and not (explicit and reply.when is None):
                self._left[index] -= 1
                return reply
        return None

    def last(self, heard: str) -> Reply | None:
        """The last reply that fits, used up or not."""
        return next((reply for reply in reversed(self._replies) if _fits(reply, heard)), None)


class Script:
    """Hands out replies. One caller at a time."""

    def __init__(self, scenario: Scenario, serial: str) -> None:
        self._scenario = scenario
        self._serial = serial
        self._flat = _Bookmark(scenario.replies)
        self._by_session: dict[str, _Conversation] = {}
        self._current: _Conversation | None = None
        self._conversations = 0
        self._requests = 0
        self._served = 0

    def next(self, body: Mapping[str, Any], session: str = "") -> Turn:
        """The reply to a request; `session` is what the client calls its conversation, if it says."""
        self._served += 1
        # Message ids identify replies for good: two servers, one after the other, must not give out the same.
        message_id = f"msg_{self._serial}_{self._served:06d}"
        heard = heard_text(body)
        if is_main(body):
            conversation = self._conversation_of(body, session)
            reply = conversation.bookmark.take(heard) or self._after(conversation.bookmark, heard)
            conversation.failed = reply.status is not None or reply.cut_after is not None
        else:
            conversation = self._by_session.get(session) or self._current or _Conversation(0, self._flat)
            reply = conversation.bookmark.take(heard, explicit=True) or SIDE
        if reply is SIDE:
            return Turn(SIDE, 0, 0, message_id)
        self._requests += 1
        return Turn(reply, self._requests, conversation.number, message_id)

    def _after(self, bookmark: _Bookmark, heard: str) -> Reply:
        match self._scenario.after:
            case "error":
                return EXHAUSTED
            case "say":
                return OVER
            case "repeat_last":
                return bookmark.last(heard) or OVER

    def _conversation_of(self, body: Mapping[str, Any], session: str) -> _Conversation:
        if session in self._by_session:
            self._current = self._by_session[session]
        elif self._current is None or self._begins(body, session):
            self._current = self._open()
        if session:
            self._by_session[session] = self._current
        return self._current

    def _begins(self, body: Mapping[str, Any], session: str) -> bool:
        """A request without an assistant turn begins a conversation, unless it only repeats a failed one."""
        fresh = all(message.get("role") != "assistant" for message in _messages(body))
        repeats = not session and self._current is not None and self._current.failed
        return fresh and not repeats

    def _open(self) -> _Conversation:
        self._conversations += 1
        groups = self._scenario.iterations
        if not groups:
            return _Conversation(self._conversations, self._flat)
        if self._conversations > len(groups) and self._scenario.after != "repeat_last":
            return _Conversation(self._conversations, _Bookmark(()))
        group = groups[min(self._conversations, len(groups)) - 1]
        return _Conversation(self._conversations, _Bookmark(group))


def is_main(body: Mapping[str, Any]) -> bool:
    """Conversations bring tools along; titles, summaries and judgements do not."""
    return bool(body.get("tools"))


def heard_text(body: Mapping[str, Any]) -> str:
    """The system prompt and the last user message, tool results included."""
    # Claude Code also puts messages with the role `system` into the conversation; the newest often comes last.
    spoken = [message.get("content") for message in _messages(body) if message.get("role") == "user"]
    return "\n".join([*_texts(body.get("system")), *_texts(spoken[-1] if spoken else None)])


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    return [entry for entry in messages if isinstance(entry, dict)] if isinstance(messages, list) else []


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    blocks = [block for block in content if isinstance(block, dict)]
    return [text for block in blocks for text in _texts(block.get("text") or block.get("content"))]


def _fits(reply: Reply, heard: str) -> bool:
    return reply.when is None or reply.when in heard
