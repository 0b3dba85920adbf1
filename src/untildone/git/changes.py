"""How the wanted files differ between two commits: two git processes, and cost that grows with what changed."""

from collections.abc import Callable, Iterator
from typing import Literal

from untildone.core.dataclass import dataclass
from untildone.core.findings import FileChange
from untildone.git.repository import Repository
from untildone.git.status import readable

MOST_BYTES = 1 << 20
"""Of one file: nobody writes tests or settings larger than this."""
MOST_FILES = 5000
"""Of which the text is read; changes beyond are told without it."""

_DIFF = (
    "-c", "diff.renameLimit=2000", "diff", "--raw", "-z", "-M", "--no-abbrev", "--no-ext-diff", "--no-textconv",
    "--ignore-submodules=none",
)  # fmt: skip
_FILE = (b"100644", b"100755")
_NULL = b"0"
_RENAMED = (b"R", b"C")

Status = Literal["added", "modified", "deleted", "renamed"]
_STATUS: dict[bytes, Status] = {b"A": "added", b"C": "added", b"D": "deleted", b"R": "renamed"}


@dataclass(frozen=True, slots=True)
class _Entry:
    status: Status
    path: str
    old_path: str
    before: bytes | None
    """The blob's name; None: there is none, or it is a link or a repository of its own."""
    after: bytes | None


async def guarded_changes(
    repository: Repository, start: str, commit: str, wanted: Callable[[str], bool]
) -> list[FileChange]:
    """The changes of the wanted files, with their texts as far as they are texts of a sane size."""
    told = await repository.git(*_DIFF, start, commit, "--")
    entries = [
        entry for entry in _entries(told.out) if wanted(entry.path) or (entry.old_path and wanted(entry.old_path))
    ]
    # What was there before is read first: no heap of new files may hide what became of it.
    entries.sort(key=lambda entry: entry.status == "added")
    texts = await _texts(repository, [b for e in entries[:MOST_FILES] for b in (e.before, e.after) if b is not None])
    return [
        FileChange(
            path=entry.path,
            old_path=entry.old_path,
            before=None if entry.before is None else texts.get(entry.before),
            after=None if entry.after is None else texts.get(entry.after),
            status=entry.status,
        )
        for entry in entries
    ]


def _entries(out: bytes) -> Iterator[_Entry]:
    """What `--raw -z` printed: `:mode mode blob blob letter`, a name, and a second one after a rename."""
    chunks = iter(out.split(b"\0"))
    for head in chunks:
        if not head.startswith(b":"):
            continue
        old_mode, new_mode, old, new, letter = head[1:].split(b" ")
        first = readable(next(chunks, b""))
        is_renamed = letter.startswith(_RENAMED)
        second = readable(next(chunks, b"")) if is_renamed else first
        yield _Entry(
            _STATUS.get(letter[:1], "modified"),
            second,
            first if letter.startswith(b"R") else "",
            _blob(old_mode, old) if not letter.startswith(b"C") else None,
            _blob(new_mode, new),
        )


def _blob(mode: bytes, name: bytes) -> bytes | None:
    return name if mode in _FILE and name.strip(_NULL) else None


async def _texts(repository: Repository, blobs: list[bytes]) -> dict[bytes, str]:
    """The blobs that are texts. Sizes are asked first: a large file is never read."""
    if not blobs:
        return {}
    unique = list(dict.fromkeys(blobs))
    asked = await repository.git("cat-file", "--batch-check=%(objectsize) %(objectname)", stdin=_lines(unique))
    answers = (line.split() for line in asked.out.splitlines())
    # A partial clone answers `NAME missing` for what was never fetched.
    sane = [name for size, name in answers if name != b"missing" and int(size) <= MOST_BYTES]
    if not sane:
        return {}
    given = await repository.git("cat-file", "--batch=%(objectsize)", stdin=_lines(sane))
    texts: dict[bytes, str] = {}
    position = 0
    for name in sane:
        end = given.out.index(b"\n", position)
        size = int(given.out[position:end])
        content = given.out[end + 1 : end + 1 + size]
        position = end + 1 + size + 1
        if b"\0" not in content:
            texts[name] = content.decode("utf-8", "replace")
    return texts


def _lines(names: list[bytes]) -> bytes:
    return b"".join(name + b"\n" for name in names)
