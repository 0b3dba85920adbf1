"""Standard output and error, which may be full, closed or gone: that never changes how a command ends."""

import os
import re
import sys
from contextlib import suppress
from errno import EIO, EPIPE
from typing import TextIO

_NARROWEST = 12
"""Columns below which wrapping leaves nothing to read."""
_TIED = "\N{NO-BREAK SPACE}"
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
        said = f"untildone: {' '.join(line.split())}"
        print(f"{start}{hanging('', said, width_of(sys.stderr))}", file=sys.stderr, flush=True)


def put(text: str) -> None:
    """Print what a long work came to. What cannot be written is said, but the work stays done."""
    try:
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), flush=True)
    except OSError as refused:
        _let_go(sys.stdout)
        if refused.errno not in _GONE:
            say(f"the result could not be written: {refused.strerror}")


def hanging(start: str, text: str, width: int | None) -> str:
    """`text` after `start`, its further lines below its first; a `command` to be copied stays in one piece."""
    if width is None:
        return start + text
    import textwrap

    from untildone.core.printable import columns

    if columns(start) + columns(text) <= width or width < columns(start) + _NARROWEST:
        return start + text
    whole = re.sub(r"`[^`]*`", lambda command: command[0].replace(" ", _TIED), text)
    lines = textwrap.wrap(
        whole, width - columns(start), break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return start + f"\n{' ' * columns(start)}".join(lines).replace(_TIED, " ")


def screen_width() -> int | None:
    """Columns of the terminal that standard output is; None: it is not a terminal, and a program may be reading."""
    return width_of(sys.stdout)


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal that a stream is; None: it is not a terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
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
