"""What the scripts of a night write, and which of a repository's files a small disk gets. No I/O."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from shlex import quote

from untildone.core.dataclass import dataclass
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

FILE = "untildone-night.md"
DRAFT = "untildone-draft.md"
"""The names in the scripts; on stage they may have to be others."""
SUFFIXES = (".md", ".txt", "", ".py", ".json", ".c")
NUMBERED = 3
NEIGHBOURS = 200
"""Kinds of files of the repository, one of each, beside which a name is tried when its top takes none."""

BLOCK = 4096
FEW_FILES = 1000
SMALL_FILE = 256 * 1024
FEW_BYTES = 16 * 1024 * 1024
RULES = (b".gitignore", b".gitattributes")


@dataclass(frozen=True, slots=True)
class Props:
    """The names of the two files that the scripts write."""

    file: str = FILE
    draft: str = DRAFT
    ignored: bool = False
    """Git takes up no new file at all here, whatever its name."""

    @property
    def goal(self) -> str:
        """What the run is told."""
        return f"Write the file {self.file}."

    @property
    def check(self) -> str:
        """What proves it."""
        return f"test -s {quote(self.file)}"

    def used_in(self, scenario: Scenario) -> Scenario:
        """The script with these names in place of its own."""

        def renamed(value: object) -> object:
            return value.replace(FILE, self.file).replace(DRAFT, self.draft) if isinstance(value, str) else value

        def played(reply: Reply) -> Reply:
            calls = (ToolCall(call.name, {key: renamed(v) for key, v in call.input.items()}) for call in reply.tools)
            return replace(reply, tools=tuple(calls))

        return replace(
            scenario,
            replies=tuple(map(played, scenario.replies)),
            iterations=tuple(tuple(map(played, replies)) for replies in scenario.iterations),
        )


Ignored = Callable[[Sequence[str]], Awaitable[set[str]]]
"""Which of these names git would not take up."""


async def free_props(tracked: Sequence[str], ignored: Ignored) -> Props:
    """Names nobody uses and no rule of the repository ignores. Where there are none, a real night commits nothing
    either: the names stay as they are, and the acts show it.
    """
    taken = {name.lower() for name in tracked}
    taken |= {str(parent).lower() for name in tracked for parent in PurePosixPath(name).parents}
    pairs = [
        (file, draft)
        for file, draft in _candidates(tracked)
        if file.lower() not in taken and draft.lower() not in taken
    ]
    refused = await ignored([name for pair in pairs for name in pair])
    free = next((pair for pair in pairs if not refused.intersection(pair)), None)
    return Props(ignored=True) if free is None else Props(*free)


def _candidates(tracked: Iterable[str]) -> Iterable[tuple[str, str]]:
    stem, draft = (PurePosixPath(name).stem for name in (FILE, DRAFT))
    for number in range(1, NUMBERED + 1):
        tail = f"-{number}" if number > 1 else ""
        yield from ((f"{stem}{tail}{suffix}", f"{draft}{tail}{suffix}") for suffix in SUFFIXES)
    # Some repositories ignore everything and name what is theirs: a name like that of a file they have.
    kinds = dict.fromkeys((PurePosixPath(name).parent, PurePosixPath(name).suffix) for name in tracked)
    for folder, suffix in list(kinds)[:NEIGHBOURS]:
        yield str(folder / f"{stem}{suffix}"), str(folder / f"{draft}{suffix}")


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of the repository, as `git ls-tree -l` lists it."""

    mode: bytes
    name: bytes
    """Its content, by its hash."""
    size: int
    path: bytes

    @property
    def entry(self) -> bytes:
        """The same as `git update-index` takes it."""
        return self.mode + b" " + self.name + b"\t" + self.path + b"\0"


def blobs_of(listing: bytes) -> list[Blob]:
    """The files of a listing; what other repositories are mounted (submodules) has no size and is none."""
    blobs = []
    for line in listing.split(b"\0"):
        head, _, path = line.partition(b"\t")
        fields = head.split()
        if len(fields) == 4 and fields[3].isdigit():  # noqa: PLR2004 mode, type, name and size
            blobs.append(Blob(fields[0], fields[2], int(fields[3]), path))
    return blobs


def few_of(blobs: Sequence[Blob]) -> list[Blob]:
    """As many of the files as a small disk may hold: git's own rules first, then the small ones."""
    if len(blobs) <= FEW_FILES and disk_bytes(blobs) <= FEW_BYTES:
        return list(blobs)
    few: list[Blob] = []
    room = FEW_BYTES
    for blob in sorted(blobs, key=lambda blob: blob.path.rpartition(b"/")[2] not in RULES):
        needed = disk_bytes([blob])
        if blob.size <= SMALL_FILE and needed <= room and len(few) < FEW_FILES:
            few.append(blob)
            room -= needed
    return few


def disk_bytes(blobs: Iterable[Blob]) -> int:
    """What files take of a disk: whole blocks, one more for the entry itself and one for a folder of its own."""
    return sum(-(-blob.size // BLOCK) * BLOCK + 2 * BLOCK for blob in blobs)
