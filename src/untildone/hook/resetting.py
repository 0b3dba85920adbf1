"""A loop begins to count anew: its turns, its failures, the stops that were refused."""

import os

from untildone.core import loop_file
from untildone.hook import register, spool
from untildone.hook.adopting import read_state
from untildone.hook.files import write_text
from untildone.hook.places import AUTONOMOUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.hook.register import Entry


def reset(home: str, project: str, *, now: float, turns: bool) -> "Entry | None":
    """Close the breaker of the loop of this project, and with `turns` begin with turn 1 again; None: there is none."""
    with register.lock(home, project):
        entry = register.find(home, project)
        if entry is None:
            return None
        entry |= {"failures": 0, "failure_point": "", "blocks": 0}
        _reset_files(entry, turns=turns)
        register.write(home, entry)
        spool.tell(home, entry["loop"], "failed", now, point="", failures=0)
    return entry


def _reset_files(entry: "Entry", *, turns: bool) -> None:
    project = entry["project"]
    if entry.get("mode") == "autonomous":
        from untildone.hook.multi_agent import as_loop, count_turn

        had = 0 if turns else as_loop(project, "").iteration - 1
        count_turn(project, had, 0, create=False)
    text = read_state(project, entry["file"])
    if turns and text is not None and entry["file"] != AUTONOMOUS:
        try:
            write_text(os.path.join(project, entry["file"]), loop_file.changed(text, iteration=1))
        except ValueError:
            return  # not to be read as a loop: nobody counts in it
