"""What must not leave the process: known secrets in whatever spelling, what looks like a key, and what the user names.

Payloads are JSON and stay JSON of the same shape: only texts change. Nearly always there is nothing to hide, and a
look at the bytes is enough to know.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from untildone.core.dataclass import dataclass
from untildone.core.secrets import may_hold_secret, redact, secrets_in
from untildone.uplink.patterns import Patterns
from untildone.uplink.reading import Span, occurrences, unescaped, unwrapped, without

SHORTEST = 6
"""What is shorter would be found in any text."""
LONGEST = 10_000
_CORE = re.compile(r"[A-Za-z0-9]+")
_ENCODED_LEAST = 9
"""Bytes from which a secret is looked for inside base64, too: of fewer, too little is left between the edges."""
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_KEY = "PRIVATE KEY"
_WRAPPED_KEY = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=:,\s\\-]*+")
_DEEPEST = 200


@dataclass(frozen=True, slots=True)
class _Known:
    """A secret whose value is known, and every way it may be written."""

    said: str
    core: str
    """A part of it that looks the same in every spelling."""
    value: str
    read: str
    """The value without what it may be wrapped in; empty when too little is left of it."""


class Masking:
    """Takes secrets out of texts and payloads."""

    def __init__(
        self,
        known: Callable[[], Mapping[str, str]] | Mapping[str, str] | None = None,
        patterns: Iterable[str] = (),
    ) -> None:
        """`known`: names of secrets by their values, or who knows them by now; `patterns`: more of them."""
        self._own = Patterns(patterns)
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
        if self._own or any(core in data for core in self._cores):
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
        if wanted := [one for one in self._known if one.core in text or escaped]:
            text = without(text, _found(text, wanted))
        if may_hold_secret(text) or escaped:
            text = _recognised(text)
        return self._own.hidden(text)


def _found(text: str, wanted: Iterable[_Known]) -> Iterator[Span]:
    reading = unwrapped(text)
    for one in wanted:
        for start, end in occurrences(text, one.value):
            yield start, end, one.said
        if one.read:
            for place in occurrences(reading.text, one.read):
                yield *reading.stood(*place), one.said


def _recognised(text: str) -> str:
    if "\\" in text and _KEY in text:
        # Before anything else: the first line of a key would be taken away, and nothing would tell what follows.
        text = _WRAPPED_KEY.sub("[secret: private key]", text)
    text = redact(text)
    if "\\" in text:
        # A text inside a text: what is found in the inner one is taken out of the outer one, as it is written there.
        inner = unescaped(text)
        found = ((*inner.stood(start, end), f"[secret: {kind}]") for kind, start, end in secrets_in(inner.text))
        text = without(text, found)
    return text


def _spellings(value: str, name: str) -> Iterable[_Known]:
    said = f"[secret: {_NAME.sub('-', name)[:60]}]"
    core = max(_CORE.findall(value), key=len, default="")
    read = unwrapped(value).text
    yield _Known(said, core, value, read if len(read) >= SHORTEST else "")
    raw = value.encode("utf-8", "surrogatepass")
    if len(raw) >= _ENCODED_LEAST:
        # Where in the three-byte rhythm it begins is not known; the letters at the edges depend on its neighbours.
        for shift in range(3):
            encoded = base64.b64encode(b"\0" * shift + raw).decode()
            inner = encoded[(0, 2, 3)[shift] : len(encoded) - (0, 4, 3)[(shift + len(raw)) % 3]]
            for spelled in {inner, inner.replace("+", "-").replace("/", "_")}:
                longest = max(_CORE.findall(spelled), key=len, default="")
                yield _Known(said, longest, spelled, spelled)
