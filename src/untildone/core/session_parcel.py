"""The transcripts of one session in one parcel: what it may hold, and how it is read, whoever packed it."""

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from untildone.errors import AgentError

LARGEST = 256 << 20
"""Bytes of transcripts, unpacked, that travel at most."""
MOST_FILES = 500
SESSION_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")
# A name that fits into the header of a tar: a longer one would need a header of its own.
SUBAGENT = re.compile(r"agent-[0-9A-Za-z_-]{1,80}\.(?:jsonl|meta\.json)")
MAIN = "main.jsonl"
_CHUNK = 1 << 20


def contents(session_id: str, parcel: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of a parcel. AgentError when it is no such parcel, or holds more than fits."""
    with _read_with_care(session_id):
        for name, size, file in _entries(session_id, parcel):
            yield name, b"".join(_pieces(file, size))


def main_transcript(session_id: str, parcel: bytes) -> Iterator[bytes]:
    """The conversation itself, in pieces. AgentError as above, or when it is not there."""
    with _read_with_care(session_id):
        for name, size, file in _entries(session_id, parcel):
            for piece in _pieces(file, size):
                if name == MAIN:
                    yield piece
            if name == MAIN:
                return
    raise AgentError(f"the transcript of session {session_id} is not in its parcel")


def too_large(session_id: str) -> str:
    """What is said of a session that cannot travel."""
    return (
        f"the transcripts of session {session_id} are too large to travel ({LARGEST >> 20} MB at most): "
        "on another machine the run goes on in a new session"
    )


def _entries(session_id: str, parcel: bytes) -> Iterator[tuple[str, int, gzip.GzipFile]]:
    """Plain files with the names we give, each to be read whole before the next is asked for.

    Read by hand: `tarfile` takes headers that extend others into memory, however large they say they are.
    """
    left, count = LARGEST, 0
    with gzip.GzipFile(fileobj=io.BytesIO(parcel)) as squeezed:
        while any(block := squeezed.read(tarfile.BLOCKSIZE)):
            entry = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
            if not (entry.isreg() and entry.size >= 0 and (entry.name == MAIN or SUBAGENT.fullmatch(entry.name))):
                raise AgentError(f"the parcel of session {session_id} holds what is no transcript: it is not used")
            left, count = left - entry.size, count + 1
            if left < 0 or count > MOST_FILES + 1:
                raise AgentError(too_large(session_id))
            yield entry.name, entry.size, squeezed
            squeezed.read(-entry.size % tarfile.BLOCKSIZE)


def _pieces(file: gzip.GzipFile, size: int) -> Iterator[bytes]:
    while size:
        piece = file.read(min(size, _CHUNK))
        if not piece:
            raise EOFError("it is cut off")
        size -= len(piece)
        yield piece


@contextmanager
def _read_with_care(session_id: str) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError) as trouble:
        raise AgentError(f"the parcel of session {session_id} is damaged: {trouble}") from trouble
