"""Claude's own transcripts: where they are, and what the replies in them cost."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from untildone.agents.argv import as_prompt
from untildone.agents.prices import priced, usage_from
from untildone.core.events import Event
from untildone.core.trace import AgentReply

PROJECTS = "projects"
SUBAGENTS = "subagents"
_LONGEST_NAME = 200
_SESSION_ID = re.compile(r"[0-9A-Za-z_-]{1,100}")
_REPLY = b'"assistant"'


class _Message(msgspec.Struct):
    id: Any = None
    model: Any = None
    usage: Any = None
    stop_reason: Any = None
    content: Any = None


class _Entry(msgspec.Struct):
    type: Any = None
    message: _Message | None = None
    timestamp: Any = None
    is_meta: Any = msgspec.field(default=None, name="isMeta")
    aborted: Any = msgspec.field(default=None, name="isAbortedMidStream")


_decode = msgspec.json.Decoder(_Entry).decode


def transcript_path(config_dir: str | Path, cwd: str, session_id: str) -> Path:
    """Where Claude keeps the transcript of a session that works in `cwd`."""
    return Path(config_dir) / PROJECTS / project_name(cwd) / f"{session_id}.jsonl"


def project_name(cwd: str) -> str:
    """What Claude calls the folder with the transcripts of a working folder: a long one is cut, and told by a hash."""
    name = re.sub(r"[^0-9A-Za-z]", "-", cwd)
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}-{_base36(_hash(cwd))}"


def _hash(text: str) -> int:
    """As JavaScript programs hash a string: 32 bits with a sign, over UTF-16."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + low + (high << 8)) & 0xFFFFFFFF
    return min(value, (1 << 32) - value)


def _base36(value: int) -> str:
    digits = ""
    while value:
        value, rest = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits or "0"


class TranscriptLedger:
    """Reads what replies cost from the transcripts in a Claude configuration folder."""

    def __init__(self, config_dir: Path) -> None:
        self.config_dir = config_dir

    def replies(self, session_id: str, cwd: str) -> list[Event]:
        """`agent.reply` events of that session and its subagents, one per message id.

        A transcript does not know iterations: `iteration_num` is 0, for the reader to fill in.
        """
        return [reply for _, reply in self.timed_replies(session_id, cwd)]

    def timed_replies(self, session_id: str, cwd: str) -> list[tuple[float, AgentReply]]:
        """The same, each with the moment it was served."""
        found: dict[str, tuple[float, AgentReply]] = {}
        for entry in self._entries(session_id, cwd):
            message = entry.message
            if message is None or not _is_paid_reply(entry, message):
                continue
            cost_usd, estimated_usd = priced(message.model, message.usage)
            reply = AgentReply(
                iteration_num=0,
                message_id=message.id,
                model=message.model,
                usage=usage_from(message.usage),
                cost_usd=cost_usd,
                estimated_usd=estimated_usd,
            )
            found[message.id] = (_moment(entry.timestamp), reply)
        return list(found.values())

    def unanswered(self, session_id: str, cwd: str, *, only_subagents: bool = False) -> bool:
        """Whether something asked in this session, or of one of its subagents, left no answer behind.

        A transcript lags behind: where it ends with a tool that was called, the tool's answer may have been sent on;
        and where the conversation itself holds nothing yet, it may have been asked already.
        """
        files = self._files(session_id, cwd)
        return any(_ends_with_question(path) for path in files if not only_subagents or path.parent.name == SUBAGENTS)

    def find_session(self, cwd: str, *, since: float, prompt: str) -> str | None:
        """The newest session that was begun in `cwd` since then with a prompt that starts so."""
        folder = transcript_path(self.config_dir, cwd, "").parent
        found = [
            path
            for path in folder.glob("*.jsonl")
            if prompt and path.is_file() and path.stat().st_mtime >= since and _was_begun(path, since, prompt)
        ]
        return max(found, key=lambda path: path.stat().st_mtime_ns).stem if found else None

    def _entries(self, session_id: str, cwd: str) -> Iterator[_Entry]:
        for path in self._files(session_id, cwd):
            with path.open("rb") as file:
                for line in file:
                    if _REPLY in line and (entry := _entry(line)) is not None:
                        yield entry

    def _files(self, session_id: str, cwd: str) -> list[Path]:
        if not _SESSION_ID.fullmatch(session_id):
            return []
        main = transcript_path(self.config_dir, cwd, session_id)
        # Claude shortens the folder names of long paths in its own way, and a session may have moved.
        mains = [main] if main.is_file() else sorted(self.config_dir.glob(f"projects/*/{session_id}.jsonl"))
        subagents = (path.with_suffix("").joinpath(SUBAGENTS).glob("agent-*.jsonl") for path in mains)
        return [*mains, *(path for group in subagents for path in sorted(group))]


def _ends_with_question(path: Path) -> bool:
    waiting = path.parent.name != SUBAGENTS
    with path.open("rb") as file:
        for line in file:
            if (entry := _entry(line)) is None:
                continue
            if entry.type == "assistant":
                waiting = entry.message is not None and entry.message.stop_reason == "tool_use"
            elif entry.type == "api-request" or (entry.type == "user" and _is_question(entry)):
                waiting = True
    return waiting


def _is_question(entry: _Entry) -> bool:
    """Whether the model was asked: not by a slash command, nor by the note that a request was cut off."""
    said = _said(entry)
    return entry.is_meta is not True and not said.startswith(("<command-", "<local-command-", "[Request interrupted"))


def _was_begun(path: Path, since: float, prompt: str) -> bool:
    """By the first question in it."""
    with path.open("rb") as file:
        for line in file:
            entry = _entry(line) if b'"user"' in line else None
            if entry is not None and entry.type == "user" and _is_question(entry):
                return _moment(entry.timestamp) >= since and as_prompt(prompt) == _said(entry)[: len(as_prompt(prompt))]
    return False


def _said(entry: _Entry) -> str:
    content = entry.message.content if entry.message is not None else None
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if isinstance(content, str) else ""


def _moment(timestamp: Any) -> float:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (TypeError, ValueError):
        return 0.0


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
