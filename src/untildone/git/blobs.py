"""Files whose lines a diff does not show: what is text in them, and was not there before."""

import re
from collections.abc import Iterator, Sequence

from untildone.core.dataclass import dataclass
from untildone.git.repository import Repository

MOST_BYTES = 1 << 20
"""Of one file."""
_ALL_BYTES = 16 << 20
_NULS = 0.2
_WORDS = re.compile(rb"[\x20-\x7e]{8,}")


@dataclass(frozen=True, slots=True)
class Blob:
    """A file that a commit changed, by its hashes."""

    path: str
    new: str
    old: tuple[str, ...] = ()


async def new_lines(repository: Repository, blobs: Sequence[Blob]) -> tuple[list[tuple[str, int, str]], list[str]]:
    """(path, number, text) of what is new in them; and the paths of those that are too large to be read."""
    sizes = await _sizes(repository, [blob.new for blob in blobs])
    read, unread, left = [], [], _ALL_BYTES
    for blob in dict.fromkeys(blobs):
        size = sizes.get(blob.new, 0)
        if size > min(MOST_BYTES, left):
            unread.append(blob.path)
        else:
            left -= size
            read.append(blob)
    wanted = dict.fromkeys(oid for blob in read for oid in (blob.new, *blob.old))
    known = await _sizes(repository, list(wanted))
    contents = await _contents(repository, [oid for oid, size in known.items() if size <= MOST_BYTES])
    return [line for blob in read for line in _new_in(blob, contents)], unread


def _new_in(blob: Blob, contents: dict[str, bytes]) -> Iterator[tuple[str, int, str]]:
    before = {line for oid in blob.old for line in _lines(contents.get(oid, b""))}
    for number, line in enumerate(_lines(contents.get(blob.new, b"")), 1):
        if line not in before:
            yield blob.path, number, line


def _lines(data: bytes) -> list[str]:
    """As text, in whatever encoding; of what is no text the words in it."""
    if b"\0" not in data:
        return data.decode("utf-8", "replace").split("\n")
    if wide := _wide(data):
        return data.decode(wide, "replace").split("\n")
    return [word.decode("ascii") for word in _WORDS.findall(data)]


def _wide(data: bytes) -> str:
    """Which encoding has two or four bytes for each letter; "" when it is none of them."""
    for mark, name in ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"),
                       (b"\xfe\xff", "utf-16")):  # fmt: skip
        if data.startswith(mark):
            return name
    even, odd = data[::2].count(0), data[1::2].count(0)
    if max(even, odd) < _NULS * len(data):
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


async def _sizes(repository: Repository, oids: Sequence[str]) -> dict[str, int]:
    if not oids:
        return {}
    stdin = "".join(f"{oid}\n" for oid in oids).encode()
    told = await repository.git("cat-file", "--batch-check=%(objectname) %(objectsize) %(objecttype)", stdin=stdin)
    rows = (line.split(" ") for line in told.out.decode("ascii", "replace").splitlines())
    return {row[0]: int(row[1]) for row in rows if row[-1] == "blob"}


async def _contents(repository: Repository, oids: Sequence[str]) -> dict[str, bytes]:
    if not oids:
        return {}
    told = await repository.git("cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in oids).encode())
    found, at = {}, 0
    for _ in oids:
        head, _, _ = told.out[at : at + 200].partition(b"\n")
        oid, _, size = head.split(b" ")
        at += len(head) + 1
        found[oid.decode()] = told.out[at : at + int(size)]
        at += int(size) + 1
    return found
