"""State files that no command started here: which of them came with the repository, and which start a loop."""

import os

from untildone.hook.files import read_text
from untildone.hook.places import AUTONOMOUS, CONTINUATION, LOOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.hook.answering import Call

_HIGHEST = 40
"""No project lies deeper below its repository."""
PATIENCE = 5.0
"""Seconds for an answer of git."""
_GIT = ".git"
_HARMLESS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never")


def adopt_older(call: "Call") -> str:
    """Let this session take up the loop of an older layout, if one waits here; its name, or nothing.

    Writing such a file has always been how those loops are started. One that git tracks came with the repository, and
    ours are started by a command: both stay where they are and do nothing.
    """
    if not call.session or os.path.lexists(os.path.join(call.project, LOOP)):
        return ""
    waiting = (name for name in (CONTINUATION, AUTONOMOUS) if os.path.lexists(os.path.join(call.project, name)))
    name = next(waiting, "")
    if not name or not _fit(call.project, name) or came_with_repository(call.project, name):
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


def came_with_repository(project: str, name: str) -> bool:
    """Whether git tracks this file. Where there is a repository and git cannot say, it is taken to."""
    place = os.path.dirname(os.path.join(project, name))
    if os.path.lexists(os.path.join(place, _GIT)):
        return True  # a submodule: our folders are no repositories of their own
    return _is_in_repository(project) and _is_tracked(project, name)


def _is_in_repository(place: str) -> bool:
    for _ in range(_HIGHEST):
        if os.path.lexists(os.path.join(place, _GIT)):
            return True
        place = os.path.dirname(place)
    return False


def _is_tracked(project: str, name: str) -> bool:
    """Ask git. Nothing that the repository's own settings name is run for it."""
    import subprocess

    folder = name.partition("/")[0]
    argv = ["git", *_HARMLESS, "ls-files", "-z", "--", f":(icase){folder}"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
    try:
        asked = subprocess.run(  # noqa: S603, TID251 - git/ takes longer to load than the hook
            argv, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return True
    # Some file systems do not tell small letters from capitals. The folder alone is a submodule.
    wanted = {os.fsencode(folder).lower(), os.fsencode(name).lower()}
    return asked.returncode != 0 or not wanted.isdisjoint(asked.stdout.lower().split(b"\0"))
