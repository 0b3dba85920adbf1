"""A task file: Markdown checkboxes, the ones under Optional or Future headings not blocking."""

import re
from dataclasses import dataclass

from .markdown import fenced, split_lines

_BOX = re.compile(r"\s*(?:[-*+]|[0-9]{1,9}[.)])\s+\[([ xX])\](?=\s|$)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=\s|$)")
_OPTIONAL = frozenset({"optional", "future", "future enhancements", "nice to have"})
_TITLE_CAP = 500

DEFAULT_TEMPLATE = """\
<tasks>
%s
</tasks>

Pick the next open task from the list above, complete it, and mark it done in the task file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """The boxes of a task file."""

    open_blocking: int = 0
    open_optional: int = 0
    ticked: int = 0
    next_open: str = ""
    """The first open blocking task, in its own words."""


def read_tasks(text: str) -> Tasks:
    """Count the checkboxes of a Markdown text."""
    lines = split_lines(text)
    blocking: list[str] = []
    ticked = optional = 0
    optional_below = 0
    # An unclosed fence must not hide open boxes: that would look like being done.
    for line, is_code in zip(lines, fenced(lines, unclosed=False), strict=True):
        if is_code:
            continue
        if heading := _HEADING.match(line):
            optional_below = _optional_level(heading, line, optional_below)
        elif box := _BOX.match(line):
            if box[1] != " ":
                ticked += 1
            elif optional_below:
                optional += 1
            else:
                blocking.append(line[box.end() :].strip()[:_TITLE_CAP])
    first = blocking[0] if blocking else ""
    return Tasks(open_blocking=len(blocking), open_optional=optional, ticked=ticked, next_open=first)


def _optional_level(heading: re.Match[str], line: str, optional_below: int) -> int:
    """The level of the optional heading we are under after this heading; 0: none."""
    level = len(heading[1])
    if 0 < optional_below < level:
        return optional_below
    # Only the whole title counts: "Optional chaining" is work to do.
    title = " ".join(line[heading.end() :].replace("-", " ").strip(" \t#*_`:").lower().split())
    return level if title in _OPTIONAL else 0


def all_done(tasks: Tasks) -> bool:
    """Every blocking box is ticked, and there is one at all."""
    return tasks.ticked > 0 and tasks.open_blocking == 0


def task_prompt(template: str | None, text: str) -> str:
    """Put the tasks to the agent: the first `%s` of the template becomes the text, every other `%` stays."""
    wording = DEFAULT_TEMPLATE if template is None else template
    if "%s" in wording:
        return wording.replace("%s", text, 1)
    return f"{wording}\n\n{text}"
