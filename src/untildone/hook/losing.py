"""Loops whose state file or project is gone. No hook is called for them any more: whoever looks next ends them."""

import os

from untildone.hook import register

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.hook.register import Entry

LOST = "loop_lost"
FILE_GONE = "its state file was removed"
PROJECT_GONE = "its project folder is gone"


def release_lost(home: str, now: float) -> int:
    """End every loop that has lost its state file; how many there were."""
    return sum(_release(home, entry["project"], now) for entry in register.entries(home) if what_is_gone(entry))


def what_is_gone(entry: "Entry") -> str:
    """What a loop has lost, in words; nothing while all of it is there, or where that cannot be told."""
    project, name = entry.get("project", ""), entry.get("file", "")
    if not project or not name:
        return ""
    if _is_gone(project):
        return PROJECT_GONE
    return FILE_GONE if _is_gone(os.path.join(project, name)) else ""


def _release(home: str, project: str, now: float) -> bool:
    from untildone.hook.releasing import history_path, release

    try:
        with register.lock(home, project):
            entry = register.find(home, project)
            detail = "" if entry is None else what_is_gone(entry)
            if entry is None or not detail:
                return False  # ended meanwhile, or begun anew
            if os.path.exists(history_path(home, entry["loop"])):
                register.remove(home, project)  # it was ended, and whoever did that was killed before the last step
            else:
                release(home, entry, reason=LOST, now=now, detail=detail)
    except OSError:
        return False  # nobody can write here: it stays what it is
    return True


def _is_gone(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
