"""Whether files are what a commit says: their hashes, computed here and not believed."""

import hashlib
import os
import stat
from collections.abc import Callable
from typing import Any

_LINK = b"120000"
_REPOSITORY = b"160000"
_EXECUTABLE = b"100755"
_SHA1_CHARS = 40
_AT_ONCE = 1 << 20


def as_committed(top: bytes, listed: bytes) -> dict[bytes, str]:
    """The files that are not as listed (by `ls-files -s -z`), with the hash each should have; "" if it is no file."""
    wrong: dict[bytes, str] = {}
    for entry in listed.split(b"\0"):
        about, _, path = entry.partition(b"\t")
        if not path or about.startswith(_REPOSITORY):
            continue
        mode, oid = about.split(b" ")[:2]
        wanted = oid.decode()
        found = _hash(top + b"/" + path, mode, hashlib.sha1 if len(wanted) == _SHA1_CHARS else hashlib.sha256)
        if found != wanted:
            wrong[path] = wanted if found else ""
    return wrong


def quoted(path: bytes) -> bytes:
    """A path as git reads it from a list of lines."""
    return b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


def _hash(path: bytes, mode: bytes, algorithm: Callable[[bytes], Any]) -> str:
    """The hash git would give it as it lies there; "" when it is not there, or of another kind."""
    try:
        if mode == _LINK:
            target = os.readlink(path)  # noqa: PTH115 - names are raw bytes here
            return str(algorithm(b"blob %d\0%b" % (len(target), target)).hexdigest())
        # It may have become a link, or a pipe that nobody writes to.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or (mode == _EXECUTABLE) != bool(about.st_mode & stat.S_IXUSR):
            return ""
        digest = algorithm(b"blob %d\0" % about.st_size)
        left = about.st_size
        while left > 0 and (data := os.read(handle, min(left, _AT_ONCE))):
            digest.update(data)
            left -= len(data)
        return str(digest.hexdigest())
    finally:
        os.close(handle)
