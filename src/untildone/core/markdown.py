"""The little of Markdown that decides whether a line is meant or only shown."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

WRAPPING = " \t*_`~"
"""Emphasis and inline code around a word do not change what it says."""


def split_lines(text: str) -> list[str]:
    """The lines of a text, whatever ends them. `str.splitlines` also splits at form feeds and the like."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def fenced(lines: "Sequence[str]", *, unclosed: bool) -> list[bool]:
    """For each line whether it is part of a fenced code block, the fences included.

    `unclosed` says whether a fence that is never closed hides all that follows.
    """
    mask = [False] * len(lines)
    fence, opened_at = "", 0
    for number, line in enumerate(lines):
        bare = line.strip()
        if not fence:
            fence, opened_at = _opening(bare), number
        elif bare.startswith(fence) and not bare.strip(fence[0]):
            mask[opened_at : number + 1] = [True] * (number + 1 - opened_at)
            fence = ""
    if fence and unclosed:
        mask[opened_at:] = [True] * (len(lines) - opened_at)
    return mask


def _opening(bare: str) -> str:
    """The fence that this line opens, or nothing."""
    for mark in ("`", "~"):
        length = len(bare) - len(bare.lstrip(mark))
        # A backtick after the opening run makes it inline code: ```like this```.
        if length >= len("```") and not (mark == "`" and mark in bare[length:]):
            return mark * length
    return ""
