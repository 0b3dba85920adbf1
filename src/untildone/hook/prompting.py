"""What a session is told: open work beside a prompt, and its goal again after a resume or a compaction."""

import os

from untildone.hook import register
from untildone.hook.places import AUTONOMOUS, CONTINUATION, LOOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.core.loop_file import LoopFile
    from untildone.hook.answering import Answer, Call
    from untildone.hook.register import Entry

_LOST = frozenset({"resume", "compact", "clear"})
"""How a session begins that knows nothing, or less, of what it was about."""
_LONGEST_GOAL = 20_000


def on_userpromptsubmit(call: "Call") -> "Answer":
    """Remind of open work. The prompt itself is there already."""
    from untildone.core.todos import reminder
    from untildone.hook.limiting import begin_turn
    from untildone.hook.work import all_todos

    begin_turn(call.home, call.project, call.session, call.now)
    todos = all_todos(call.project, home=call.home, session=call.session, foreign=False)
    return _context("UserPromptSubmit", reminder(todos))


def on_sessionstart(call: "Call") -> "Answer":
    """Put the goal back for the session a loop holds; tell the user of a state file that does nothing."""
    entry = register.find(call.home, call.project)
    if entry is None:
        return _notice(call)
    if not call.session:
        return None
    _note_who_is_here(call, entry)
    if entry.get("session") != call.session or call.text("source") not in _LOST:
        return None
    from untildone.hook.loop_reading import read_loop

    file = read_loop(entry)
    return None if file is None or not file.active else _context("SessionStart", _goal_again(call.home, entry, file))


def _note_who_is_here(call: "Call", entry: "Entry") -> None:
    """Which Claude Code has the session of a loop open from now on; one that begins another session has left it."""
    from untildone.hook.holding import leave, note_holder

    note = note_holder if entry.get("session") == call.session else leave
    if not note(entry, call.env):
        return
    try:
        with register.lock(call.home, call.project):
            known = register.find(call.home, call.project)
            if known is not None and known["loop"] == entry["loop"] and note(known, call.env):
                register.write(call.home, known)
    except OSError:
        return  # the goal is more important


def _context(event: str, text: str) -> "Answer":
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}} if text else None


def _goal_again(home: str, entry: "Entry", file: "LoopFile") -> str:
    """What the loop is about and how far it is."""
    goal, place = file.body.strip(), entry["file"]
    rest = f"\n(cut: the rest is in {place})" if goal[_LONGEST_GOAL:] else ""
    turn = f"turn {max(1, file.iteration)} of {file.max_iterations}"
    held = f"This session is held by a loop of untildone ({place}): {turn}."
    parts = [
        f"{held} It goes on by itself until its goal is reached or a limit is.",
        f"Its goal:\n{goal[:_LONGEST_GOAL]}{rest}",
    ]
    if file.promises:
        said = " or ".join(file.promises)
        parts.append(f"Only when all of it is reached and verified, say alone on the last line of your message: {said}")
    if entry.get("failures"):
        parts.append(
            f"It failed {entry['failures']} times in a row at the same point: {entry.get('failure_point', '')}"
        )
    return "\n\n".join((*parts, *_open(home, entry)))


def _open(home: str, entry: "Entry") -> list[str]:
    if not entry.get("tasks") and entry.get("mode") != "autonomous":
        return []
    from untildone.hook.work import open_work

    work = open_work(entry["project"], entry.get("tasks", []), home=home, session=entry.get("session", ""))
    return [f"Open work ({work.open}):\n" + "\n".join(f"- {line}" for line in work.lines)] if work.open else []


def _notice(call: "Call") -> "Answer":
    """One line for the user about a loop that was not started on this machine."""
    found = next((name for name in (LOOP, CONTINUATION, AUTONOMOUS) if _lies(call.project, name)), "")
    if not found or call.text("source") == "compact":
        return None
    if found != LOOP:
        from untildone.hook.adopting import came_with_repository

        if not came_with_repository(call.project, found):
            return None  # whoever stops first here takes it up, and says so
    return {
        "systemMessage": f"untildone: {found} lies here but was not started on this machine, so it does nothing; "
        "`untildone loop adopt` would use it"
    }


def _lies(project: str, name: str) -> bool:
    return os.path.lexists(os.path.join(project, name))
