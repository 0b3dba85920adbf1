"""Secrets on their way into commits: the staged diff, and what the agent committed by itself."""

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from untildone.core.dataclass import dataclass
from untildone.core.findings import Finding, waived
from untildone.core.secrets import redact, scan
from untildone.errors import WorkspaceError
from untildone.git.blobs import Blob, new_lines
from untildone.git.quoting import unquoted
from untildone.git.repository import Repository
from untildone.git.run import UNATTENDED
from untildone.git.status import readable

MOST_BYTES = 16 << 20
"""Of a diff: added lines beyond are not looked at, and that is said."""
_TOLD = 5
_SCANNED_AT_ONCE = 100_000
_PATIENCE = 30.0
"""Seconds a remote may take to say what it has."""

# Files above the threshold are binary to git: it neither reads nor prints them.
_SMALL = ("-c", "core.bigFileThreshold=1m", "-c", "core.quotePath=true")
_PLAIN = (
    "-p", "-U0", "--inter-hunk-context=0", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv",
    "--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--diff-filter=d", "--full-index",
)  # fmt: skip
_HEAD = b"diff --git "
_MERGE_HEAD = b"diff --cc "
_INDEX = b"index "
_HUNK = re.compile(rb"(@@+)((?: -\d+(?:,\d+)?)+) \+(\d+)(?:,(\d+))? @@+")
_COUNT = re.compile(rb"-\d+(?:,(\d+))?")


@dataclass(slots=True)
class Added:
    """The added lines of a diff, and the files that show none."""

    out: bytes
    names: dict[str, None] = field(default_factory=dict)
    """Of all files in it."""
    unshown: list[Blob] = field(default_factory=list)
    """Binary, large, or said to be so: anybody can say it in .gitattributes."""

    def lines(self) -> Iterator[tuple[str, int, str]]:
        """(path, number, text) of every line that no parent has.

        A line begins with one sign for each parent. Hunks are counted, so no content can pass for a header.
        """
        path, number, parents, old, new, hashes = "", 0, 1, 0, 0, b""
        for line in self.out.split(b"\n"):
            signs = line[:parents]
            if new and len(signs) == parents and not signs.strip(b"+ "):
                if b" " not in signs:
                    yield path, number, line[parents:].decode("utf-8", "replace")
                number, new, old = number + 1, new - 1, old - signs.count(b" ")
            elif old > 0 and b"-" in signs and not signs.strip(b"- "):
                old -= signs.count(b"-")
            elif line.startswith((_HEAD, _MERGE_HEAD)):
                path = _path(line)
                self.names[path] = None
            elif line.startswith(_INDEX):
                hashes = line
            elif hunk := _HUNK.match(line):
                parents, number, new = len(hunk[1]) - 1, int(hunk[3]), int(hunk[4] or 1)
                old = sum(int(count or 1) for count in _COUNT.findall(hunk[2]))
            elif line.startswith(b"Binary files ") and path:
                self.unshown.append(_blob(path, hashes))


async def staged_secrets(repository: Repository, let_pass: Sequence[str] = ()) -> list[Finding]:
    """Secrets among the lines that a commit of the index would add; only those that nobody let pass."""
    told = await repository.git(*_SMALL, "diff", "--cached", *_PLAIN, most=MOST_BYTES)
    found, _ = await _found_in(repository, Added(told.out), let_pass)
    return [finding for finding in found if finding.blocking]


async def committed_secrets(
    repository: Repository, start: str, commit: str, let_pass: Sequence[str] = ()
) -> list[Finding]:
    """Secrets that any commit since `start` added, and what was not looked at.

    Each commit counts: what a later one takes out again is pushed all the same. What a remote already has is not ours.
    Of a merge, only what it has from none of its parents: the rest is theirs, and most of it may be somebody else's.
    """
    if commit == start:
        return []
    revisions = [commit, f"^{start}", *(f"^{tip}" for tip in await _published(repository, start, commit))]
    stdin = "".join(f"{revision}\n" for revision in revisions).encode()
    log = (*_SMALL, "-c", "log.showSignature=false", "log", "--stdin")
    told = await repository.git(*log, "--format=", "--cc", *_PLAIN, stdin=stdin, most=MOST_BYTES)
    found, unread = await _found_in(repository, Added(told.out), let_pass)
    said = await repository.git(*log, "-z", "--format=%h%n%an%n%B", stdin=stdin, most=MOST_BYTES)
    found += scan(_messages(said.out), let_pass=let_pass)
    was_cut = max(len(told.out), len(said.out)) >= MOST_BYTES
    return [*dict.fromkeys(found), *_not_read(unread, was_cut)]


async def _published(repository: Repository, start: str, commit: str) -> list[str]:
    """The branches and tags of the remotes, asked for where it matters: what refs here say, anybody can write."""
    since = ("rev-list", "--count", commit, f"^{start}")
    made = (await repository.git(*since)).text
    if made == (await repository.git(*since, "--not", "--remotes", "--")).text:
        return []
    tips: set[str] = set()
    for remote in os.fsdecode((await repository.git("remote")).out).splitlines():
        try:
            args = ("ls-remote", "-q", "--heads", "--tags", "--", remote)
            told = await repository.git(*args, env=UNATTENDED, check=False, timeout=_PATIENCE)
        except WorkspaceError:
            continue  # nobody answers: then all of it is looked at
        tips.update(line.split("\t")[0] for line in os.fsdecode(told.out).splitlines() if "\t" in line)
    stdin = "".join(f"{tip}^{{commit}}\n" for tip in sorted(tips)).encode()
    known = await repository.git("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=stdin)
    rows = (line.split(" ") for line in os.fsdecode(known.out).splitlines())
    return [row[1] for row in rows if row[0] == "commit"]


async def _found_in(repository: Repository, added: Added, let_pass: Sequence[str]) -> tuple[list[Finding], list[str]]:
    """The secrets in a diff, names of files included; and the files that were not read."""
    found = await _scanned(added, let_pass)
    lines, unread = await new_lines(repository, added.unshown)
    found += scan(lines, let_pass=let_pass)
    for name in scan((name, 0, name.replace("/", " ")) for name in added.names):
        is_free = waived(name.path, let_pass)
        found.append(
            replace(
                name,
                path="/".join(map(redact, name.path.split("/"))),
                text=f"name of a file: {name.text}",
                blocking=not is_free,
            )
        )
    return found, unread


async def _scanned(added: Added, let_pass: Sequence[str]) -> list[Finding]:
    if len(added.out) <= _SCANNED_AT_ONCE:
        return scan(added.lines(), let_pass=let_pass)
    return await asyncio.to_thread(lambda: scan(added.lines(), let_pass=let_pass))


def _messages(told: bytes) -> Iterator[tuple[str, int, str]]:
    for message in told.decode("utf-8", "replace").split("\0"):
        commit, *lines = message.split("\n")
        for number, line in enumerate(lines):
            yield f"message of commit {commit}", number, line


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
        yield Finding(kind="secret", path=path, text="not looked at: larger than 1 MB")
    if len(unread) > _TOLD:
        yield Finding(kind="secret", path="", text=f"not looked at: {len(unread) - _TOLD} more large files")
    if was_cut:
        yield Finding(kind="secret", path="", text=f"not looked at: what follows {MOST_BYTES >> 20} MB of changes")


def _path(head: bytes) -> str:
    """Both names in `diff --git a/X b/X` are the same, as renames are not followed: the second half is one.

    Of a merge there is one name only.
    """
    if head.startswith(_MERGE_HEAD):
        return readable(unquoted(head.removeprefix(_MERGE_HEAD)))
    names = head.removeprefix(_HEAD)
    return readable(unquoted(names[len(names) // 2 + 1 :]).removeprefix(b"b/"))


def _blob(path: str, hashes: bytes) -> Blob:
    """`index OLD..NEW MODE`, or `index OLD,OLD..NEW` of a merge."""
    old, _, new = hashes.removeprefix(_INDEX).partition(b" ")[0].decode("ascii", "replace").partition("..")
    return Blob(path, new, tuple(oid for oid in old.split(",") if oid.strip("0")))
