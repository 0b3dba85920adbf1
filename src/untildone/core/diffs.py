"""A unified diff as facts that can be told: counts, a beginning to look at, and the whole of it while it is small."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from untildone.core.dataclass import dataclass

PREVIEW_LINES = 100
PREVIEW_CHARS = 5000
FULL_CHARS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffFacts:
    """What is told of a diff."""

    lines_added: int = 0
    lines_removed: int = 0
    diff_preview: str = ""
    full_diff: str | None = None
    full_diff_available: bool = True
    full_diff_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """One file in the change of an iteration."""

    file_path: str
    change_type: Literal["created", "modified", "deleted"] = "modified"
    lines_added: int | None = None
    """None: not a text."""
    lines_removed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How two trees differ."""

    files: tuple[ChangedFile, ...] = ()
    """The first of them."""
    files_changed: int = 0
    facts: DiffFacts = DiffFacts()


def diff_facts(diff: str, *, lines_added: int, lines_removed: int, size: int | None = None) -> DiffFacts:
    """The facts of a diff, secrets aside; `size` is how many characters it really has, if `diff` is its beginning."""
    from untildone.core.secrets import redact

    size = len(diff) if size is None else size
    is_whole = size <= FULL_CHARS
    # Before anything is cut: half a key is not recognised any more.
    diff = redact(diff[:FULL_CHARS])
    preview = "\n".join(diff[:PREVIEW_CHARS].split("\n")[:PREVIEW_LINES])
    return DiffFacts(
        lines_added=lines_added,
        lines_removed=lines_removed,
        diff_preview=preview,
        full_diff=diff if is_whole else None,
        full_diff_available=is_whole,
        full_diff_size=size,
    )


def hunk(old_start: int, new_start: int, lines: Sequence[str]) -> str:
    """One hunk of a unified diff; each line begins with a space, a plus or a minus."""
    old = sum(not line.startswith("+") for line in lines)
    new = sum(not line.startswith("-") for line in lines)
    return "\n".join((f"@@ -{old_start},{old} +{new_start},{new} @@", *lines))


def replaced(old: str, new: str) -> list[str]:
    """What became of a text, as lines with a sign: the middle in which the two differ. Linear, whatever they hold."""
    before, after = (text.split("\n") if text else [] for text in (old, new))
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    ends = 0
    while ends < min(len(before), len(after)) - same and before[-1 - ends] == after[-1 - ends]:
        ends += 1
    return [*_signed("-", before[same : len(before) - ends]), *_signed("+", after[same : len(after) - ends])]


def _signed(sign: str, lines: Iterable[str]) -> list[str]:
    return [sign + line for line in lines]


_STAMP = re.compile(
    r"\b(?=[a-f-]*\d)[0-9a-f][0-9a-f-]{6,}\b(?:\.\d+)?|\d+(?:[-:/T]\d+)+(?:\.\d+)?|\d+(?:\.\d+){2,}|\d{6,}(?:\.\d+)?"
)
"""A date, a time, a version or an id. A small number may be that of a chapter."""
_LINE_WIDTH = 1000


def change_name(diff: str) -> str:
    """A name for what a diff without context adds, the same while only dates, times and ids differ.

    Nor do other digits in a line that was there make another name. What is no text has the name of its content.
    """
    told = (part for file in re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE) for part in _added(file))
    return hashlib.sha256("\n".join(told).encode("utf-8", "replace")).hexdigest()[:16]


def _added(file: str) -> Iterable[str]:
    head, _, body = file.partition("\n@@ ")
    if not body:
        return [file]
    lines = [line[: _LINE_WIDTH + 1] for line in body.split("\n")[1:]]
    added = [line[1:] for line in lines if line.startswith("+")]
    removed = [line[1:] for line in lines if line.startswith("-")]
    bare = {re.sub(r"[\d\s]", "", line) for line in removed}
    kept = [without if (without := re.sub(r"[\d\s]", "", line)) in bare else _without_stamps(line) for line in added]
    return [
        _without_stamps(head.partition("\n")[0]),
        *(f"+{line}" for line in kept if line),
        *(removed if not added else ()),
    ]


def _without_stamps(line: str) -> str:
    return "".join(_STAMP.sub("", line).split())
