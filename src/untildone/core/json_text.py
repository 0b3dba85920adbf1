"""Changing a JSON text in one place: every other byte of it stays as its owner wrote it."""

import json
from collections.abc import Callable

from untildone.core.dataclass import dataclass

_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Item:
    """An element of a list, or a member of an object: where it stands, and where its value does."""

    start: int
    value_start: int
    end: int
    key: str = ""


def root(text: str) -> int:
    """Where the outermost value begins."""
    return _skip(text, 1 if text.startswith("\ufeff") else 0)


def items(text: str, at: int) -> list[Item]:
    """What stands in the object or list that begins at `at`, in a text that is known to be JSON."""
    found: list[Item] = []
    is_object = text[at] == "{"
    place = _skip(text, at + 1)
    while text[place] not in "]}":
        start, key = place, ""
        if is_object:
            key, place = _DECODER.raw_decode(text, place)
            place = _skip(text, _skip(text, place) + 1)
        value_start = place
        _, place = _DECODER.raw_decode(text, place)
        found.append(Item(start, value_start, place, key))
        place = _skip(text, place)
        if text[place] == ",":
            place = _skip(text, place + 1)
    return found


def value_of(text: str, item: Item) -> object:
    """The value of an item."""
    return _DECODER.raw_decode(text, item.value_start)[0]


def member(text: str, at: int, key: str) -> Item | None:
    """The member of that name; the last one, which is the one that counts."""
    return next((item for item in reversed(items(text, at)) if item.key == key), None)


def replaced(text: str, item: Item, value: object) -> str:
    """The text with another value in this place."""
    return text[: item.value_start] + _rendered(text, item.value_start, value) + text[item.end :]


def added(text: str, at: int, value: object, key: str | None = None) -> str:
    """The text with one more item at the end of the object or list that begins at `at`."""
    there = items(text, at)
    name = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    if there:
        broken = "\n" in text[at : there[0].start]
        before = f",{_line_end(text)}{_indent(text, there[0].start)}" if broken else ", "
        item = name + (_rendered(text, there[0].start, value) if broken else _plain(value))
        return text[: there[-1].end] + before + item + text[there[-1].end :]
    _, end = _DECODER.raw_decode(text, at)
    if "\n" not in text and end - at < len(text.strip("\ufeff" + _SPACE)):
        return f"{text[: at + 1]}{name}{_plain(value)}{text[end - 1 :]}"
    outer = _indent(text, at)
    inner = _line_end(text) + outer + _unit(text)
    written = _lines(value, outer + _unit(text), text)
    return f"{text[: at + 1]}{inner}{name}{written}{_line_end(text)}{outer}{text[end - 1 :]}"


def without(text: str, at: int, unwanted: Callable[[str, object], bool]) -> str:
    """The text without some items, chosen by key and value, of the object or list that begins at `at`."""
    there = items(text, at)
    for number in range(len(there) - 1, -1, -1):
        item = there[number]
        if not unwanted(item.key, value_of(text, item)):
            continue
        if number > 0:
            text = text[: there[number - 1].end] + text[item.end :]
        elif len(there) > 1:
            text = text[: item.start] + text[there[1].start :]
        else:
            _, end = _DECODER.raw_decode(text, at)
            text = text[: at + 1] + text[end - 1 :]
        there = items(text, at)
    return text


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(text: str, at: int) -> str:
    """The white space the line of `at` begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """One step of the text's own indentation."""
    there = items(text, root(text))
    return (_indent(text, there[0].start) if there else "") or "  "


def _rendered(text: str, at: int, value: object) -> str:
    return _lines(value, _indent(text, at), text) if "\n" in text else _plain(value)


def _lines(value: object, indent: str, text: str) -> str:
    written = json.dumps(value, ensure_ascii=False, indent=_unit(text))
    return written.replace("\n", _line_end(text) + indent)


def _plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
