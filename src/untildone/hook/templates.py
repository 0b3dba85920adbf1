"""Goals that people have again and again: those that come with untildone, and the user's own.

A template is a state file without a session: settings between two `---` lines, the goal below. The first comment says
what it is for.
"""

import os

from untildone.core import loop_file
from untildone.errors import UsageError
from untildone.hook.files import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_CAP = 1 << 18
_END = ".md"


class Template:
    """A loop to be started."""

    __slots__ = ("about", "checks", "goal", "max_iterations", "name", "own", "path", "promises", "text")

    def __init__(self, name: str, path: str, text: str, *, own: bool) -> None:
        file = loop_file.parse(text)
        if file is None or not file.body.strip():
            raise UsageError(f"{path} is no template: it needs settings between two `---` lines and a goal below them")
        self.name = name
        self.path = path
        self.text = text
        self.own = own
        """It is the user's, not ours."""
        settings = text.partition("\n---")[0].splitlines()
        comments = (line.strip("# ") for line in settings if line.startswith("#"))
        self.about = next(comments, "")
        self.goal = file.body.strip()
        self.promises = file.promises
        self.checks = file.checks
        self.max_iterations = file.max_iterations


def own_folder(env: "Mapping[str, str]") -> str:
    """Where the user's templates lie."""
    base = env.get("XDG_CONFIG_HOME") or ""
    if not base.startswith("/"):
        base = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(base, "untildone", "loops")


def template(name: str, env: "Mapping[str, str]") -> Template:
    """The template of that name; the user's own before ours. UsageError when there is none."""
    if name and "/" not in name and "\0" not in name and not name.startswith("."):
        for folder, own in _folders(env):
            path = os.path.join(folder, name + _END)
            text = read_text(path, cap=_CAP)
            if text is not None:
                return Template(name, path, text, own=own)
    known = ", ".join(names(env))
    raise UsageError(f"there is no template {name[:40]!r}: there are {known}; your own go into {own_folder(env)}")


def names(env: "Mapping[str, str]") -> list[str]:
    """All names, in order."""
    found: set[str] = set()
    for folder, _ in _folders(env):
        try:
            found.update(
                entry[: -len(_END)] for entry in os.listdir(folder) if entry.endswith(_END) and entry[0] != "."
            )
        except OSError:
            continue
    return sorted(found)


def _folders(env: "Mapping[str, str]") -> list[tuple[str, bool]]:
    ours = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "plugin", "templates")
    return [(own_folder(env), True), (ours, False)]
