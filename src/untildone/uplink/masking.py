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
from untildone.uplink.finding import FEW, Finding, Hints
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
        self._hints = Hints[str](())
        self._many: _Many | None = None
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

    def tells(self, content: bytes) -> bool:
        """Whether a file holds a secret whose value is known, as it is or inside base64."""
        self._refresh()
        text = content.decode("utf-8", "replace")
        if not self._hints.may_be_in(text):
            return False
        if self._many is not None:
            return self._many.is_written_in(text)
        return any(one.value in text for one in self._known)

    def _refresh(self) -> None:
        if self._ask is not None and (known := self._ask()) is not self._seen:
            self._seen = known
            self._learn(known)

    def _learn(self, known: Mapping[str, str]) -> None:
        # The longest first: one may be part of another.
        usable = sorted((value for value in known if SHORTEST <= len(value) <= LONGEST), key=len, reverse=True)
        self._known = tuple(one for value in usable for one in _spellings(value, known[value]))
        self._hints = Hints(one.core for one in self._known)
        self._many = _Many(self._known) if len(self._known) > FEW else None

    def _is_suspicious(self, data: bytes) -> bool:
        text = data.decode("utf-8", "replace")
        if self._own or self._hints.may_be_in(text):
            return True
        # An escaped letter may be part of anything; control characters have no other way to be written.
        if b"\\u" in data and re.search(rb"\\u(?!00[01][0-9a-fA-F])", data):
            return True
        return may_hold_secret(text)

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
        if self._many is not None:
            if escaped or self._hints.may_be_in(text):
                text = without(text, self._many.found(text))
        elif wanted := [one for one in self._known if one.core in text or escaped]:
            text = without(text, _found(text, wanted))
        if may_hold_secret(text) or escaped:
            text = _recognised(text)
        return self._own.hidden(text)


class _Many:
    """Secrets that are too many to look for each by itself."""

    def __init__(self, known: Iterable[_Known]) -> None:
        as_written: dict[str, str] = {}
        as_read: dict[str, str] = {}
        for one in known:
            as_written.setdefault(one.value, one.said)
            if one.read:
                as_read.setdefault(one.read, one.said)
        self._as_written, self._as_read = Finding(as_written), Finding(as_read)

    def is_written_in(self, text: str) -> bool:
        """Whether one of them stands there as it is."""
        return next(self._as_written.spans(text), None) is not None

    def found(self, text: str) -> Iterator[Span]:
        """Where they are, in whatever they are wrapped."""
        yield from self._as_written.spans(text)
        reading = unwrapped(text)
        for start, end, said in self._as_read.spans(reading.text):
            yield *reading.stood(start, end), said


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
