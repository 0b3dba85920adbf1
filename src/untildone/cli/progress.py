"""Chooses the progress display that fits where it is shown."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TextIO

from untildone.cli.plain import PlainLines
from untildone.core.state import LoopState

if TYPE_CHECKING:
    from untildone.cli.live import LiveScreen


def can_show_live(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Is this a terminal that can move its cursor and show more than ASCII?"""
    able = env.get("TERM", "dumb") not in {"", "dumb", "unknown"}
    return able and stream.isatty() and (stream.encoding or "").lower().replace("-", "") == "utf8"


def open_progress(
    stream: TextIO,
    state: LoopState,
    *,
    now: Callable[[], float],
    env: Mapping[str, str],
    verbose: bool = False,
    leaves: bool = False,
) -> "LiveScreen | PlainLines":
    """The display that fits this stream. Both kinds are context managers with `on_record`.

    `state` is where the run stands before the first record: of a resumed run, all that was folded so far.
    `leaves`: somebody else drives the run, and Ctrl+C only ends the watching.
    """
    able = can_show_live(stream, env)
    if verbose or not able:
        return PlainLines(stream, verbose=verbose, colour=able and not env.get("NO_COLOR"))
    from rich.console import Console

    from untildone.cli.live import LiveScreen

    console = Console(file=stream, highlight=False)
    return LiveScreen(console, state, now=now, **({"ctrl_c": "leaves it working"} if leaves else {}))
