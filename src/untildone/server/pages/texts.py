"""Hostile text made fit for a browser: readable, bounded, and never anything but text."""

from untildone.core.dataclass import dataclass
from untildone.core.printable import printable

PIECE = 20_000
"""Characters of a long text that are fetched at a time."""

_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A, 0x0D, 0x1B)}
_PICTURES[0x7F] = "␡"
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN = _PICTURES | {code: f"⟨U+{code:04X}⟩" for code in _BIDI}


def visible(text: str) -> str:
    """Lines of text without escape codes; control characters, and those that turn text around, stand as symbols."""
    return printable(text.translate(_SHOWN), lines=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a long text."""

    text: str
    start: int
    next: int | None
    """Where the next one begins; None: this was the last."""
    length: int
    """Of the whole."""


def piece_of(text: str, start: int = 0, most: int = PIECE) -> Piece:
    """The part of a text that begins at `start`."""
    start = max(0, min(start, len(text)))
    end = min(len(text), start + most)
    return Piece(text=visible(text[start:end]), start=start, next=end if end < len(text) else None, length=len(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """A line of a diff and how it is coloured."""

    tone: str
    """`add`, `del`, `hunk`, `file` or nothing."""
    text: str


_SIGNS = (("+++", "file"), ("---", "file"), ("diff ", "file"), ("@@", "hunk"), ("+", "add"), ("-", "del"))
_LINE = 2_000


def diff_lines(diff: str, most: int = 3_000) -> list[DiffLine]:
    """A unified diff, line by line; very long lines are cut."""
    lines = diff.removesuffix("\n").split("\n", most)[:most]
    return [
        DiffLine(tone=_tone(line), text=visible(line[:_LINE]) + ("…" if len(line) > _LINE else "")) for line in lines
    ]


def _tone(line: str) -> str:
    return next((tone for sign, tone in _SIGNS if line.startswith(sign)), "")
