"""The loops that were started on this machine, by the user's own command: the only ones that are believed.

A state file in a project can come from anywhere. What it may run, and which session it holds, stands here, in a folder
that belongs to the user and that no repository brings along. It is sealed: an entry that was edited is none.
"""

import os

from untildone.hook import plain_json
from untildone.hook.files import Lock, read_text, write_text
from untildone.hook.sealing import digest, is_sealed, seal_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Entry(TypedDict, total=False):
        """One loop, as it is written down."""

        loop: str
        """Its id; also the id of its run in the log."""
        project: str
        file: str
        """The state file, relative to the project: one of ours or an older layout."""
        mode: str
        """`promise`, or `autonomous`: the dual gate over all task sources."""
        session: str
        """The session it holds; empty: it waits to be adopted."""
        transcript: str
        created: float
        turn_started: float
        checks: list[str]
        foreign_checks: list[str]
        """Checks in a state file that came with the repository: known, and never run."""
        check_seconds: float
        iteration_seconds: float
        total_seconds: float
        milestones: list[int]
        notify: list[str]
        next: list[str]
        """Goals that follow, each as the whole text of a state file."""
        tasks: list[str]
        """Sources of open work: files relative to the project, or the names of known ones."""
        blocks: int
        """Stops that were answered with `go on` since the last tool call."""
        failures: int
        failure_point: str
        spooled: int
        """How much of the spool the last stop has seen."""
        answered: list[float]
        """When the last stop was answered, by the clock on the wall and by the one that is never set: a hook that was
        called before that is a second one for the same stop."""
        answered_by: str
        """Which of the places where hooks are installed has answered."""
        told: str
        """What it works for, as the spool was last told; see `changes`."""
        heard: str
        """The end of the message that was answered."""
        holder: list[str]
        """The Claude Code that has the session open, as `holding` writes it down."""


_SEAL = "\nseal: "
_WHAT = "entry"


def _entry_path(home: str, project: str) -> str:
    return os.path.join(home, "loops", f"{digest(project, 12)}.json")


def lock(home: str, project: str) -> Lock:
    """Held while an entry and its state file are read, decided on and written."""
    return Lock(_entry_path(home, project) + ".lock")


def find(home: str, project: str) -> "Entry | None":
    """The loop of a project, if one was started or adopted on this machine and is not over."""
    text = read_text(_entry_path(home, project))
    body, found, seal = (text or "").rpartition(_SEAL)
    if not found or not is_sealed(home, _WHAT, body.encode("utf-8", "surrogateescape"), seal.strip()):
        return None
    try:
        entry: Entry = plain_json.parse(body)
    except ValueError:
        return None
    is_ours = isinstance(entry, dict) and entry.get("project") == project and bool(entry.get("loop"))
    return entry if is_ours else None


def first_to_answer(home: str, project: str, prompt: str) -> bool:
    """Whether nobody has answered this prompt yet: installed twice, every hook is called twice at once."""
    path = _entry_path(home, project) + ".prompt"
    with lock(home, project):
        if read_text(path) == prompt:
            return False
        write_text(path, prompt, private=True)
    return True


def entries(home: str) -> "list[Entry]":
    """All loops that are not over."""
    folder = os.path.join(home, "loops")
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return []
    projects = (_project_of(os.path.join(folder, name)) for name in names)
    found = (find(home, project) for project in projects if project)
    return [entry for entry in found if entry is not None]


def _project_of(path: str) -> str:
    try:
        value = plain_json.parse((read_text(path) or "").rpartition(_SEAL)[0])
    except ValueError:
        return ""
    project = value.get("project") if isinstance(value, dict) else None
    return project if isinstance(project, str) else ""


def write(home: str, entry: "Entry") -> None:
    """Put an entry down, new or changed."""
    body = plain_json.render(entry)
    sealed = f"{body}{_SEAL}{seal_of(home, _WHAT, body.encode())}\n"
    write_text(_entry_path(home, entry["project"]), sealed, private=True)


def remove(home: str, project: str) -> None:
    """The loop is over."""
    try:
        os.unlink(_entry_path(home, project))
    except FileNotFoundError:
        return
