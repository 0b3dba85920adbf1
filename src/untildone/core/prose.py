"""What an agent's message says to people: its prose, without status blocks, JSON, code and the signs of Markdown."""

import re

from untildone.core.claims import without_status
from untildone.core.markdown import WRAPPING, fenced, split_lines
from untildone.core.printable import ELLIPSIS, cut, one_line, printable

_READ = 4000
"""Characters that are read of a message, the first or the last ones: all of it would be cleaned in vain."""
_MARK = re.compile(r"-{2,}\s*(?:END_)?(?:LOOP|RALPH)_STATUS\s*-{2,}|(?:LOOP|RALPH)_STATUS:")
_FIELD = re.compile(r"[A-Z][A-Z_]+[A-Z]:(?:\s.*)?")
"""A line of a status block, such as `WORK_TYPE: TESTING`."""
_JSON = re.compile(r'[][{},\s]*|[{[]\s*["{[].*|"[^"]*"\s*(?::.*|,)')
_TAG = re.compile(r"<(\w+)[^<>]*>[^<>]*</\1>|</?\w+[^<>]*>")
_BULLET = re.compile(r"^(?:#{1,6}|[-*+>•]|\d{1,3}[.)])\s+(?=\S)")
_EMPHASIS = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\.\w\.)\s+(?=[A-Z\"'`(])")
"""Not after an abbreviation such as `e.g.`."""
_FILLER = re.compile(
    r"(?:(?:all|it'?s|everything|now|work|task|iteration|summary|great|is) ){0,3}"
    r"(?:done|finished|completed?|perfect|great|excellent|good|ok(?:ay)?|ready|summary|report|status|update)\W*",
    re.IGNORECASE,
)
"""A sentence that says nothing about what was done, unless there is no other."""


def prose_lines(text: str, *, last: bool = False) -> list[str]:
    """The lines of a message that are prose, each on one safe line; `last`: of a long text its end."""
    text = text[-_READ:] if last else text[:_READ]
    lines = split_lines(without_status(printable(text, lines=True)))
    lines = _without_open_block(lines)
    is_code = fenced(lines, unclosed=True)
    return [said for line, code in zip(lines, is_code, strict=True) if not code and (said := _plain(one_line(line)))]


def headline(text: str, width: int) -> str:
    """The first sentence of a message that says something, for a title; empty where there is none."""
    said = [sentence for line in prose_lines(text) if not line.endswith(":") for sentence in _SENTENCE_END.split(line)]
    telling = next((sentence for sentence in said if not _FILLER.fullmatch(sentence)), said[0] if said else "")
    title = telling.rstrip(" .;,")
    kept = cut(title, width)
    # At the end of a word, unless the first word is longer than all there is room for.
    whole = kept.removesuffix(ELLIPSIS).rpartition(" ")[0].rstrip(" .;,")
    return kept if kept == title or not whole else whole + ELLIPSIS


def _without_open_block(lines: list[str]) -> list[str]:
    """Without a status block of which only the beginning, only the end or only a header line is there."""
    kept: list[str] = []
    in_block = False
    for line in lines:
        word = line.strip(WRAPPING)
        if _MARK.fullmatch(word):
            in_block = "END_" not in word
            if not in_block:
                kept = _up_to_fields(kept)
        elif not (in_block and (_FIELD.fullmatch(word) or not word)):
            in_block = False
            kept.append(line)
    return kept


def _up_to_fields(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and (not (word := lines[end - 1].strip(WRAPPING)) or _FIELD.fullmatch(word)):
        end -= 1
    return lines[:end]


def _plain(line: str) -> str:
    """The words of a line; empty where it is data, a tag, or a rule between two parts."""
    line = _EMPHASIS.sub(r"\2", _BULLET.sub("", line, count=1)).strip()
    if _JSON.fullmatch(line) or _TAG.fullmatch(line) or not any(map(str.isalnum, line)):
        return ""
    return line
