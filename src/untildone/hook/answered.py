"""Whether a stop was answered already. Installed twice, every hook is called twice, more or less at once."""

import time

from untildone.hook.holding import note_holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.hook.answering import Call
    from untildone.hook.register import Entry

_LONGEST_HOOK = 3600.0
_HEARD = 500


def note_answer(entry: "Entry", call: "Call", message: str) -> None:
    """Remember which stop was answered, when, and by which of the two."""
    entry["answered"] = [time.time(), time.monotonic()]  # noqa: TID251 the same clock as the one the call was given
    entry["answered_by"] = _caller(call)
    entry["heard"] = message[-_HEARD:]
    note_holder(entry, call.env)


def is_answered(entry: "Entry", call: "Call", message: str, began: float) -> bool:
    """Whether this is the second call for the stop that was answered last.

    Either it began before that answer was given: a clock that is set, or a machine that was started anew, can mislead
    one of the two clocks, not both. Or the other of the two heard these very words: each is called once for a stop.
    """
    wall, steady = entry.get("answered") or (0.0, 0.0)
    if began <= steady and 0 <= wall - call.now < _LONGEST_HOOK:
        return True
    is_other = entry.get("answered_by", _caller(call)) != _caller(call)
    return is_other and entry.get("heard") == message[-_HEARD:] and abs(call.now - wall) < _LONGEST_HOOK


def _caller(call: "Call") -> str:
    """One of the places where hooks of ours are installed: a plugin is named, and each copy has a folder of its own."""
    return f"{call.env.get('CLAUDE_PLUGIN_ROOT', '')}:{__file__}"
