"""Whose text a slash command puts before the model. A repository can bring a command with the name of one of ours."""

import os

from untildone.hook.files import read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from untildone.hook.answering import Call

_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "plugin", "commands")
_PLUGIN = "plugin"
_USER = "userSettings"
_HIGHEST = 40


def stranger(call: "Call", name: str) -> str:
    """The file that says something else than ours under this name; nothing where it is ours that is used."""
    source = call.text("command_source")
    if source == _PLUGIN:
        return ""
    files = [file for folder in _folders(call, source) for file in _files(folder, name)]
    wanted = read_bytes(os.path.join(_OURS, f"{name}.md"))
    strange = next((file for file in files if read_bytes(file) != wanted), "")
    return strange or ("" if files or not source else f"a command of {source}")


def _folders(call: "Call", source: str) -> "Iterator[str]":
    """Where Claude Code looks for commands: in the user's own folder, or in the project and all that are above it."""
    own = call.env.get("CLAUDE_CONFIG_DIR") or os.path.join(call.env.get("HOME", ""), ".claude")
    if source == _USER:
        yield own
        return
    for begin in dict.fromkeys((call.text("cwd"), call.project)):
        place = begin
        for _ in range(_HIGHEST):
            yield os.path.join(place, ".claude")
            if place == os.path.dirname(place):
                break
            place = os.path.dirname(place)
    yield own


def _files(folder: str, name: str) -> "Iterator[str]":
    """A skill comes before a command of the same name, so it may not be there at all."""
    for file in (f"commands/untildone/{name}.md", f"skills/untildone:{name}"):
        path = os.path.join(folder, file)
        if os.path.lexists(path):
            yield path
