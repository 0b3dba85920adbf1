"""The Claude Code that has a session open: whether it still lives, for somebody who looks from outside."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from untildone.hook.register import Entry

LEFT = ["", "", ""]
"""What stands in an entry whose session was left, with its Claude Code still at work on another."""
_LONGEST = 10
_BEGAN = 19
"""Which field of `/proc/PID/stat` says when a process began, counted after its name."""
_DEAD = b"Z"
_CAP = 1 << 12


def note_holder(entry: "Entry", env: "Mapping[str, str]") -> bool:
    """Write down which Claude Code has the session of this loop open now; whether that is news."""
    claude = env.get("CLAUDE_PID", "")
    if not _is_number(claude):
        return False
    found = [claude, _began(claude), _world()]
    is_news = entry.get("holder") != found
    entry["holder"] = found
    return is_news


def leave(entry: "Entry", env: "Mapping[str, str]") -> bool:
    """The Claude Code that had the session of this loop open has begun another one; whether it was that one."""
    known = _known(entry)
    if known is None or known[0] != env.get("CLAUDE_PID", "") or known[1:] != [_began(known[0]), _world()]:
        return False
    entry["holder"] = LEFT
    return True


def is_left(entry: "Entry") -> bool:
    """Whether nobody has the session of a loop open any more. Where that cannot be told: no."""
    known = _known(entry)
    if known is None or not entry.get("session"):
        return False
    claude, began, world = known
    # In another world the numbers of processes mean something else.
    return known == LEFT or (_is_number(claude) and world == _world() and not _lives(claude, began))


def _known(entry: "Entry") -> "list[str] | None":
    found = entry.get("holder")
    fits = isinstance(found, list) and len(found) == len(LEFT) and all(isinstance(part, str) for part in found)
    return found if fits else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST and int(text) > 1


def _lives(claude: str, began: str) -> bool:
    if began:  # another process may have the same number by now
        return _began(claude) == began
    try:
        os.kill(int(claude), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _began(claude: str) -> str:
    """When a process began; nothing where it is over, or the system does not say."""
    try:
        with open(f"/proc/{claude}/stat", "rb") as file:
            # A name in brackets may hold anything, brackets too: what follows the last one is ours to read.
            fields = file.read(_CAP).rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if len(fields) <= _BEGAN or fields[0] == _DEAD else fields[_BEGAN].decode("ascii", "replace")


def _world() -> str:
    """The machine, or the container on it, whose processes bear these numbers."""
    try:
        return f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename
