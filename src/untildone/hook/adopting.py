"""State files that nobody started here: where they came from, and which of them a session may take up by itself."""

import os
import stat

from untildone.hook.files import read_text
from untildone.hook.places import AUTONOMOUS, CONTINUATION, LOOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.hook.answering import Call

_HIGHEST = 40
"""No project lies deeper below its repository."""
_COMPRESSED = 4
"""The version of an index in which paths do not stand as they are."""


def adopt_older(call: "Call") -> str:
    """Let this session take up the loop of an older layout, if one waits here; its name, or nothing.

    Writing such a file has always been how those loops are started. One that came with the repository was not written
    by this user, and ours are started by a command: both stay where they are and do nothing.
    """
    if not call.session or os.path.lexists(os.path.join(call.project, LOOP)):
        return ""
    waiting = (name for name in (CONTINUATION, AUTONOMOUS) if os.path.lexists(os.path.join(call.project, name)))
    name = next(waiting, "")
    if not name or not _fit(call.project, name) or came_with_repository(call.project, name):
        return ""
    from untildone.hook.starting import adopt

    adopt(call.home, call.project, now=call.now, session=call.session, transcript=call.text("transcript_path"))
    return name


def read_state(project: str, name: str) -> str | None:
    """The text of a state file. A link, in place of it or of its folder, could lead anywhere: that is no state file."""
    path = os.path.join(project, name)
    if os.path.islink(path) or os.path.islink(os.path.dirname(path)):
        return None
    return read_text(path)


def _fit(project: str, name: str) -> bool:
    """Whether it is a loop that can be counted: what cannot be written would be taken up again and again."""
    text = read_state(project, name)
    if text is None or not os.access(os.path.dirname(os.path.join(project, name)), os.W_OK):
        return False
    if name == AUTONOMOUS:
        return True
    from untildone.core.loop_file import parse

    file = parse(text, "stravinsky")
    return file is not None and file.active


def came_with_repository(project: str, name: str) -> bool:
    """Whether git knows this file as part of a repository. Where that cannot be told, it is taken to be so."""
    place = project
    for _ in range(_HIGHEST):
        found = os.path.join(place, ".git")
        if os.path.lexists(found):
            inside = os.path.relpath(os.path.join(project, name), place)
            return _stands_in_index(_git_folder(found, place), os.fsencode(inside))
        if place == os.path.dirname(place):
            return False
        place = os.path.dirname(place)
    return True


def _git_folder(found: str, place: str) -> str:
    """The folder of git itself; in a worktree or submodule a file says where that is."""
    if os.path.isdir(found):
        return found
    _, _, folder = (read_text(found, cap=1 << 14) or "").partition("gitdir:")
    return os.path.join(place, folder.strip()) if folder.strip() else ""


def _stands_in_index(folder: str, path: bytes) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:
        return True
    # An index may be split; its paths then stand in another file beside it.
    return any(_mentions(os.path.join(folder, n), path) for n in names if n == "index" or n.startswith("sharedindex."))


def _mentions(index: str, path: bytes) -> bool:
    import mmap
    import re

    try:
        with open(index, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return True
            head = file.read(8)
            if head[:4] != b"DIRC" or int.from_bytes(head[4:8], "big") >= _COMPRESSED:
                return True
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                # Some file systems do not tell small letters from capitals.
                return re.search(rb"(?i)(?<!/)" + re.escape(path) + rb"\0", content) is not None
    except (OSError, ValueError):
        return True
