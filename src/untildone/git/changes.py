"""How the wanted files differ between two commits: two git processes, and cost that grows with what changed."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from untildone.core.dataclass import dataclass
from untildone.core.findings import FileChange
from untildone.core.judges import PERHAPS_TESTS, is_data, judge_of, supports_tests
from untildone.errors import WorkspaceError
from untildone.git.quoting import unquoted
from untildone.git.repository import Repository
from untildone.git.room_content import initialised
from untildone.git.status import readable

MOST_BYTES = 1 << 20
"""Of one file: nobody writes tests or settings larger than this."""
MOST_FILES = 5000
"""Of which the text is read; changes beyond are told without it."""

MOST_TEXT = 4 << 20
"""Of new text that is looked through."""
_PLACE = re.compile(rb"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
_TWO_WORDS = 2

_DIFF = (
    "-c", "diff.renameLimit=2000", "diff", "--raw", "-z", "-M", "--no-abbrev", "--no-ext-diff", "--no-textconv",
    "--ignore-submodules=none",
)  # fmt: skip
_FILE = (b"100644", b"100755")
_REPOSITORY = b"160000"
_LINK = re.compile(rb"120000 blob ([0-9a-f]+)\t([^\0]+)\0")
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
    modules: tuple[str, str]
    """The commit of a repository inside the repository, before and after; "": there it is something else."""


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
            (_module(old_mode, old), _module(new_mode, new)),
        )


def _blob(mode: bytes, name: bytes) -> bytes | None:
    return name if mode in _FILE and name.strip(_NULL) else None


def _module(mode: bytes, name: bytes) -> str:
    return name.decode() if mode == _REPOSITORY else ""


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


async def read_files(repository: Repository, commit: str, paths: Sequence[str]) -> dict[str, str]:
    """The texts of those files that a commit has, as far as they are texts of a sane size."""
    wanted = [path for path in paths if path and "\n" not in path]
    asked = await repository.git(
        "cat-file",
        "--batch-check=%(objecttype) %(objectname)",
        stdin=b"".join(b"%b:%b\n" % (commit.encode(), os.fsencode(path)) for path in wanted),
    )
    # What is not there is answered by `NAME missing`, and a name may hold blanks.
    answers = [line.split() for line in asked.out.splitlines()]
    blobs = {
        path: answer[1]
        for path, answer in zip(wanted, answers, strict=True)
        if len(answer) == _TWO_WORDS and answer[0] == b"blob"
    }
    texts = await _texts(repository, list(blobs.values()))
    return {path: texts[blob] for path, blob in blobs.items() if blob in texts}


async def further_judges(repository: Repository, start: str, commit: str, judges: Callable[[str], bool]) -> list[str]:
    """What is not as it was and judges although its own name does not say so.

    What tests compare with in the product, data that a test names, what links of the start lead to from where tests
    are, and submodules with tests in them.
    """
    changed = await _changed(repository, start, commit)
    was_there = [entry.path for entry in changed if entry.status != "added"]
    return [
        *[path for path in was_there if supports_tests(path)],
        *await _named_by_tests(repository, start, was_there),
        *await _behind_links(repository, start, [entry.path for entry in changed], judges),
        *[entry.path for entry in changed if await _judges_inside(repository, entry, judges)],
    ]


async def changed_files(repository: Repository, start: str, commit: str) -> list[FileChange]:
    """Every file that differs, without its text; one that was renamed is gone in one place and new in another."""
    return [FileChange(path=one.path, status=one.status) for one in await _changed(repository, start, commit)]


async def _changed(repository: Repository, before: str, after: str) -> list[_Entry]:
    args = ("diff", "--raw", "-z", "--no-renames", "--no-abbrev", "--no-ext-diff", "--ignore-submodules=none")
    return list(_entries((await repository.git(*args, before, after, "--")).out))


async def _named_by_tests(repository: Repository, start: str, paths: Sequence[str]) -> list[str]:
    """Files without code that a test of the start names."""
    changed = [path for path in paths if is_data(path)][:MOST_FILES]
    names = {path.rpartition("/")[2] for path in changed}
    if not names:
        return []
    words = [word for name in sorted(names) for word in ("-e", name)]
    # Nothing found is exit code 1. `-z` ends the name of each file with NUL, after the commit and a colon.
    found = await repository.git("grep", "-z", "-o", "-I", "-F", *words, start, "--", *PERHAPS_TESTS, check=False)
    named = set()
    for line in found.out.decode("utf-8", "replace").splitlines():
        path, _, name = line.partition("\0")
        judged = judge_of(path.partition(":")[2])
        if judged is not None and judged.judge == "test":
            named.add(name)
    return [path for path in changed if path.rpartition("/")[2] in named]


async def _behind_links(
    repository: Repository, start: str, paths: Sequence[str], judges: Callable[[str], bool]
) -> list[str]:
    """Those of the files that a link of the start leads to which lies where tests are."""
    listed = await repository.git("ls-tree", "-r", "-z", "--full-tree", start)
    links = [(blob, readable(name)) for blob, name in _LINK.findall(listed.out) if judges(readable(name))]
    targets = await _texts(repository, [blob for blob, _ in links])
    led = [os.path.normpath(f"{path}/../{targets.get(blob, '')}") for blob, path in links]
    return [path for path in paths if any(path == place or path.startswith(f"{place}/") for place in led)]


async def _judges_inside(repository: Repository, entry: _Entry, judges: Callable[[str], bool]) -> bool:
    """Whether a submodule of the start differs in files that judge: no other commit tells how those were."""
    before, after = entry.modules
    module = initialised(repository, entry.path) if before else None
    if module is None:
        return False
    try:
        inside = await _changed(
            module, before, after or (await module.git("hash-object", "-t", "tree", os.devnull)).text
        )
    except WorkspaceError:
        return True  # it cannot be compared
    inside = [replace(one, path=f"{entry.path}/{one.path}") for one in inside]
    return any(judges(one.path) for one in inside) or any(
        [await _judges_inside(repository, one, judges) for one in inside]
    )


async def added_text(repository: Repository, start: str, commit: str, words: str) -> list[tuple[str, int, str]]:
    """Pieces of text that are new between two commits, in files where a new or old line matches an expression."""
    args = (
        "-c", "core.quotePath=true", "diff", "-U0", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv",
        "--no-relative", "--diff-filter=AM", "--src-prefix=a/", "--dst-prefix=b/", "-G", words, start, commit, "--",
    )  # fmt: skip
    told = await repository.git(*args, most=MOST_TEXT)
    found: list[tuple[str, int, list[str]]] = []
    path, left = "", 0
    for line in told.out.split(b"\n"):
        if left and line.startswith(b"+"):
            found[-1][2].append(line[1:].decode("utf-8", "replace"))
            left -= 1
        elif place := _PLACE.match(line):
            found.append((path, int(place[1]), []))
            left = int(place[2] or 1)
        elif not left and line.startswith(b"+++ "):
            path = readable(unquoted(line[4:].rstrip(b"\t"))).removeprefix("b/")
    return [(file, number, "\n".join(lines)) for file, number, lines in found if lines]


def _lines(names: list[bytes]) -> bytes:
    return b"".join(name + b"\n" for name in names)
