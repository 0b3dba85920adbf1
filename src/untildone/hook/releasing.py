"""The end of a loop: its goal is kept, its end is recorded, whoever waits for it is told, and the next one begins."""

import os

from untildone.core import loop_file, loop_words
from untildone.hook import register, spool
from untildone.hook.adopting import read_state
from untildone.hook.changes import mark, tell_changes
from untildone.hook.files import write_text
from untildone.hook.loop_reading import read_loop
from untildone.hook.places import AUTONOMOUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.hook.register import Entry

DONE = ("validation_passed", "completion_signal")
TEXT_CAP = 2000


def history_path(home: str, loop: str) -> str:
    """Where the state file of a finished loop is kept."""
    return os.path.join(home, "history", f"{loop}.md")


def release(
    home: str,
    entry: "Entry",
    *,
    reason: str,
    now: float,
    iteration: int = 0,
    detail: str = "",
    text: str = "",
    claim: bool = False,
) -> None:
    """End a loop whose lock is held. Whatever moment this is killed in, the goal stands in one place at least."""
    _keep(home, entry)
    _tell(home, entry, now, reason=reason, iteration=iteration, detail=detail, text=text, claim=claim)
    for name in {entry["file"], AUTONOMOUS} if entry.get("mode") == "autonomous" else {entry["file"]}:
        _unlink(os.path.join(entry["project"], name))
    register.remove(home, entry["project"])
    announce(entry, reason, now, iteration, detail)


def follow(home: str, entry: "Entry", *, reason: str, now: float, iteration: int, text: str) -> "Entry | None":
    """End a loop that reached its goal and begin the one that follows, in the same session; None: nothing follows."""
    following = entry.get("next") or []
    if not following:
        return None
    begun = _next_text(entry, following[0])
    file = loop_file.parse(begun)
    if file is None:
        return None
    _keep(home, entry)
    _tell(home, entry, now, reason=reason, iteration=iteration, detail="", text=text, claim=True)
    new: Entry = {**entry, "loop": os.urandom(6).hex(), "created": now, "turn_started": now, "next": following[1:]}
    new |= {"checks": list(file.checks), "failures": 0, "failure_point": "", "spooled": 0}
    new["told"] = mark(new, file)
    write_text(os.path.join(entry["project"], entry["file"]), begun)
    register.write(home, new)
    spool.tell(
        home,
        new["loop"],
        "started",
        now,
        session=new["session"],
        goal=file.body,
        project=new["project"],
        mode=new["mode"],
        max_iterations=file.max_iterations,
        promises=list(file.promises),
        checks=new["checks"],
        transcript=new.get("transcript", ""),
    )
    announce(entry, reason, now, iteration, "")
    return new


def announce(entry: "Entry", kind: str, now: float, iteration: int, detail: str) -> None:
    """Tell whoever asked for it, without waiting: a process of its own delivers it. A milestone is one of `kind`s."""
    if entry.get("notify"):
        from untildone.hook.notifying import send_aside

        try:
            send_aside(entry, kind, now, iteration, detail)
        except OSError:  # nobody is told; the loop is more important
            return


def _keep(home: str, entry: "Entry") -> None:
    text = read_state(entry["project"], entry["file"])
    if text is not None:
        write_text(history_path(home, entry["loop"]), text, private=True)


def _tell(
    home: str, entry: "Entry", now: float, *, reason: str, iteration: int, detail: str, text: str, claim: bool
) -> None:
    file = read_loop(entry)
    if file is not None:
        tell_changes(home, entry, file, now)
    spool.tell(
        home,
        entry["loop"],
        "released",
        now,
        session=entry["session"],
        reason=reason,
        iteration=iteration,
        done=reason in DONE,
        claim=claim,
        detail=loop_words.safe(detail[:TEXT_CAP]),
        text=text[-TEXT_CAP:],
    )


def _next_text(entry: "Entry", following: str) -> str:
    """The state file of the next loop: a whole one, or a goal with the limits of this one."""
    here = read_state(entry["project"], entry["file"]) or ""
    old = loop_file.parse(here)
    if loop_file.parse(following) is None:
        bounds = {} if old is None else {"max_iterations": old.max_iterations, "promises": old.promises}
        following = loop_file.new_file(following, **bounds)
    shown = {"next": old.next[1:]} if old is not None and len(old.next) > 1 else {}
    return loop_file.changed(following, iteration=1, active=True, session=entry["session"], **shown)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
