"""Claude's own transcripts: where they are, and what the replies in them cost."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from untildone.agents.prices import cost_from, usage_from
from untildone.core.events import Event
from untildone.core.trace import AgentReply

_SESSION_ID = re.compile(r"[0-9A-Za-z_-]{1,100}")
_REPLY = b'"assistant"'
_REQUEST = b'"api-request"'


class _Message(msgspec.Struct):
    id: Any = None
    model: Any = None
    usage: Any = None


class _Entry(msgspec.Struct):
    type: Any = None
    message: _Message | None = None
    aborted: Any = msgspec.field(default=None, name="isAbortedMidStream")


_decode = msgspec.json.Decoder(_Entry).decode


def transcript_path(config_dir: str | Path, cwd: str, session_id: str) -> Path:
    """Where Claude keeps the transcript of a session that works in `cwd`."""
    return Path(config_dir) / "projects" / re.sub(r"[^0-9A-Za-z]", "-", cwd) / f"{session_id}.jsonl"


class TranscriptLedger:
    """Reads what replies cost from the transcripts in a Claude configuration folder."""

    def __init__(self, config_dir: Path) -> None:
        self._config_dir = config_dir

    def replies(self, session_id: str, cwd: str) -> list[Event]:
        """`agent.reply` events of that session and its subagents, one per message id.

        A transcript does not know iterations: `iteration_num` is 0, for the reader to fill in.
        """
        found: dict[str, Event] = {}
        for entry in self._entries(session_id, cwd, _REPLY):
            message = entry.message
            if message is None or not _is_paid_reply(entry, message):
                continue
            found[message.id] = AgentReply(
                iteration_num=0,
                message_id=message.id,
                model=message.model,
                usage=usage_from(message.usage),
                cost_usd=cost_from(message.model, message.usage),
            )
        return list(found.values())

    def unanswered(self, session_id: str, cwd: str) -> bool:
        """Whether the newest request of this session, or of one of its subagents, left no answer behind."""
        return any(_ends_with_request(path) for path in self._files(session_id, cwd))

    def started_without_reply(self, session_id: str, cwd: str) -> int:
        """How many requests left no reply behind: their cost is unknown."""
        entries = self._entries(session_id, cwd, _REQUEST)
        requests = len([entry for entry in entries if entry.type == "api-request"])
        return max(0, requests - len(self.replies(session_id, cwd)))

    def _entries(self, session_id: str, cwd: str, needle: bytes) -> Iterator[_Entry]:
        for path in self._files(session_id, cwd):
            with path.open("rb") as file:
                for line in file:
                    if needle in line and (entry := _entry(line)) is not None:
                        yield entry

    def _files(self, session_id: str, cwd: str) -> list[Path]:
        if not _SESSION_ID.fullmatch(session_id):
            return []
        main = transcript_path(self._config_dir, cwd, session_id)
        # Claude shortens the folder names of long paths in its own way, and a session may have moved.
        mains = [main] if main.is_file() else sorted(self._config_dir.glob(f"projects/*/{session_id}.jsonl"))
        subagents = (path.with_suffix("").joinpath("subagents").glob("agent-*.jsonl") for path in mains)
        return [*mains, *(path for group in subagents for path in sorted(group))]


def _ends_with_request(path: Path) -> bool:
    waiting = False
    with path.open("rb") as file:
        for line in file:
            if (_REQUEST in line or _REPLY in line) and (entry := _entry(line)) is not None:
                waiting = entry.type == "api-request" or (waiting and entry.type != "assistant")
    return waiting


def _is_paid_reply(entry: _Entry, message: _Message) -> bool:
    """Whether it was served in full, by a model: an error that Claude Code put there itself costs nothing."""
    if entry.type != "assistant" or entry.aborted is True:
        return False
    return isinstance(message.id, str) and isinstance(message.model, str) and not message.model.startswith("<")


def _entry(line: bytes) -> _Entry | None:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # half-written, or not ours to understand
        return None
