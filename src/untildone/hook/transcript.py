"""The end of a transcript, for the versions of Claude Code that do not say the last words themselves."""

import os
import stat
import time

from untildone.hook import plain_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TAIL = 64 << 10
PATIENCE = 0.3
"""Seconds to wait for words that were said but are not written yet."""
_LOOK_EVERY = 0.03


def last_words(path: str) -> str:
    """What the agent said last; nothing where that cannot be found. Takes as long for any length of transcript."""
    until = time.monotonic() + PATIENCE
    while True:
        found = _last(_tail(path))
        if found is not None or time.monotonic() >= until:
            return found or ""
        time.sleep(_LOOK_EVERY)


def _tail(path: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        found = os.fstat(handle)
        return os.pread(handle, TAIL, max(0, found.st_size - TAIL)) if stat.S_ISREG(found.st_mode) else b""
    finally:
        os.close(handle)


def _last(tail: bytes) -> str | None:
    """The text of the last message, if it is the agent's; None where somebody else spoke after it."""
    for line in reversed(tail.split(b"\n")):
        try:
            entry = plain_json.parse(line.decode("utf-8", "replace"))
        except ValueError:
            continue
        if not isinstance(entry, dict) or entry.get("isSidechain") or entry.get("type") not in {"assistant", "user"}:
            continue
        return _text(entry.get("message")) if entry["type"] == "assistant" else None
    return None


def _text(message: "Any") -> str | None:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str)) or None
