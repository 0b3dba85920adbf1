"""What must not leave the process: known secrets in whatever spelling, what looks like a key, and what the user names.

Payloads are JSON and stay JSON of the same shape: only texts change. Nearly always there is nothing to hide, and a
look at the bytes is enough to know.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from untildone.core.secrets import may_hold_secret, redact, secrets_in
from untildone.errors import ConfigError

SHORTEST = 6
"""What is shorter would be found in any text."""
LONGEST = 10_000
_CORE = re.compile(r"[A-Za-z0-9]+")
_ENCODED_LEAST = 9
"""Bytes from which a secret is looked for inside base64, too: of fewer, too little is left between the edges."""
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&(?:quot|#34);", "'": "&(?:#39|#x27|apos);"}
_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_ESCAPE = re.compile(r'\\+(?:(["/\\])|([nrtbf])|u([0-9a-fA-F]{4}))')
_UNESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_KEY = "PRIVATE KEY"
_WRAPPED_KEY = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:\\+[nrt]|[A-Za-z0-9+/=:,\s\\-])*")
_DEEPEST = 200


@dataclass(frozen=True, slots=True)
class _Known:
    """A secret whose value is known, and every way it may be written."""

    said: str
    core: str
    """A part of it that looks the same in every spelling."""
    spelled: re.Pattern[str]


class Masking:
    """Takes secrets out of texts and payloads."""

    def __init__(
        self,
        known: Callable[[], Mapping[str, str]] | Mapping[str, str] | None = None,
        patterns: Iterable[str] = (),
    ) -> None:
        """`known`: names of secrets by their values, or who knows them by now; `patterns`: more of them."""
        self._patterns = compiled(patterns)
        self._ask = known if callable(known) else None
        self._seen: Mapping[str, str] = {}
        self._known: tuple[_Known, ...] = ()
        self._cores: tuple[bytes, ...] = ()
        if not callable(known):
            self._learn(known or {})

    def payload(self, data: bytes) -> bytes:
        """A JSON value without secrets; the same bytes when there are none."""
        self._refresh()
        if not self._is_suspicious(data):
            return data
        try:
            value = msgspec.json.decode(data)
            cleaned = self._clean(value)
            return data if cleaned == value else msgspec.json.encode(cleaned)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # No JSON that we can read, so that nobody else will: what is left must still hide what it held.
            return msgspec.json.encode({"unreadable": self._hidden(data.decode("utf-8", "replace"))})

    def text(self, text: str) -> str:
        """A text without secrets; the very same one when there are none."""
        self._refresh()
        return self._hidden(text)

    def lines(self, content: bytes) -> bytes:
        """JSON values line by line, as in a transcript, without secrets."""
        return b"\n".join(self.payload(line) if line.strip() else line for line in content.split(b"\n"))

    def _refresh(self) -> None:
        if self._ask is not None and (known := self._ask()) is not self._seen:
            self._seen = known
            self._learn(known)

    def _learn(self, known: Mapping[str, str]) -> None:
        # The longest first: one may be part of another.
        usable = sorted((value for value in known if SHORTEST <= len(value) <= LONGEST), key=len, reverse=True)
        self._known = tuple(one for value in usable for one in _spellings(value, known[value]))
        self._cores = tuple(dict.fromkeys(one.core.encode() for one in self._known))

    def _is_suspicious(self, data: bytes) -> bool:
        if self._patterns or any(core in data for core in self._cores):
            return True
        # An escaped letter may be part of anything; control characters have no other way to be written.
        if b"\\u" in data and re.search(rb"\\u(?!00[01][0-9a-fA-F])", data):
            return True
        return may_hold_secret(data.decode("utf-8", "replace"))

    def _clean(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            return self._hidden(value)
        if depth > _DEEPEST:
            return "[too deep]"
        if isinstance(value, list):
            return [self._clean(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {self._hidden(key): self._clean(item, depth + 1) for key, item in value.items()}
        return value

    def _hidden(self, text: str) -> str:
        if len(text) < SHORTEST:
            return text
        # The core of a secret is letters and digits: there is only one other way to write those.
        escaped = "\\u" in text
        for one in self._known:
            if one.core in text or escaped:
                text = one.spelled.sub(one.said, text)
        if may_hold_secret(text) or escaped:
            text = _recognised(text)
        for pattern in self._patterns:
            text = pattern.sub("[secret]", text)
        return text


def _recognised(text: str) -> str:
    if "\\" in text and _KEY in text:
        # Before anything else: the first line of a key would be taken away, and nothing would tell what follows.
        text = _WRAPPED_KEY.sub("[secret: private key]", text)
    text = redact(text)
    if "\\" in text and (plain := _unescaped(text)) != text:
        # A text inside a text: what is found in the inner one is taken out of the outer one, as it is written there.
        for kind, value in secrets_in(plain):
            text = re.sub(_spelling(value), f"[secret: {kind}]", text)
    return text


def compiled(patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """The user's own patterns. ConfigError for one that is none."""
    made = []
    for pattern in patterns:
        try:
            made.append(re.compile(pattern))
        except (re.error, RecursionError, OverflowError) as wrong:
            raise ConfigError(f"the pattern {pattern!r:.100} of what is to be masked cannot be read: {wrong}") from None
        if made[-1].match(""):
            raise ConfigError(f"the pattern {pattern!r:.100} of what is to be masked matches everything")
    return tuple(made)


def _spellings(value: str, name: str) -> Iterable[_Known]:
    said = f"[secret: {_NAME.sub('-', name)[:60]}]"
    core = max(_CORE.findall(value), key=len, default="")
    yield _Known(said, core, re.compile(_spelling(value)))
    raw = value.encode("utf-8", "surrogatepass")
    if len(raw) >= _ENCODED_LEAST:
        # Where in the three-byte rhythm it begins is not known; the letters at the edges depend on its neighbours.
        for shift in range(3):
            encoded = base64.b64encode(b"\0" * shift + raw).decode()
            inner = encoded[(0, 2, 3)[shift] : len(encoded) - (0, 4, 3)[(shift + len(raw)) % 3]]
            for spelled in {inner, inner.replace("+", "-").replace("/", "_")}:
                longest = max(_CORE.findall(spelled), key=len, default="")
                yield _Known(said, longest, re.compile(re.escape(spelled)))


def _spelling(value: str) -> str:
    return "".join(map(_letter, value))


def _letter(char: str) -> str:
    """A pattern of one character, plain or escaped: for JSON, however often, for an address, or for a page."""
    ways = [re.escape(char)]
    if ord(char) < 0x10000:  # noqa: PLR2004 - one \u each; others are written as a pair
        digits = "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in f"{ord(char):04x}")
        ways.append(rf"\\+u{digits}")
    if char in {'"', "\\", "/", "'"}:
        ways.insert(0, rf"\\+{re.escape(char)}")
    if char == "\\":
        ways.insert(0, r"\\+")
    if char in _SHORT_ESCAPES:
        ways.append(rf"\\+{_SHORT_ESCAPES[char]}")
    if not (char.isascii() and char.isalnum()):
        percent = quote(char, safe="", errors="replace")
        ways += [re.escape(percent), re.escape(percent.lower())]
        if char in _ENTITIES:
            ways.append(_ENTITIES[char])
    return f"(?:{'|'.join(dict.fromkeys(ways))})" if len(ways) > 1 else ways[0]


def _unescaped(text: str) -> str:
    """What a JSON text inside a text says, however often it was wrapped."""

    def plain(found: re.Match[str]) -> str:
        mark, short, code = found.groups()
        return mark or _UNESCAPED.get(short or "") or chr(int(code, 16))

    return _ESCAPE.sub(plain, text)


def transcript_b64(content: bytes, masking: Masking) -> str:
    """A transcript as the published events carry it."""
    return binascii.b2a_base64(masking.lines(content), newline=False).decode()
