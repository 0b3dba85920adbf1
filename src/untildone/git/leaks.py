"""Secrets on their way into commits: the staged diff, and what the agent committed by itself."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from untildone.core.findings import Finding
from untildone.core.secrets import scan
from untildone.git.quoting import unquoted
from untildone.git.repository import Repository
from untildone.git.status import readable

MOST_BYTES = 16 << 20
"""Of a diff: added lines beyond are not looked at, and that is said."""
_TOLD = 5
_SCANNED_AT_ONCE = 100_000

# Files above the threshold are binary to git: it neither reads nor prints them.
_SMALL = ("-c", "core.bigFileThreshold=1m", "-c", "core.quotePath=true")
_PLAIN = (
    "-p", "-U0", "--inter-hunk-context=0", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv",
    "--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--diff-filter=d",
)  # fmt: skip
_HEAD = b"diff --git "
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(slots=True)
class Added:
    """The added lines of a diff, and the files that show none."""

    out: bytes
    unread: list[str] = field(default_factory=list)
    """Binary, or too large."""

    def lines(self) -> Iterator[tuple[str, int, str]]:
        """(path, number, text) of every line; hunks are counted, so no content can pass for a header."""
        path, number, old, new = "", 0, 0, 0
        for line in self.out.split(b"\n"):
            if new and line.startswith(b"+"):
                yield path, number, line[1:].decode("utf-8", "replace")
                number, new = number + 1, new - 1
            elif old and line.startswith(b"-"):
                old -= 1
            elif line.startswith(_HEAD):
                path = _path(line)
            elif hunk := _HUNK.match(line):
                old, number, new = int(hunk[1] or 1), int(hunk[2]), int(hunk[3] or 1)
            elif line.startswith(b"Binary files ") and path:
                self.unread.append(path)


async def staged_secrets(repository: Repository, let_pass: Sequence[str] = ()) -> list[Finding]:
    """Secrets among the lines that a commit of the index would add; only those that nobody let pass."""
    told = await repository.git(*_SMALL, "diff", "--cached", *_PLAIN, most=MOST_BYTES)
    return [finding for finding in await _scanned(Added(told.out), let_pass) if finding.blocking]


async def committed_secrets(
    repository: Repository, start: str, commit: str, let_pass: Sequence[str] = ()
) -> list[Finding]:
    """Secrets that any commit since `start` added, and what was not looked at.

    Each commit counts: what a later one takes out again is pushed all the same. What a remote already has is not ours.
    """
    told = await repository.git(
        *_SMALL, "-c", "log.showSignature=false", "-c", "log.diffMerges=off", "log", "--format=", *_PLAIN,
        commit, f"^{start}", "--not", "--remotes", "--", most=MOST_BYTES,
    )  # fmt: skip
    added = Added(told.out)
    found = dict.fromkeys(await _scanned(added, let_pass))
    unread = list(dict.fromkeys(added.unread))
    return [*found, *_not_read(unread, len(told.out) >= MOST_BYTES)]


async def _scanned(added: Added, let_pass: Sequence[str]) -> list[Finding]:
    if len(added.out) <= _SCANNED_AT_ONCE:
        return scan(added.lines(), let_pass=let_pass)
    return await asyncio.to_thread(lambda: scan(added.lines(), let_pass=let_pass))


def refusal(found: Sequence[Finding]) -> str:
    """Why a commit is not made, for the agent and for a human."""
    places = "; ".join(f"{finding.place} ({finding.text})" for finding in found[:_TOLD])
    more = f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return (
        f"it would contain what looks like a key or a token: {places}{more}; take it out of the file and read it from "
        "the environment, or a human lets the file pass with `untildone waive`"
    )


def _not_read(unread: Sequence[str], was_cut: bool) -> Iterator[Finding]:
    for path in unread[:_TOLD]:
        yield Finding(kind="secret", path=path, text="not looked at: binary, or larger than 1 MB")
    if len(unread) > _TOLD:
        yield Finding(kind="secret", path="", text=f"not looked at: {len(unread) - _TOLD} more binary or large files")
    if was_cut:
        yield Finding(kind="secret", path="", text=f"not looked at: what follows {MOST_BYTES >> 20} MB of changes")


def _path(head: bytes) -> str:
    """Both names in `diff --git a/X b/X` are the same, as renames are not followed: the second half is one."""
    names = head.removeprefix(_HEAD)
    return readable(unquoted(names[len(names) // 2 + 1 :]).removeprefix(b"b/"))
