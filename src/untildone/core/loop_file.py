"""The state file of a loop: a few settings between two `---` lines, and the goal below them.

People read and edit it while the loop runs, so a change rewrites the lines it is about and leaves every other byte
alone. Stdlib only, and next to nothing of it: the Stop hook runs this file under `python3 -I -S`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    Layout = Literal["untildone", "stravinsky"]
    Value = str | tuple[str, ...] | None

DEFAULT_MAX_ITERATIONS = 10
_FENCE = "---"
_BOM = "\ufeff"
_BLANK = " \t"
_LONGEST_NUMBER = 9
_LATEST = 253_402_300_799  # the last second of the year 9999
_KEYS = {
    "iteration": "iteration_count",
    "max_iterations": "max_iterations",
    "promises": "completion_promise",
    "active": "active",
    "session": "session_id",
    "deadline": "deadline",
    "checks": "checks",
    "next": "next",
}
"""What each field of a loop is called in the file."""
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MEANT = {"n": "\n", "r": "\r", "t": "\t"}


class LoopFile:
    """A state file as it was read."""

    __slots__ = (
        "active",
        "body",
        "checks",
        "clock",
        "deadline",
        "iteration",
        "layout",
        "max_iterations",
        "next",
        "promises",
        "session",
    )

    def __init__(self, values: "dict[str, Value]", body: str, layout: "Layout") -> None:
        self.layout = layout
        self.body = body
        """The goal, every byte of it."""
        self.iteration = _number(values.get("iteration_count"), 0)
        """The turn under way, counted from 1; 0 where nobody counted yet."""
        self.max_iterations = _number(values.get("max_iterations"), DEFAULT_MAX_ITERATIONS)
        self.promises = _promises(values.get("completion_promise"))
        """Texts of which any one says that the goal is reached."""
        self.active = _flag(values.get("active"), missing=layout == "untildone")
        self.session = _word(values.get("session_id"))
        self.deadline, self.clock = _deadline(_word(values.get("deadline")))
        """The moment it ends; or, in `clock`, a time of day such as 07:00 that nobody gave a day yet."""
        self.checks = _several(values.get("checks"))
        self.next = _several(values.get("next"))


def parse(text: str, layout: "Layout" = "untildone") -> LoopFile | None:
    """A state file; None where the text is none, or one of its values cannot be what it should be."""
    split = _split(text)
    if split is None:
        return None
    _, settings, body = split
    try:
        return LoopFile(_values(settings), body, layout)
    except ValueError:
        return None


def changed(text: str, **fields: object) -> str:
    """The text with these fields of `LoopFile` set anew; None takes one away. The rest keeps every byte."""
    split = _split(text)
    if split is None:
        raise ValueError("not a state file: it does not begin with settings between two `---` lines")
    opening, settings, body = split
    end = "\r\n" if opening.endswith("\r\n") else "\n"
    closing = text[len(opening) + sum(map(len, settings)) : len(text) - len(body)]
    for name, value in fields.items():
        settings = _with(settings, _KEYS[name], None if value is None else _rendered(name, value), end)
    return "".join((opening, *settings, closing, body))


def new_file(goal: str, **fields: object) -> str:
    """A state file that begins a loop: turn 1 of 10, active, and what `fields` says."""
    begun: dict[str, object] = {
        "iteration": 1,
        "max_iterations": DEFAULT_MAX_ITERATIONS,
        "promises": (),
        "active": True,
    }
    return changed(f"{_FENCE}\n{_FENCE}\n\n{goal}\n", **{**begun, **fields})


def deadline_after(text: str, now: float) -> float:
    """The moment a deadline means: itself, or the next time the clock shows it; ValueError where it is none."""
    moment, clock = _deadline(text.strip())
    if clock:
        return next_time(clock, now)
    if moment is None:
        raise ValueError(f"no moment: {text!r}")
    return moment


def next_time(clock: str, now: float) -> float:
    """When the clock next shows a time of day such as 07:00."""
    from datetime import datetime, timedelta

    hour, _, minute = clock.partition(":")
    here = datetime.fromtimestamp(now)  # noqa: DTZ006 people mean the clock on their wall
    then = here.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0)
    return (then if then > here else then + timedelta(days=1)).timestamp()


# --- reading ---------------------------------------------------------------------------------------------------


def _split(text: str) -> tuple[str, list[str], str] | None:
    """The opening line, the lines of settings with their ends, and the body; None where there are no settings."""
    opening, end, _ = text.partition("\n")
    opening += end
    if opening.removeprefix(_BOM).rstrip() != _FENCE or not end:
        return None
    settings: list[str] = []
    at = len(opening)
    while at < len(text):
        line_end = text.find("\n", at) + 1 or len(text)
        line = text[at:line_end]
        at = line_end
        if line.rstrip() == _FENCE:
            return opening, settings, text[at:]
        settings.append(line)
    return None


def _values(settings: list[str]) -> "dict[str, Value]":
    values: dict[str, Value] = {}
    for begin, end, key in _groups(settings):
        raw = settings[begin].partition(":")[2]
        items = tuple(_scalar(line.strip()[1:])[0] for line in settings[begin + 1 : end] if line.strip()[:1] == "-")
        values[key] = items if items and not _scalar(raw)[0] else _value(raw)
    return values


def _groups(settings: list[str]) -> "Iterator[tuple[int, int, str]]":
    """Where each setting begins and ends, with its name: its own line, and the indented or listed ones below it."""
    begin, name = -1, ""
    for number, line in enumerate(settings):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        if line[0] in _BLANK or bare.startswith(("- ", "-\t")) or bare == "-":
            if begin < 0:
                raise ValueError("a value of nothing")
            continue
        if begin >= 0:
            yield begin, _last_below(settings, begin, number), name
        name, colon, _ = bare.partition(":")
        if not colon:
            raise ValueError("no `name: value`")
        begin, name = number, name.strip().strip("\"'")
    if begin >= 0:
        yield begin, _last_below(settings, begin, len(settings)), name


def _last_below(settings: list[str], begin: int, end: int) -> int:
    """Blank lines and comments at the end belong to nobody."""
    while end - 1 > begin and (not settings[end - 1].strip() or settings[end - 1].lstrip().startswith("#")):
        end -= 1
    return end


def _value(raw: str) -> "Value":
    bare = raw.strip()
    if bare.startswith("["):
        items, rest = _flow(bare)
        if not rest or rest.startswith("#"):
            return items
    return _scalar(raw)[0]


def _flow(bare: str) -> tuple[tuple[str, ...], str]:
    """The items of `[a, "b, c"]` and what follows it; something follows where it is no list after all."""
    items: list[str] = []
    at = 1
    while at < len(bare):
        while bare[at : at + 1] in {" ", "\t", ","}:
            at += 1
        if bare[at : at + 1] == "]":
            return tuple(items), bare[at + 1 :].strip()
        quoted = _quoted(bare, at)
        if quoted is not None:
            item, at = quoted
        else:
            ends = [found for found in (bare.find(",", at), bare.find("]", at)) if found >= 0]
            if not ends:
                break
            item, at = bare[at : min(ends)].strip(), min(ends)
        items.append(item)
    return (), bare


def _scalar(raw: str) -> tuple[str, str]:
    """A value and the comment after it, with the space before that."""
    text = raw.rstrip("\r\n")
    begin = len(text) - len(text.lstrip(_BLANK))
    quoted = _quoted(text, begin)
    if quoted is not None:
        value, at = quoted
        rest = text[at:]
        if not rest.strip() or (rest[0] in _BLANK and rest.lstrip().startswith("#")):
            return value, rest.rstrip() and rest
    at = begin
    while True:
        at = text.find("#", at)
        if at < 0:
            return text.strip(), ""
        if at == begin or text[at - 1] in _BLANK:
            value = text[:at].rstrip()
            return value.strip(), text[len(value) :]
        at += 1


def _quoted(text: str, begin: int) -> tuple[str, int] | None:
    """The quoted text that begins there, and where it ends; None where there is none."""
    mark = text[begin : begin + 1]
    if mark not in {'"', "'"} or not mark:
        return None
    kept: list[str] = []
    at = begin + 1
    while at < len(text):
        char = text[at]
        if char == mark:
            if mark == "'" and text[at + 1 : at + 2] == "'":
                at += 1
            else:
                return "".join(kept), at + 1
        elif char == "\\" and mark == '"' and at + 1 < len(text):
            at += 1
            char = _MEANT.get(text[at], text[at])
        kept.append(char)
        at += 1
    return None


# --- what values mean --------------------------------------------------------------------------------------------


def _number(value: "Value", missing: int) -> int:
    if value is None:
        return missing
    if not isinstance(value, str) or not (value.isascii() and value.isdigit() and len(value) <= _LONGEST_NUMBER):
        raise ValueError("no number")
    return int(value)


def _flag(value: "Value", *, missing: bool) -> bool:
    if value is None:
        return missing
    flag = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None
    if flag is None:
        raise ValueError("neither true nor false")
    return flag


def _word(value: "Value") -> str:
    if isinstance(value, tuple):
        raise ValueError("a list where one value belongs")  # noqa: TRY004 whoever reads the file catches one kind
    return value or ""


def _several(value: "Value") -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) else value or ()
    return tuple(item for item in given if item.strip())


def _promises(value: "Value") -> tuple[str, ...]:
    given = value.split("|") if isinstance(value, str) else value or ()
    return tuple(bare for bare in (item.strip() for item in given) if bare)


def _deadline(value: str) -> tuple[float | None, str]:
    """A moment, or a time of day."""
    if not value or value.lower() in {"null", "none", "~"}:
        return None, ""
    hour, colon, minute = value.partition(":")
    if colon and value.isascii() and hour.isdigit() and minute.isdigit() and len(hour) in (1, 2) and len(minute) == 2:  # noqa: PLR2004
        if int(hour) > 23 or int(minute) > 59:  # noqa: PLR2004 a clock
            raise ValueError("no time of day")
        return None, value
    whole, _, fraction = value.partition(".")
    if value.isascii() and whole.isdigit() and (not fraction or fraction.isdigit()):
        moment = float(value)
    else:
        from datetime import datetime

        moment = datetime.fromisoformat(value).timestamp()
    if not 0 <= moment <= _LATEST:
        raise ValueError("no moment of these times")
    return moment, ""


# --- writing ---------------------------------------------------------------------------------------------------


def _with(settings: list[str], key: str, value: "Value", end: str) -> list[str]:
    """The settings with one of them set, in its old place or as the last."""
    places = [(begin, stop) for begin, stop, name in _groups(settings) if name == key]
    begin, stop = places[-1] if places else (len(settings), len(settings))
    lines: list[str] = []
    if isinstance(value, str):
        old = settings[begin].partition(":")[2] if places else ""
        comment = "" if stop > begin + 1 or old.strip().startswith("[") else _scalar(old)[1]
        lines = [f"{key}: {value}{comment}{end}"]
    elif value is not None:
        lines = [f"{key}:{end}", *(f"  - {item}{end}" for item in value)]
    earlier = {number for first, last in places[:-1] for number in range(first, last)}
    kept = [line for number, line in enumerate(settings[:begin]) if number not in earlier]
    return [*kept, *lines, *settings[stop:]]


def _rendered(name: str, value: object) -> "Value":
    """A field as the file shows it; a list of it one below the other."""
    if name == "deadline":
        return _moment_text(value)
    if name == "promises" and isinstance(value, tuple | list):
        promises = [str(promise).strip() for promise in value]
        if len(promises) == 1 and "|" not in promises[0]:
            return _text(promises[0])
        return "[" + ", ".join(map(_text, promises)) + "]" if promises else '""'
    if isinstance(value, tuple | list):
        return tuple(_text(str(item)) for item in value) or "[]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _text(str(value))


def _text(value: str) -> str:
    return '"' + "".join(_ESCAPED.get(char, char) for char in value) + '"'


def _moment_text(value: object) -> str:
    if isinstance(value, str):
        deadline_after(value, 0)
        return value
    from datetime import datetime

    if not isinstance(value, int | float) or not 0 <= value <= _LATEST:
        raise ValueError("no moment")
    return datetime.fromtimestamp(int(value)).astimezone().isoformat()
