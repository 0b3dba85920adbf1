"""Source text into single tests, by lines and indentation: enough to tell what became of each of them.

Nothing here parses a language. The texts are hostile and may be of any size, so every step is linear in them.
"""

import re
from collections.abc import Iterator
from dataclasses import field
from typing import Literal

from untildone.core.dataclass import dataclass
from untildone.core.guard_languages import Reader

LINE = 1000
"""Characters looked at of a line; nobody writes a test beyond."""
_ANNOTATION_REACH = 12
_LONGEST_ANNOTATIONS = 60
_LONGEST_TEST = 3000

# Strings that never end match up to the end of their line: a pattern that can fail there would be quadratic.
_STRING = r'"(?:\\.|[^"\\\n])*"?' + r"|'(?:\\.|[^'\\\n])*'?"
_TOKENS = {
    "#": re.compile(r'(?P<comment>(?<!\S)#(?!\[)[^\n]*)|(?P<open>"""|' + r"'''" + ")|" + _STRING),
    "//": re.compile(r'(?P<comment>//[^\n]*)|(?P<open>/\*|""")|`[^`\\\n]*`?|' + _STRING),
}
_CLOSES = {'"""': '"""', "'''": "'''", "/*": "*/"}
_NAME = re.compile(r"([\w$]+|`[^`]{1,300}`)\s*[(<]")
_ARGUMENTS = re.compile(r"\s*\([^()]{0,500}\)")
_BODY = re.compile(r"(?:\)[^{}()]{0,200}\{|=>|\):|\bdo\b|\{)(.*)")
_CLOSERS = (")", "]", "}", "end")
_ABOVE = ("@", "#[", "[")


@dataclass(frozen=True, slots=True)
class Unit:
    """One test."""

    name: str
    line: int
    """Where it begins, from 1."""
    first: int
    """The same with the annotations above."""
    last: int
    body: tuple[str, ...] = field(repr=False, default=())
    """Its lines without white space around them, annotations and the line that names it left out."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file as lines of code, and the tests in it."""

    raw: tuple[str, ...]
    code: tuple[str, ...]
    """The same lines without comments and long strings."""
    units: tuple[Unit, ...]


EMPTY = Source((), (), ())


def read_source(text: str | None, reader: Reader) -> Source:
    """The tests of a text."""
    if not text:
        return EMPTY
    raw = tuple(line[:LINE] for line in text.split("\n"))
    code = tuple(line[:LINE].rstrip() for line in without_comments(text, reader.language.comments).split("\n"))
    starts = list(_starts(code, reader))
    taken = {at for _, at in starts}
    return Source(raw, code, tuple(_unit(code, name, at, taken) for name, at in starts))


def without_comments(text: str, style: Literal["#", "//"]) -> str:
    """The text with comments and strings of several lines blanked; every line stays where it is."""
    kept: list[str] = []
    position, endless = 0, set[str]()
    while (token := _TOKENS[style].search(text, position)) is not None:
        kept.append(text[position : token.start()])
        position = token.end()
        opening = token["open"]
        if opening is None or opening in endless:
            kept.append("" if token["comment"] else token[0])
            continue
        end = text.find(_CLOSES[opening], position)
        if end < 0:
            endless.add(opening)  # it closes nowhere from here on: no comment, and not searched again
            kept.append(token[0])
            continue
        position = end + len(_CLOSES[opening])
        kept.append("\n" * text.count("\n", token.start(), end))
    return "".join((*kept, text[position:]))


def _starts(code: tuple[str, ...], reader: Reader) -> Iterator[tuple[str, int]]:
    """(name, index of the line) of every test."""
    marked = -1
    for index, line in enumerate(code):
        if not line:
            continue
        rest = line
        if mark := reader.marks.search(line):
            marked, rest = index, line[mark.end() :]
            rest = rest[found.end() :] if (found := _ARGUMENTS.match(rest)) else rest
        if case := reader.cases.search(line):
            marked = -1
            named = case.groupdict()
            yield _plain(named.get("name") or named.get("sub") or named.get("more") or line.strip()), index
        elif marked >= 0 and index - marked <= _ANNOTATION_REACH:
            rest = rest.strip()
            if rest and not rest.startswith(_ABOVE) and (name := _NAME.search(rest)):
                marked = -1
                yield _plain(name[1]), index


def _plain(name: str) -> str:
    return " ".join(name.replace("DISABLED_", "").split())


def _unit(code: tuple[str, ...], name: str, at: int, taken: set[int]) -> Unit:
    indent, last = _indent(code[at]), at
    for index in range(at + 1, min(at + _LONGEST_TEST, len(code))):
        line = code[index]
        if not line:
            continue
        depth = _indent(line)
        if depth < indent or (depth == indent and not line.lstrip().startswith(_CLOSERS)):
            break
        last = index
    body = [line.strip() for line in (_beside(code[at]), *code[at + 1 : last + 1])]
    return Unit(name, at + 1, _first(code, at, indent, taken) + 1, last + 1, tuple(line for line in body if line))


def _beside(line: str) -> str:
    """What a test does on the very line that names it."""
    found = _BODY.search(line)
    return found[1].strip(" \t{}();,") if found else ""


def _first(code: tuple[str, ...], at: int, indent: int, taken: set[int]) -> int:
    """The first line of the annotations above a test."""
    first, inside = at, False
    for index in range(at - 1, max(at - _LONGEST_ANNOTATIONS, -1), -1):
        line = code[index].lstrip()
        depth = _indent(code[index])
        if not line or index in taken or depth < indent or (depth > indent and not inside):
            break
        if depth == indent:
            if line.startswith(_ABOVE):
                first, inside = index, False
            elif line.startswith((")", "]")):
                inside = True
            else:
                break
    return first


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
