"""How a loop begins, is taken up by a session, and is called off: for the slash commands and for the command line.

Only what a person typed comes here. That is what an entry in the register stands for.
"""

import os

from untildone.core import loop_file
from untildone.errors import UsageError
from untildone.hook import register, spool
from untildone.hook.adopting import came_with_repository, read_state
from untildone.hook.changes import mark, tell_changes
from untildone.hook.files import write_text
from untildone.hook.holding import note_holder
from untildone.hook.loop_reading import parsed, read_loop
from untildone.hook.losing import FILE_GONE, LOST
from untildone.hook.places import AUTONOMOUS, CONTINUATION, DEVTEAM, LOOP, TASKS
from untildone.hook.releasing import release
from untildone.hook.work import KNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from untildone.core.loop_file import LoopFile
    from untildone.hook.register import Entry

TURNS = 10
CONTROLLER_TURNS = 50
MOST_TURNS = 10_000
CHECK_SECONDS = 900.0
LONGEST_CHECKS = 1500.0
"""Seconds for all checks together; the hook itself is given more (`plugin/hooks.json`)."""
LONGEST_GOAL = 200_000
_IGNORED = "# The state of loops in Claude Code: nobody else's business.\n*\n"


def start(
    home: str,
    project: str,
    *,
    goal: str,
    now: float,
    session: str = "",
    transcript: str = "",
    env: "Mapping[str, str]" = {},  # noqa: B006 never changed
    mode: str = "promise",
    max_iterations: int = TURNS,
    promises: "Sequence[str]" = (),
    checks: "Sequence[str]" = (),
    check_seconds: float = CHECK_SECONDS,
    deadline: float | None = None,
    total_seconds: float = 0.0,
    iteration_seconds: float = 0.0,
    tasks: "Sequence[str]" = (),
    next_goals: "Sequence[str]" = (),
    milestones: "Sequence[int]" = (),
    notify: "Sequence[str]" = (),
) -> "Entry":
    """Begin a loop: its state file, its entry, the first line of its spool. UsageError where one is in the way.

    Without a `session` it waits until one takes it up. `env` is the environment of that session.
    """
    _fit(goal, max_iterations, (*promises, *checks))
    _find(project, tasks)
    if any(not url.lower().startswith(("http://", "https://")) for url in notify):
        raise UsageError("a hook can tell only http:// and https:// addresses: give one of those to be notified")
    bounds = {"max_iterations": max_iterations, "promises": tuple(promises), "deadline": deadline}
    shown = {"session": session, "checks": tuple(checks) or None, "next": tuple(next_goals) or None}
    text = loop_file.new_file(goal, **bounds, **shown)
    file = loop_file.parse(text)
    assert file is not None  # we have just written it
    entry = new_entry(project, LOOP, now, mode=mode)
    entry |= {
        "session": session,
        "transcript": transcript,
        "checks": list(checks),
        "check_seconds": min(check_seconds, LONGEST_CHECKS),
        "iteration_seconds": iteration_seconds,
        "total_seconds": total_seconds,
        "milestones": list(milestones),
        "notify": list(notify),
        "next": [loop_file.new_file(goal, checks=tuple(checks) or None, **bounds) for goal in next_goals],
        "tasks": list(tasks),
    }
    note_holder(entry, env)
    entry["told"] = mark(entry, file)
    with register.lock(home, project):
        _make_room(home, project, now)
        _own_folder(project)
        write_text(os.path.join(project, LOOP), text)
        if mode == "autonomous":
            _mark(project)
        register.write(home, entry)
        _tell_started(home, entry, file, now)
    return entry


def adopt(
    home: str,
    project: str,
    *,
    now: float,
    session: str = "",
    transcript: str = "",
    env: "Mapping[str, str]" = {},  # noqa: B006 never changed
    take_checks: bool = False,
) -> "tuple[Entry, str]":
    """Let a session hold the loop of this project; say what was left out. UsageError where there is none.

    Checks come from the file only with `take_checks`, and never from a file that came with the repository. Without a
    session, whoever holds the loop keeps it.
    """
    with register.lock(home, project):
        entry = register.find(home, project)
        name = entry["file"] if entry is not None else _lying_here(project)
        text = read_state(project, name)
        if text is None:
            raise UsageError("no loop waits in this folder: start one with `/untildone:loop GOAL`")
        is_new = entry is None
        entry = entry or new_entry(project, name, now, mode="autonomous" if name == AUTONOMOUS else "promise")
        file = parsed(entry, text)
        if file is None:
            raise UsageError(f"{name} is no state file of a loop: its settings stand between two `---` lines")
        remark = _take_checks(entry, list(file.checks), wanted=take_checks)
        if session:
            _hold(entry, session, transcript, env, now)
        entry |= {"turn_started": now, "blocks": 0}
        if name == LOOP and file.session != entry["session"]:
            write_text(os.path.join(project, name), loop_file.changed(text, session=entry["session"]))
        tell_changes(home, entry, file, now)
        register.write(home, entry)
        if is_new:
            _tell_started(home, entry, file, now)
        if session:
            spool.tell(home, entry["loop"], "adopted", now, session=session, transcript=transcript)
    return entry, remark


def _take_checks(entry: "Entry", asked: list[str], *, wanted: bool) -> str:
    """Run what the file asks for from now on, if that may be; what there is to say about it."""
    if asked == entry["checks"]:
        return ""
    if came_with_repository(entry["project"], entry["file"]):
        entry["foreign_checks"] = asked
    elif wanted:
        entry["checks"] = asked
        return ""
    return f"the checks in {entry['file']} are not run: it did not get them from a command on this machine"


def _hold(entry: "Entry", session: str, transcript: str, env: "Mapping[str, str]", now: float) -> None:
    if not entry["session"]:
        entry["created"] = now  # its time begins with the session that takes it up, however long it has waited
    entry |= {"session": session, "transcript": transcript or entry["transcript"]}
    note_holder(entry, env)


def cancel(home: str, project: str, *, now: float, detail: str = "", loop: str = "") -> "Entry | None":
    """Call the loop of this project off, whichever session it holds; None where there is none, or not this `loop`."""
    with register.lock(home, project):
        entry = register.find(home, project)
        if entry is not None and loop in {"", entry["loop"]}:
            file = read_loop(entry)
            turn = 0 if file is None else max(1, file.iteration)
            release(home, entry, reason="stop_requested", now=now, iteration=turn, detail=detail)
            return entry
    return None


def new_entry(project: str, file: str, now: float, *, mode: str = "promise") -> "Entry":
    """A loop that holds nobody yet and may run nothing."""
    return {
        "loop": os.urandom(6).hex(),
        "project": project,
        "file": file,
        "mode": mode,
        "session": "",
        "transcript": "",
        "created": now,
        "turn_started": now,
        "checks": [],
        "check_seconds": CHECK_SECONDS,
        "iteration_seconds": 0.0,
        "total_seconds": 0.0,
        "milestones": [],
        "notify": [],
        "next": [],
        "tasks": [],
        "blocks": 0,
        "failures": 0,
        "failure_point": "",
        "spooled": 0,
    }


def _lying_here(project: str) -> str:
    found = (name for name in (LOOP, CONTINUATION, AUTONOMOUS) if os.path.lexists(os.path.join(project, name)))
    return next(found, LOOP)


def _fit(goal: str, max_iterations: int, texts: "Sequence[str]") -> None:
    if not goal.strip():
        raise UsageError("a loop needs a goal: say what is to be reached")
    if len(goal) > LONGEST_GOAL:
        raise UsageError(f"the goal is longer than {LONGEST_GOAL} characters: put it into a file and name that")
    if not 1 <= max_iterations <= MOST_TURNS:
        raise UsageError(f"{max_iterations} turns cannot be: give 1 to {MOST_TURNS}")
    if any(not text.strip() or "\n" in text or "\r" in text for text in texts):
        raise UsageError("a promise or a check is one line of text, and not empty")


def _find(project: str, tasks: "Sequence[str]") -> None:
    """A source of tasks that is not there would be open for ever."""
    for name in tasks:
        if name not in {*KNOWN, TASKS} and not os.path.isfile(os.path.join(project, name)):
            raise UsageError(f"--tasks {name[:200]!r} is no file in this folder: write it first, or leave it out")


def _make_room(home: str, project: str, now: float) -> None:
    """Nobody's goal is written over."""
    entry = register.find(home, project)
    if entry is not None:
        if os.path.lexists(os.path.join(project, entry["file"])):
            raise UsageError("a loop is at work in this folder: `/untildone:cancel` or `untildone loop stop` ends it")
        release(home, entry, reason=LOST, now=now, detail=FILE_GONE)
    if os.path.lexists(os.path.join(project, LOOP)):
        raise UsageError(f"{LOOP} lies here already: take it up with `/untildone:loop --adopt`, or remove it")


def _own_folder(project: str) -> None:
    """A folder of our own, which git leaves alone; a link could lead anywhere."""
    folder = os.path.join(project, os.path.dirname(LOOP))
    if os.path.islink(folder) or (os.path.lexists(folder) and not os.path.isdir(folder)):
        raise UsageError(f"{folder} is no folder of this project: remove it first")
    try:
        os.makedirs(folder, exist_ok=True)
        if not os.path.lexists(os.path.join(folder, ".gitignore")):
            write_text(os.path.join(folder, ".gitignore"), _IGNORED)
    except OSError as refused:
        raise UsageError(f"{folder} cannot be written: {refused.strerror}") from refused


def _mark(project: str) -> None:
    """Where the files of an older layout are at home, whoever watches those sees this loop too."""
    folder = os.path.join(project, os.path.dirname(AUTONOMOUS))
    others = os.path.join(project, os.path.dirname(DEVTEAM))
    if os.path.islink(folder) or not (os.path.isdir(folder) or os.path.isdir(others)):
        return
    from untildone.hook.multi_agent import count_turn

    write_text(os.path.join(project, AUTONOMOUS), "See .untildone/loop.md.\n")
    count_turn(project, 0, 0, create=True)


def _tell_started(home: str, entry: "Entry", file: "LoopFile", now: float) -> None:
    spool.tell(
        home,
        entry["loop"],
        "started",
        now,
        session=entry["session"],
        goal=file.body.strip(),
        project=entry["project"],
        mode=entry["mode"],
        max_iterations=file.max_iterations,
        promises=list(file.promises),
        checks=entry["checks"],
        deadline=file.deadline,
        total_seconds=entry["total_seconds"],
        transcript=entry["transcript"],
    )
