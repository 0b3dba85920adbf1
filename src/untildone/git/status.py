"""What `git status` said, as values: which files differ from the last commit, and a fingerprint of it all."""

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping

from untildone.core.dataclass import dataclass
from untildone.ports import TreeState

STATUS = (
    "status", "--porcelain=v2", "-z", "--branch", "--untracked-files=all",
    "--ignore-submodules=dirty", "--no-renames", "--no-ahead-behind",
)  # fmt: skip

LISTED = 1000
"""How many dirty paths a TreeState lists; its fingerprint covers all of them."""

_NESTED_FILES = 2000

# How many space-separated fields come before the path, by the kind of line.
_FIELDS = {b"1": 8, b"2": 9, b"u": 10, b"?": 1}


@dataclass(frozen=True, slots=True)
class Status:
    """The parsed answer. Paths are raw bytes: file names need not be UTF-8."""

    head: str | None
    branch: str | None
    paths: tuple[bytes, ...]
    unmerged: tuple[bytes, ...] = ()

    @property
    def nested(self) -> tuple[bytes, ...]:
        """Untracked folders that are git repositories of their own: the only paths git ends with a slash."""
        return tuple(path for path in self.paths if path.endswith(b"/"))


def parse_status(out: bytes, *, ignore: Iterable[bytes] = ()) -> Status:
    """Read what STATUS printed, leaving out the paths in `ignore`."""
    ignored = frozenset(ignore)
    headers: dict[bytes, bytes] = {}
    paths: list[bytes] = []
    unmerged: list[bytes] = []
    chunks = iter(out.split(b"\0"))
    for chunk in chunks:
        kind = chunk[:1]
        if kind == b"#":
            name, _, value = chunk[2:].partition(b" ")
            headers[name] = value
        elif kind in _FIELDS:
            path = chunk.split(b" ", _FIELDS[kind])[-1]
            if kind == b"2":
                next(chunks, None)  # the name before the rename
            if path not in ignored:
                paths.append(path)
                if kind == b"u":
                    unmerged.append(path)
    head, branch = headers.get(b"branch.oid", b"(initial)"), headers.get(b"branch.head", b"(detached)")
    return Status(
        head=None if head == b"(initial)" else head.decode(),
        branch=None if branch == b"(detached)" else readable(branch),
        paths=tuple(paths),
        unmerged=tuple(unmerged),
    )


def stamp_all(top: bytes, paths: Iterable[bytes]) -> dict[bytes, str]:
    """For each path what would change if the file did: kind, size and time of its last change."""
    return {path: _nested_stamp(top, path) if path.endswith(b"/") else _stamp(top + b"/" + path) for path in paths}


def size_in(stamp: str) -> int:
    """The size of the file that a stamp is of, in bytes."""
    words = stamp.split(" ")
    return int(words[1]) if len(words) > 1 else 0


def tree_state(status: Status, stamps: Mapping[bytes, str], *, named_branch: bool = True) -> TreeState:
    """The working tree as one comparable value."""
    digest = hashlib.sha256(f"{status.head}\n".encode())
    for path in sorted(stamps):
        digest.update(path + b"\0" + stamps[path].encode() + b"\n")
    return TreeState(
        fingerprint=digest.hexdigest(),
        head=status.head,
        branch=status.branch if named_branch else None,
        dirty=tuple(readable(path) for path in status.paths[:LISTED]),
    )


def readable(name: bytes) -> str:
    """A file or branch name as text that every encoder accepts."""
    return name.decode("utf-8", "backslashreplace")


def in_one_line(names: Iterable[str], *, at_most: int = 5) -> str:
    """A few names for a message: control characters escaped, the rest counted."""
    listed = list(names)
    shown = ", ".join(name if name.isprintable() else repr(name)[1:-1] for name in listed[:at_most])
    return shown if len(listed) <= at_most else f"{shown} and {len(listed) - at_most} more"


def _stamp(path: bytes) -> str:
    try:
        found = os.lstat(path)
    except OSError:
        return "gone"
    if stat.S_ISDIR(found.st_mode):
        return "folder"  # a submodule: its own files do not count here
    return f"{found.st_mode:o} {found.st_size} {found.st_mtime_ns}"


def _nested_stamp(top: bytes, path: bytes) -> str:
    """Git does not look into a repository inside the repository; work done there is work all the same."""
    digest = hashlib.sha256()
    left = _NESTED_FILES
    for folder, folders, files in os.walk(top + b"/" + path):
        folders[:] = sorted(name for name in folders if name != b".git")
        for name in sorted(files)[:left]:
            digest.update(name + b"\0" + _stamp(folder + b"/" + name).encode() + b"\n")
        left -= len(files)
        if left <= 0:
            break
    return digest.hexdigest()
