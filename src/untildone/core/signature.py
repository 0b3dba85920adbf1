"""A short name for what went wrong: the same error gives the same name, wherever and whenever it happens."""

import hashlib
import re

MATCHES = 5
LENGTH = 100
_RAW = 4 * LENGTH
"""Read before cleaning, so that what is removed does not shift the end of what is kept."""
_BEFORE = 40
"""How far back the name in front of the word may reach, as in `requests.exceptions.ConnectionError`."""

# No unbounded repetition in front of a word: the scan stays linear on any text.
_WORD = re.compile(
    r"(?<!\b0 )(?<!\bno )(?<!\bany )(?<!\bwithout )(?<!\bzero )"
    r"(?:error|exception|failure|failed|fatal|panic|traceback|not found|denied|undefined|cannot |unable to |timed out"
    r"|segmentation fault)"
    r"(?!s?[ _-](?:handl|messag|report|free\b|cod(?:e|es)\b|path|boundar|count\b|rate\b)|s?[ ]?[:=][ ]?0\b)"
)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[a-z]")
_NAME_TAIL = re.compile(r"[\w.]*\Z")

_VOLATILE: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern)
    for pattern in (
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        r"\b0x[0-9a-f]+",
        r"(?:/private)?/(?:tmp|var/tmp|var/folders|dev/shm)/[^\s:'\"`)\]>,;]*",
        r"\b[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}",
        r"(?<![\w:.])t?[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]+)?(?:z\b|[+-][0-9]{2}:?[0-9]{2}\b)?",
        r"\b[0-9]+(?:\.[0-9]+)? ?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?|hours?)\b",
        r"\b(?:lines?|ln|col(?:umn)?|pid|process|thread)[ :=]*[0-9]+",
        r"(?::[0-9]+)+|\([0-9]+(?:,[ ]?[0-9]+)?\)",  # file.py:12:3, file.ts(12,3)
        r"\b(?=[a-f]*[0-9])[0-9a-f]{8,64}\b",  # commits, digests, ids
    )
)


def error_signature(text: str) -> str:
    """16 hex digits that name the first errors in a text; empty when there is none."""
    found: dict[str, None] = {}
    lowered = _COLOUR.sub("", text.lower())
    at = 0
    for _ in range(MATCHES):
        word = _WORD.search(lowered, at)
        if word is None:
            break
        line = lowered[word.start() : word.start() + _RAW].partition("\n")[0]
        found[_name_before(lowered, word.start()) + _cleaned(line, len(word[0]) + LENGTH)] = None
        at = word.start() + min(len(line), len(word[0]) + LENGTH)
    if not found:
        return ""
    return hashlib.sha256("\n".join(found).encode("utf-8", "replace")).hexdigest()[:16]


def _name_before(text: str, start: int) -> str:
    name = _NAME_TAIL.search(text[max(0, start - _BEFORE) : start])
    return name[0] if name else ""


def _cleaned(line: str, length: int) -> str:
    """The error in words that do not change from one time to the next."""
    for pattern in _VOLATILE:
        line = pattern.sub("", line)
    return " ".join(line.split())[:length]
