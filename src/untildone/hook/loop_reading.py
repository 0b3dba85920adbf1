"""The state file of a loop that is in the register, in whichever layout it is."""

from untildone.core import loop_file
from untildone.hook.adopting import read_state
from untildone.hook.places import AUTONOMOUS, CONTINUATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.core.loop_file import LoopFile
    from untildone.hook.register import Entry


def read_loop(entry: "Entry") -> "LoopFile | None":
    """What stands there now; None where it is gone or spoilt."""
    text = read_state(entry["project"], entry["file"])
    return None if text is None else parsed(entry, text)


def parsed(entry: "Entry", text: str) -> "LoopFile | None":
    """The text of a state file, by the layout it is written in."""
    if entry["file"] == AUTONOMOUS:
        from untildone.hook.multi_agent import as_loop

        return as_loop(entry["project"], text)
    return loop_file.parse(text, "stravinsky" if entry["file"] == CONTINUATION else "untildone")
