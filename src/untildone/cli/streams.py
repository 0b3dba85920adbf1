"""Standard output and error, which may be full, closed or gone: that never changes how a command ends."""

import os
import sys
from contextlib import suppress
from errno import EIO, EPIPE
from typing import TextIO

_GONE = frozenset({EPIPE, EIO})
"""Nobody reads any more: a pipe whose reader left, a terminal that was closed."""


def provide() -> None:
    """Give streams that were closed before we started (`2>&-`) a place to go: Python has None there."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 -- open till the end


def say(line: str, *, fresh: bool = False) -> None:
    """One line for the person, beside the output; `fresh`: the terminal shows a ^C before it. Never raises."""
    with suppress(OSError, ValueError):
        start = "\n" if fresh and sys.stderr.isatty() else ""
        print(f"{start}untildone:", " ".join(line.split()), file=sys.stderr, flush=True)


def put(text: str) -> None:
    """Print what a long work came to. What cannot be written is said, but the work stays done."""
    try:
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), flush=True)
    except OSError as refused:
        _let_go(sys.stdout)
        if refused.errno not in _GONE:
            say(f"the result could not be written: {refused.strerror}")


def screen_width() -> int | None:
    """Columns of the terminal that standard output is; None: it is none, and a program may be reading."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None if sys.stdout.isatty() else None
    except (OSError, ValueError):
        return None


def settle() -> None:
    """Write what is still held back; what cannot be written is dropped, so that the exit code stays ours."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _let_go(stream)
        except ValueError:  # closed
            continue


def _let_go(stream: TextIO) -> None:
    """Point a stream nobody takes from at nothing: else Python itself complains at its end, with exit code 120."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
        stream.flush()
