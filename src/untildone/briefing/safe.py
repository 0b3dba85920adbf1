"""Words of others in Markdown: shown as they are, able to do nothing.

Code spans and fences are the one form in which no Markdown, HTML, link, image or mention is alive.
"""

import re

from untildone.core.printable import one_line, printable

_RUN = re.compile(r"`+")


def span(text: str, width: int = 300) -> str:
    """`text` as one inline code span; a longer run of backticks around it than any inside."""
    said = one_line(text, width)
    if not said:
        return "(nothing)"
    ticks = "`" * (_longest_run(said) + 1)
    pad = " " if said.startswith("`") or said.endswith("`") else ""
    return f"{ticks}{pad}{said}{pad}{ticks}"


def cell(text: str, width: int = 120) -> str:
    """`text` as a code span inside a table: a bar would end the cell, even in code."""
    return span(text, width).replace("|", "\\|")


def fence(text: str, *, lines: int = 40, width: int = 300) -> str:
    """`text` as a fenced block of its last lines; the fence is longer than any run of backticks inside."""
    shown = printable(text, lines=True, width=width).strip("\n").split("\n")
    left_out = [f"… ({len(shown) - lines} lines before this)"] if len(shown) > lines else []
    body = "\n".join([*left_out, *shown[-lines:]])
    ticks = "`" * max(3, _longest_run(body) + 1)
    return f"{ticks}text\n{body}\n{ticks}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _RUN.findall(text)), default=0)
