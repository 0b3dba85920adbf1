"""A task file: Markdown checkboxes, the ones under Optional or Future headings not blocking.

Stdlib only, and next to nothing of it: the Stop hook runs this file under `python3 -I -S`.
"""

from .markdown import fenced, split_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_TICKED = "xX\u2713\u2714"
_DROPPED = "-"
OPTIONAL_SECTIONS = ("Optional", "Future", "Future Enhancements", "Nice to Have")
_TITLE_CAP = 500
_LONGEST_NUMBER = 9
_DEEPEST = 6
_INDENT = 3

DEFAULT_TEMPLATE = """\
<tasks>
%s
</tasks>

Pick the next open task from the list above, complete it, and mark it done in the task file."""


class Tasks:
    """The boxes of a task file."""

    __slots__ = ("next_open", "open_blocking", "open_optional", "ticked")

    def __init__(self, *, open_blocking: int = 0, open_optional: int = 0, ticked: int = 0, next_open: str = "") -> None:
        self.open_blocking = open_blocking
        self.open_optional = open_optional
        self.ticked = ticked
        self.next_open = next_open
        """The first open blocking task, in its own words."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tasks) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return f"Tasks({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


def read_tasks(text: str, optional_sections: "Iterable[str]" = OPTIONAL_SECTIONS) -> Tasks:
    """Count the checkboxes of a Markdown text; those below these headings do not block."""
    lines, titles = split_lines(text), {_title(section) for section in optional_sections}
    blocking: list[str] = []
    ticked = optional = 0
    optional_below = 0
    # An unclosed fence must not hide open boxes: that would look like being done.
    for line, is_code in zip(lines, fenced(lines, unclosed=False), strict=True):
        if is_code:
            continue
        if level := _heading_level(line):
            optional_below = _optional_level(level, line, optional_below, titles)
        elif (box := _box(line)) is not None:
            mark, title = box
            if mark in _TICKED:
                ticked += 1
            elif optional_below:
                optional += 1
            else:
                blocking.append(title)
    first = blocking[0] if blocking else ""
    return Tasks(open_blocking=len(blocking), open_optional=optional, ticked=ticked, next_open=first)


def _box(line: str) -> tuple[str, str] | None:
    """Mark and title of a checkbox, however carelessly it is written; none for one that was dropped."""
    bare = line.lstrip()
    after = bare[1:] if bare[:1] in {"-", "*", "+"} else _after_number(bare)
    after = after.lstrip()
    inside, closed, _ = after[1:3].partition("]")
    if after[:1] != "[" or not closed or len(inside) > 1 or inside == _DROPPED:
        return None
    title = after[len(inside) + 2 :]
    if title[:1].strip() or (not inside and not title.strip()):
        return None  # a link, or no box at all
    is_mark = not inside.isalnum() or inside in _TICKED
    return (inside or " ", title.strip()[:_TITLE_CAP]) if is_mark else None


def _after_number(bare: str) -> str:
    """What follows the number of a numbered item; nothing where the line is none."""
    digits = len(bare) - len(bare.lstrip("0123456789"))
    is_item = 0 < digits <= _LONGEST_NUMBER and bare[digits : digits + 1] in {".", ")"}
    return bare[digits + 1 :] if is_item else ""


def _heading_level(line: str) -> int:
    """How many marks a heading has; 0: it is none."""
    bare = line.lstrip(" ")
    level = len(bare) - len(bare.lstrip("#"))
    is_heading = len(line) - len(bare) <= _INDENT and level <= _DEEPEST and not bare[level : level + 1].strip()
    return level if is_heading else 0


def _optional_level(level: int, line: str, optional_below: int, titles: "set[str]") -> int:
    """The level of the optional heading we are under after this heading; 0: none."""
    if 0 < optional_below < level:
        return optional_below
    # Only the whole title counts: "Optional chaining" is work to do.
    return level if _title(line.lstrip(" ")[level:]) in titles else 0


def _title(text: str) -> str:
    return " ".join(text.replace("-", " ").strip(" \t#*_`:").lower().split())


def all_done(tasks: Tasks) -> bool:
    """Every blocking box is ticked, and there is one at all."""
    return tasks.ticked > 0 and tasks.open_blocking == 0


def task_prompt(template: str | None, text: str) -> str:
    """Put the tasks to the agent: the first `%s` of the template becomes the text, every other `%` stays."""
    wording = DEFAULT_TEMPLATE if template is None else template
    if "%s" in wording:
        return wording.replace("%s", text, 1)
    return f"{wording}\n\n{text}"
