"""Bytes of Claude Code's stream-json in, lines as values out. No I/O, and nothing is lazy.

Only what the loop needs is decoded: a stream can be hundreds of megabytes of tool results and text deltas.
"""

import contextlib
import json
import re
from typing import Any, TypeAlias

import msgspec

LONGEST_LINE = 64 << 20
"""A line longer than this is dropped: memory must stay bounded whatever the agent prints."""
TEXT_KEPT = 8192
"""Characters kept of a tool's answer; its full length is kept beside it."""
_PREVIEW = 200
_LARGE = 16 << 10
_QUOTE = ord('"')
_LONGEST_ESCAPE = len(r"\ud83d\ude00")

# Text and tool input arrive again, whole, in the assistant line: their deltas need no decoding at all.
_UNNEEDED = (b'{"type":"stream_event","event":{"type":"content_block_', b'{"type":"transcript_mirror",')
# A tuple: the type of a line can be anything, also what no set takes.
_KEPT_WHOLE = ("system", "control_request", "control_response", "control_cancel_request")
# Sent by the clock while a tool runs or nothing happens at all: no sign of life.
_HEARTBEATS = (b'{"type":"tool_progress"', b'{"type":"keep_alive"')
_USER = b'{"type":"user","message":'
# In valid JSON these bytes can only be structure: inside a string the quotes would be escaped.
_AFTER_MESSAGE = b']},"parent_tool_use_id":'
_PATCH = re.compile(rb'"structuredPatch":\[|"old_source":"')
_PARENT = re.compile(rb'(?:null|"[^"\\]*")(?=,)')


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line, reduced to the fields somebody reads. Nothing in it can be trusted to have the right type."""

    type: Any = None
    subtype: Any = None
    session_id: Any = None
    parent_tool_use_id: Any = None
    message: Any = None
    event: Any = None
    api_message_id: Any = None
    patch: Any = None
    """What a tool says it did to a file, without the file itself."""
    tool_use_result: msgspec.Raw = msgspec.Raw()
    """Only while a line is parsed: it repeats what is in the message, and whole files."""
    data: Any = None
    """The whole line, for system lines other than `init` and for control lines."""
    # system/init
    model: Any = None
    cwd: Any = None
    claude_code_version: Any = None
    api_key_source: Any = msgspec.field(default=None, name="apiKeySource")
    # API errors and limits
    error: Any = None
    is_api_error_message: Any = None
    api_error_status: Any = None
    api_error: Any = None
    rate_limit_info: Any = None
    # result
    is_error: Any = None
    result: Any = None
    errors: Any = None
    terminal_reason: Any = None
    stop_reason: Any = None
    structured_output: Any = None
    num_turns: Any = None
    total_cost_usd: Any = None
    usage: Any = None
    model_usage_since_last_result: Any = None
    permission_denials: Any = None
    origin: Any = None


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """A line that could not be read; it was skipped."""

    error: str
    preview: str = ""


Parsed: TypeAlias = Line | Malformed


class _LargeAnswer(msgspec.Struct):
    type: Any = None
    tool_use_id: Any = None
    is_error: Any = None
    content: msgspec.Raw = msgspec.Raw()


class _LargeMessage(msgspec.Struct):
    content: list[_LargeAnswer]


class _LargeUser(msgspec.Struct):
    message: _LargeMessage
    parent_tool_use_id: Any = None
    tool_use_result: msgspec.Raw = msgspec.Raw()


class _Patch(msgspec.Struct):
    type: Any = None
    structured_patch: Any = msgspec.field(default=None, name="structuredPatch")
    old_source: Any = None


_decode_large = msgspec.json.Decoder(_LargeUser).decode
_decode_line = msgspec.json.Decoder(Line).decode
_decode_patch = msgspec.json.Decoder(_Patch).decode
_decode_any = msgspec.json.Decoder().decode


class StreamParser:
    """Cuts a byte stream into lines and parses them, however the bytes were chunked."""

    def __init__(self) -> None:
        self.malformed = 0
        """Lines that could not be read so far."""
        self.heard = 0
        """Lines so far, also those nobody needs, without those that come by the clock alone."""
        # Pieces of a line whose end has not come yet: joined once, so a long line costs no quadratic copying.
        self._pieces: list[bytes] = []
        self._length = 0
        self._is_complete = False

    def feed(self, chunk: bytes) -> list[Parsed]:
        """Return the lines that `chunk` completed."""
        parsed: list[Parsed] = []
        start = 0
        if self._length:
            end = chunk.find(b"\n")
            self._add(chunk[:end] if end >= 0 else chunk)
            if end < 0:
                return []
            parsed += self._take_pieces()
            start = end + 1
        needed = []
        # Found, not split: most lines are deltas, and a line nobody needs is not even copied.
        while (end := chunk.find(b"\n", start)) >= 0:
            if not chunk.startswith(_UNNEEDED, start):
                needed.append(chunk[start:end])
                self.heard -= chunk.startswith(_HEARTBEATS, start)
            self.heard += 1
            start = end + 1
        if start < len(chunk):
            self._add(chunk[start:])
        return parsed + self._parse(needed)

    def finish(self) -> list[Parsed]:
        """Return what the stream's last, unfinished line held."""
        return self._take_pieces()

    def _add(self, piece: bytes) -> None:
        if self._is_complete:
            return
        self._length += len(piece)
        if self._length > LONGEST_LINE:
            self._pieces = [b"".join(self._pieces)[:_PREVIEW]]
            return
        if self._pieces and self._pieces[0].startswith(_USER) and (end := _end_of_message(piece)) is not None:
            piece, self._is_complete = end, True
        self._pieces.append(piece)

    def _take_pieces(self) -> list[Parsed]:
        line, length = b"".join(self._pieces), self._length
        self.heard += bool(line) and not line.startswith(_HEARTBEATS)
        self._pieces, self._length, self._is_complete = [], 0, False
        if length > LONGEST_LINE:
            self.malformed += 1
            return [Malformed(error=f"a line of {length} bytes was dropped", preview=_preview(line))]
        return [] if line.startswith(_UNNEEDED) else self._parse([line])

    def _parse(self, lines: list[bytes]) -> list[Parsed]:
        parsed = [value for line in lines if (value := parse_line(line)) is not None]
        self.malformed += sum(type(value) is Malformed for value in parsed)
        return parsed


def _end_of_message(piece: bytes) -> bytes | None:
    """Close a user line after its message, if that ends here: what follows is the same tool output once more."""
    found = piece.find(_AFTER_MESSAGE)
    parent = _PARENT.match(piece, found + len(_AFTER_MESSAGE)) if found >= 0 else None
    return piece[: parent.end()] + b"}" if parent else None


def parse_line(line: bytes) -> Parsed | None:
    """Parse one line without its line end; None for an empty one."""
    if len(line) > _LARGE and line.startswith(_USER) and (early := _large_user_line(line)) is not None:
        return early
    try:
        return _reduced(_decode_line(line), line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _second_try(line)


def _large_user_line(line: bytes) -> Line | None:
    """Leave long tool answers undecoded but for their beginning; None if the line is not of the usual shape."""
    try:
        user = _decode_large(line)
        content: list[dict[str, Any]] = [
            {
                "type": block.type,
                "tool_use_id": block.tool_use_id,
                "is_error": block.is_error,
                **_beginning(memoryview(block.content)),
            }
            for block in user.message.content
        ]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    patch = _patch(user.tool_use_result)
    return Line(type="user", parent_tool_use_id=user.parent_tool_use_id, message={"content": content}, patch=patch)


def _patch(raw: msgspec.Raw) -> dict[str, Any] | None:
    """The patch of a tool that edits files; the contents before and after are not even decoded."""
    if not _PATCH.search(raw):
        return None
    try:
        found = _decode_patch(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return {"type": found.type, "structuredPatch": found.structured_patch, "old_source": found.old_source}


def _beginning(raw: memoryview) -> dict[str, Any]:
    if len(raw) > _LARGE and raw[0] == _QUOTE:
        # Counted in bytes as sent: the exact number of characters would need all of it decoded.
        return {"content": _first_part(bytes(raw[:TEXT_KEPT])), "full_length": len(raw) - 2}
    text = _answer_text(_decode_any(raw) if raw else None)
    return {"content": text[:TEXT_KEPT], "full_length": len(text)}


def _first_part(raw: bytes) -> str:
    for end in range(len(raw), len(raw) - _LONGEST_ESCAPE, -1):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # cut inside an escape or a character
            return str(_decode_any(raw[:end] + b'"'))
    raise msgspec.DecodeError("no text can be read")


def _second_try(line: bytes) -> Parsed | None:
    """Read what strict JSON refuses: bytes that are no UTF-8, control characters, halves of surrogate pairs."""
    text = line.decode("utf-8", "replace").strip("\0\r\n\t \ufeff")
    if not text:
        return None
    try:
        clean = json.dumps(json.loads(text, strict=False), ensure_ascii=False).encode("utf-8", "replace")
        return _reduced(_decode_line(clean), clean)
    except (ValueError, RecursionError) as bad:  # both JSON libraries raise kinds of ValueError
        return Malformed(error=f"not a stream-json line: {str(bad)[:_PREVIEW]}", preview=_preview(line))


def _reduced(parsed: Line, line: bytes) -> Line:
    if parsed.type == "user":
        return _with_short_answers(parsed)
    if parsed.type in _KEPT_WHOLE and parsed.subtype != "init":
        return msgspec.structs.replace(parsed, data=_decode_any(line))
    return parsed


def _with_short_answers(parsed: Line) -> Line:
    """Cut long tool answers at once, so that nobody holds megabytes of them."""
    content = parsed.message.get("content") if isinstance(parsed.message, dict) else None
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                text = _answer_text(block.get("content"))
                block["content"], block["full_length"] = text[:TEXT_KEPT], len(text)
    # Nothing but this is read of a user line, and a long one may have no more: see `_end_of_message`.
    patch = _patch(parsed.tool_use_result)
    return Line(type="user", parent_tool_use_id=parsed.parent_tool_use_id, message=parsed.message, patch=patch)


def _answer_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(_block_text(block) for block in content)


def _block_text(block: Any) -> str:
    if not isinstance(block, dict):
        return ""
    text = block.get("text")
    return text if isinstance(text, str) else f"[{str(block.get('type'))[:40]}]"


def _preview(line: bytes) -> str:
    text = line[:_PREVIEW].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text)
