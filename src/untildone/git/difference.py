"""How two trees differ, as facts to tell: one git process, and a bounded part of what it prints."""

import re

from untildone.core.diffs import ChangedFile, Difference, diff_facts
from untildone.git.quoting import unquoted
from untildone.git.repository import Repository
from untildone.git.status import readable

MOST_BYTES = 4 << 20
MOST_FILES = 200
MOST_NAMED = 1 << 20
"""Bytes of a change whose lines are compared with those of earlier changes."""

_PLAIN = (
    "-c", "core.bigFileThreshold=1m", "-c", "core.quotePath=true", "diff", "-p", "--no-renames", "--no-color",
    "--no-ext-diff", "--no-textconv", "--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short",
)  # fmt: skip
_DIFF = (*_PLAIN, "--raw", "--numstat")
ADDED = (*_PLAIN, "--unified=0")
_RAW = re.compile(rb":\d+ \d+ \S+ \S+ ([A-Z])\d*\t(.*)", re.DOTALL)
_COUNTS = re.compile(rb"(\d+|-)\t(\d+|-)\t(.*)", re.DOTALL)


async def difference(repository: Repository, before: str, after: str) -> Difference:
    """How two commits differ; a renamed file is one that went and one that came."""
    told = await repository.git(*_DIFF, before, after, "--", most=MOST_BYTES)
    head, _, patch = told.out.partition(b"\n\n")
    letters, counts = dict[bytes, bytes](), dict[bytes, tuple[int | None, int | None]]()
    for line in head.split(b"\n"):
        if raw := _RAW.fullmatch(line):
            letters[raw[2]] = raw[1]
        elif numbers := _COUNTS.fullmatch(line):
            counts[numbers[3]] = _number(numbers[1]), _number(numbers[2])
    facts = diff_facts(
        patch.decode("utf-8", "replace"),
        lines_added=sum(added or 0 for added, _ in counts.values()),
        lines_removed=sum(removed or 0 for _, removed in counts.values()),
    )
    files = tuple(
        _file(name, letter, *counts.get(name, (None, None))) for name, letter in list(letters.items())[:MOST_FILES]
    )
    return Difference(files=files, files_changed=len(letters), facts=facts)


def _file(name: bytes, letter: bytes, added: int | None, removed: int | None) -> ChangedFile:
    path = readable(unquoted(name))
    match letter:
        case b"A":
            return ChangedFile(file_path=path, change_type="created", lines_added=added, lines_removed=removed)
        case b"D":
            return ChangedFile(file_path=path, change_type="deleted", lines_added=added, lines_removed=removed)
        case _:
            return ChangedFile(file_path=path, lines_added=added, lines_removed=removed)


def _number(text: bytes) -> int | None:
    return None if text == b"-" else int(text)
