"""Files as a hook needs them: read with a bound, written whole or not at all, locked for a moment."""

import os
import stat

LONGEST = 1 << 20
"""Nothing that is read here is longer; what is, is not ours."""


def read_bytes(path: str, *, cap: int = LONGEST) -> bytes | None:
    """The content of a regular file of at most `cap` bytes; None where there is no such file. Never blocks."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            content = file.read(cap + 1)
    except OSError:
        return None
    return content if len(content) <= cap else None


def read_text(path: str, *, cap: int = LONGEST) -> str | None:
    """The same as text; bytes that are none stay what they are when it is written back."""
    content = read_bytes(path, cap=cap)
    return None if content is None else content.decode("utf-8", "surrogateescape")


def write_text(path: str, text: str, *, private: bool = False) -> None:
    """Replace a file in one step, keeping its mode. A symbolic link is replaced, never followed."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700 if private else 0o777, exist_ok=True)
    try:
        mode = os.lstat(path).st_mode & 0o777
    except OSError:
        mode = 0o600 if private else 0o644
    beside = f"{path}.{os.getpid()}.new"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(handle, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def append_line(path: str, line: str) -> None:
    """One append, whole even when several hooks write at once."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, (line + "\n").encode("utf-8", "surrogatepass"))
    finally:
        os.close(handle)


class Lock:
    """An advisory lock on a file of its own; waits for whoever holds it, which is never long."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def __enter__(self) -> "Lock":  # noqa: PYI034 `Self` would need typing
        import fcntl

        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
