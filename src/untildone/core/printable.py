"""Hostile text made safe to look at: no escape codes, no invisible characters, no text that runs backwards."""

import re
import unicodedata
from functools import cache

ELLIPSIS = "…"

# Character classes exclude what starts the next sequence, so that hostile input is scanned once, not squared.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor movement, screen clearing
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*+(?:\x07|\x1b\\|\x9c)"  # OSC and other strings
    r"|\x1b[ -/]*+[0-Z\\^-~]"  # all other escapes; [ and ] alone would hide the text after them
)
_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_MARK = r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_PILED_MARKS = re.compile(f"({_MARK}{{3}}){_MARK}+")
_REPLACED = frozenset({"Cs", "Co"})
_REMOVED = frozenset({"Cc", "Cf"})
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_TAB = "    "


def printable(text: str, *, width: int | None = None, lines: bool = False) -> str:
    """`text` as a terminal may show it; line ends are kept only with `lines`. `width` cuts each line, in columns."""
    if not (text.isascii() and text.isprintable()):
        text = _LINE_ENDS.sub("\n", _SEQUENCES.sub("", text)).replace("\t", _TAB)
        text = "".join(map(_shown, text))
        text = _PILED_MARKS.sub(r"\1", text)
    if not lines:
        return cut(text.replace("\n", " "), width)
    return text if width is None else "\n".join(cut(line, width) for line in text.split("\n"))


def one_line(text: str, width: int | None = None) -> str:
    """`text` as one safe line, white space collapsed."""
    if width is not None:
        # Long before it is cut by columns: most of a megabyte would be cleaned in vain.
        text = text[: 20 * width + 1000]
    return cut(" ".join(printable(text).split()), width)


def cut(text: str, width: int | None) -> str:
    """Safe text cut to a number of terminal columns, with an ellipsis where something is missing."""
    if width is None or columns(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += _columns_of(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept).rstrip() + ELLIPSIS if width > 0 else ""


def columns(text: str) -> int:
    """How many terminal columns safe text takes."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


@cache
def _shown(char: str) -> str:
    if char == "\n" or (char.isascii() and char.isprintable()):
        return char
    category = unicodedata.category(char)
    if category in _REPLACED:
        return "\ufffd"
    return "" if category in _REMOVED or char in _BLANK_LETTERS else char


def _columns_of(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
