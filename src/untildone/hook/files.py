"""Files as a hook needs them: read with a bound, written whole or not at all, locked for a moment."""

import os
import stat

LONGEST = 1 << 20
"""Nothing that is read here is longer; what is, is not ours."""


_PATIENCE = 3.0
_LOOK_EVERY = 0.005


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
    # What a killed process left behind may bear the number of this one: chance is never met twice.
    beside = f"{path}.{os.urandom(6).hex()}.new"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(handle, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def append_line(path: str, line: str) -> None:
    """One append, whole even when several hooks write at once. OSError where it does not fit on the disk."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        written = (line + "\n").encode("utf-8", "surrogatepass")
        if not _ends_whole(handle):
            written = b"\n" + written
        if os.write(handle, written) < len(written):
            import errno

            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(handle)


def _ends_whole(handle: int) -> bool:
    """Whether the last line has its end: on a full disk it may be half of one, to which nothing must be glued."""
    size = os.fstat(handle).st_size
    return not size or os.pread(handle, 1, size - 1) == b"\n"


class Lock:
    """An advisory lock on a file of its own. Nobody of ours holds it for long: TimeoutError where somebody does."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def __enter__(self) -> "Lock":  # noqa: PYI034 `Self` would need typing
        import fcntl

        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = 0.0
        while True:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as held:
                import time

                until = until or time.monotonic() + _PATIENCE
                if time.monotonic() >= until:
                    os.close(self._handle)
                    raise TimeoutError(held.errno, "another process keeps it locked", self._path) from held
                time.sleep(_LOOK_EVERY)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
