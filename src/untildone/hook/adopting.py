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
_SLASH = 0x2F


def adopt_older(call: "Call") -> str:
    """Let this session take up the loop of an older layout, if one waits here; its name, or nothing.

    Writing such a file has always been how those loops are started. One that may have come from elsewhere was not
    written by this user, and ours are started by a command: both stay where they are and do nothing.
    """
    if not call.session or os.path.lexists(os.path.join(call.project, LOOP)):
        return ""
    waiting = (name for name in (CONTINUATION, AUTONOMOUS) if os.path.lexists(os.path.join(call.project, name)))
    name = next(waiting, "")
    if not name or not _fit(call.project, name) or not is_the_users(call.project, name):
        return ""
    from untildone.hook.starting import adopt

    transcript = call.text("transcript_path")
    adopt(call.home, call.project, now=call.now, session=call.session, transcript=transcript, env=call.env)
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


def is_the_users(project: str, name: str) -> bool:
    """Whether this user put the file here: the project is a git repository, or a part of one, that does not know it.

    Without git nobody can tell: the folder may have been downloaded as it is, loop and all.
    """
    repository = _repository_of(project, name)
    return repository is not None and not repository.holds(project, name) and repository.has_part(project)


def came_with_repository(project: str, name: str) -> bool:
    """Whether git knows this file as part of a repository. Where there is one that cannot be read, it is taken to."""
    repository = _repository_of(project, name)
    return repository is not None and repository.holds(project, name)


def _repository_of(project: str, name: str) -> "_Repository | None":
    """The repository in whose tree a file lies. Its own folder may be one: that is what a submodule is."""
    place = os.path.dirname(os.path.join(project, name))
    for _ in range(_HIGHEST):
        found = os.path.join(place, ".git")
        if os.path.lexists(found):
            return _Repository(place, _git_folder(found, place))
        if place == os.path.dirname(place):
            return None
        place = os.path.dirname(place)
    return None


def _git_folder(found: str, place: str) -> str:
    """The folder of git itself; in a worktree or submodule a file says where that is."""
    if os.path.isdir(found):
        return found
    _, _, folder = (read_text(found, cap=1 << 14) or "").partition("gitdir:")
    return os.path.join(place, folder.strip()) if folder.strip() else ""


class _Repository:
    """What git has noted about a folder."""

    def __init__(self, place: str, folder: str) -> None:
        self._place = place
        try:
            # An index may be split; its paths then stand in another file beside it.
            names = [name for name in os.listdir(folder) if name == "index" or name.startswith("sharedindex.")]
        except OSError:
            names = ["index"]
        self._files = [os.path.join(folder, name) for name in names]
        self._is_noted = "index" in names

    def holds(self, project: str, name: str) -> bool:
        """Whether it brought this file, or the folder it lies in as a whole. What cannot be read may say so."""
        if len(self._place) > len(project):
            return True  # our folders are no repositories of their own, unless somebody made them so
        path = os.fsencode(os.path.relpath(os.path.join(project, name), self._place))
        # A folder alone is a submodule, or one of a sparse checkout.
        parts = path.split(b"/")
        return any(self._says(b"/".join(parts[:count]), rb"/?\0") for count in range(len(parts), 0, -1))

    def has_part(self, project: str) -> bool:
        """Whether it takes care of a project: one that it ignores came from elsewhere, as installed packages do."""
        if project == self._place:
            return self._is_noted
        return self._is_noted and self._says(os.fsencode(os.path.relpath(project, self._place)), b"/")

    def _says(self, path: bytes, end: bytes) -> bool:
        return any(_mentions(file, path, end) for file in self._files)


def _mentions(index: str, path: bytes, end: bytes) -> bool:
    import mmap
    import re

    # Before a path stands its length, which may be the number of a slash.
    begins = b"" if len(path) & 0xFF == _SLASH or end == b"/" else rb"(?<!/)"
    try:
        with open(os.open(index, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return True
            head = file.read(8)
            if head[:4] != b"DIRC" or int.from_bytes(head[4:8], "big") >= _COMPRESSED:
                return True
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                # Some file systems do not tell small letters from capitals.
                return re.search(rb"(?i)" + begins + re.escape(path) + end, content) is not None
    except (OSError, ValueError):
        return True
