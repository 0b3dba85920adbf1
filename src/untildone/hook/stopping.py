"""The agent wants to stop. In a session that a loop holds, it goes on, or it is let go: one answer, for one reason."""

import os
import time

from untildone.core import loop_file, loop_words
from untildone.core.repeats import failures_in_a_row
from untildone.hook import background, limiting, register, spool
from untildone.hook.adopting import adopt_older, read_state
from untildone.hook.answered import is_answered, note_answer
from untildone.hook.changes import tell_changes
from untildone.hook.files import write_text
from untildone.hook.hearing import claim_of, doubts_of, last_message, says_blocked
from untildone.hook.loop_reading import parsed
from untildone.hook.places import AUTONOMOUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.core.loop_file import LoopFile
    from untildone.core.loop_words import Look
    from untildone.hook.answering import Answer, Call
    from untildone.hook.checking import Checked
    from untildone.hook.hearing import Said
    from untildone.hook.register import Entry

TEXT_CAP = 2000
_WARN_BEFORE = 2
_RAISE_IT = "`untildone plugin install` raises that limit of Claude Code"


class _Stand:
    """A loop at the moment of a stop, read under its lock."""

    __slots__ = ("call", "entry", "file", "look", "message", "notes", "path", "said", "text", "turn")

    def __init__(self, call: "Call", entry: "Entry", message: str, taken_up: str = "") -> None:
        self.call = call
        self.entry = entry
        self.message = message
        self.notes = [f"this session has taken up {taken_up}"] if taken_up else []
        """For the user, beside the answer."""
        self.path = os.path.join(entry["project"], entry["file"])
        self.text = read_state(entry["project"], entry["file"])
        self.file: LoopFile | None = None if self.text is None else parsed(entry, self.text)
        self.turn = 1 if self.file is None else max(1, self.file.iteration)
        self.said: Said = ""
        """How the agent says that everything is done."""
        self.look: Look = loop_words.Look(entry.get("mode", ""))
        self.look.running = background.left_running(call.event)


def on_stop(call: "Call") -> "Answer":
    """Go on, let go, or stay out of it."""
    if not call.session or call.event.get("agent_id"):
        return None
    entry, taken_up = register.find(call.home, call.project), ""
    try:
        if entry is None:
            taken_up = adopt_older(call)
            if not taken_up:
                return None
        elif entry.get("session") != call.session:
            return None
        return _answer(call, last_message(call), taken_up)
    except TimeoutError:
        return _said("another process keeps the loop of this folder locked: say anything to go on, nothing is lost")


def _answer(call: "Call", message: str, taken_up: str) -> "Answer":
    """Decide under the lock; checks take their time without it, and what was changed meanwhile counts."""
    checked: list[Checked] | None = None
    loop, began = "", time.monotonic()
    while True:
        with register.lock(call.home, call.project):
            entry = register.find(call.home, call.project)
            if entry is None or entry.get("session") != call.session or is_answered(entry, call, message, began):
                return None
            if loop not in {"", entry["loop"]}:  # ended meanwhile, and another one began
                return None
            loop = entry["loop"]
            stand = _Stand(call, entry, message, taken_up)
            early = _early(stand)
            if early is not None:
                return early
            stand.said = claim_of(message, _file(stand), autonomous=entry.get("mode") == "autonomous")
            if _is_word_only(stand):
                stand.look.doubts = doubts_of(message, _file(stand))
                stand.said = "" if stand.look.doubts else stand.said
            if not stand.said or checked is not None or not _checkable(stand):
                return _late(stand, checked)
        from untildone.hook.checking import DEFAULT_SECONDS, run_checks

        limit = entry.get("check_seconds") or DEFAULT_SECONDS
        checked = run_checks(entry["checks"], cwd=call.project, env=call.env, limit=limit)


def _early(stand: _Stand) -> "Answer":
    """What ends or holds a loop whatever the agent says."""
    if stand.text is None:
        gone = not os.path.lexists(stand.path)
        detail = "its state file was removed" if gone else "its state file is a link, no file or too long"
        return _release(stand, "stop_requested", detail)
    if stand.file is None:
        return _said(f"{stand.entry['file']} cannot be read as a loop: mend it, and the loop goes on at the next stop")
    if not stand.file.active:
        return _release(stand, "stop_requested")
    waiting = background.awaited(stand.call.event)
    if waiting:
        reason = limiting.time_reason(stand.entry, stand.file, stand.call.now)
        going_on = f"waiting for {waiting} in the background, then it goes on"
        return _release(stand, reason) if reason else _said(going_on, *stand.notes)
    if says_blocked(stand.message, stand.file):
        return _release(stand, "blocked")
    return None


def _late(stand: _Stand, checked: "list[Checked] | None") -> "Answer":
    """What the agent said, then the limits, then the next turn."""
    stand.look.claimed = bool(stand.said)
    if stand.said:
        if _checks_were_changed(stand):
            return _said(
                f"the agent says it is done; the checks in {stand.entry['file']} were changed, so none was run: "
                "`untildone loop adopt` takes them over, then say anything to go on"
            )
        _note_work(stand)
        if list(_file(stand).checks) != stand.entry.get("checks", []) and _file(stand).layout == "untildone":
            stand.notes.append(f"the checks in {stand.entry['file']} came with the repository and were not run")
        if not stand.look.open_work and _passed(stand, checked):
            return _done(stand)
    if stand.entry["file"] == AUTONOMOUS:
        from untildone.hook.multi_agent import failures

        stand.entry["failures"] = failures(stand.call.project)
    reason = limiting.reached(stand.entry, _file(stand), stand.turn, stand.call.now)
    return _release(stand, reason) if reason else _go_on(stand)


# --- whether it is true ----------------------------------------------------------------------------------------


def _is_word_only(stand: _Stand) -> bool:
    """Whether a status is all there is to believe: no checks, no agreed promise, no controller."""
    entry = stand.entry
    is_ours = _file(stand).layout == "untildone" and entry.get("mode") != "autonomous"
    return stand.said == "signal" and is_ours and not entry.get("checks")


def _checkable(stand: _Stand) -> bool:
    """Whether the checks are due: there are some, nobody changed them, and no open work makes them pointless."""
    if not stand.entry.get("checks") or _checks_were_changed(stand):
        return False
    _note_work(stand)
    return not stand.look.open_work


def _checks_were_changed(stand: _Stand) -> bool:
    file = _file(stand)
    return (
        file.layout == "untildone"
        and stand.entry["file"] != AUTONOMOUS
        and list(file.checks) not in (stand.entry.get("checks", []), stand.entry.get("foreign_checks"))
    )


def _note_work(stand: _Stand) -> None:
    """Open work in the sources this loop was given; in all there are for the controller, and for a mere exit signal."""
    sources = stand.entry.get("tasks") or []
    if not sources and stand.entry.get("mode") != "autonomous" and stand.said != "signal":
        return
    from untildone.hook.work import open_work

    work = open_work(stand.call.project, sources, home=stand.call.home, session=stand.call.session)
    stand.look.open_work = work.open
    stand.look.open_lines = work.lines


def _passed(stand: _Stand, checked: "list[Checked] | None") -> bool:
    """Whether every check passed; a failure is counted at its point."""
    for check in checked or ():
        spool.tell(
            stand.call.home,
            stand.entry["loop"],
            "check",
            stand.call.now,
            command=check.command,
            passed=check.passed,
            seconds=round(check.seconds, 3),
            output=loop_words.safe(check.output[-TEXT_CAP:]),
        )
        if not check.passed:
            stand.look.failed_check, stand.look.output = check.command, check.output
            _count_failure(stand, f"check: {check.command}")
            return False
    if stand.entry.get("failures"):
        spool.tell(stand.call.home, stand.entry["loop"], "failed", stand.call.now, point="", failures=0)
    stand.entry |= {"failures": 0, "failure_point": ""}
    return True


def _count_failure(stand: _Stand, point: str) -> None:
    entry = stand.entry
    failures = failures_in_a_row(entry.get("failures", 0), entry.get("failure_point", ""), point)
    entry |= {"failures": failures, "failure_point": point}
    spool.tell(stand.call.home, entry["loop"], "failed", stand.call.now, point=point, failures=failures)


# --- answers -----------------------------------------------------------------------------------------------------


def _go_on(stand: _Stand) -> "Answer":
    """The next turn begins: counted first, so that whatever happens to this answer, no turn is had for nothing."""
    entry, call, file, text = stand.entry, stand.call, _file(stand), stand.text or ""
    if not stand.look.claimed:
        _note_work(stand)
    stand.look.overtime = limiting.is_overtime(entry, call.now)
    following = stand.turn + 1
    _count(stand, following, text)
    refused, cap = _refused_in_a_row(stand), limiting.block_cap(call.env)
    ends = bool(cap) and refused >= cap
    stand.look.needs_tool = bool(cap) and refused >= cap - _WARN_BEFORE
    entry["blocks"] = 0 if ends else refused + 1
    entry["turn_started"] = 0.0 if ends else call.now
    tell_changes(call.home, entry, file, call.now)
    _tell_turn(stand)
    entry["spooled"] = spool.size(call.home, entry["loop"])
    note_answer(entry, call, stand.message)
    register.write(call.home, entry)
    if ends:
        return _said(
            f"Claude Code lets nobody go on after {cap} stops without a tool call: say anything to go on with turn "
            f"{following} of {file.max_iterations}; {_RAISE_IT}"
        )
    warned = f"without a tool call Claude Code ends this soon; {_RAISE_IT}" if stand.look.needs_tool else ""
    line = loop_words.turn_line(following, file.max_iterations, *stand.notes, warned)
    return _goes_on(loop_words.go_on(file, following, stand.look), line)


def _count(stand: _Stand, following: int, text: str) -> None:
    file = _file(stand)
    if stand.entry.get("mode") == "autonomous":
        from untildone.hook.multi_agent import count_turn

        is_mark = stand.entry["file"] == AUTONOMOUS
        count_turn(stand.call.project, stand.turn, stand.entry.get("failures", 0), create=is_mark)
        _note_in_older_layout(stand, following)
        if is_mark:
            return
    fields: dict[str, object] = {"iteration": following}
    if file.clock:  # from now on it is a moment: tomorrow the same time of day is another one
        fields["deadline"] = limiting.deadline_of(stand.entry, file)
    write_text(stand.path, loop_file.changed(text, **fields))


def _note_in_older_layout(stand: _Stand, turn: int, *, active: bool = True) -> None:
    from untildone.hook.older_state import note_turn

    entry = stand.entry
    note_turn(
        stand.call.project,
        turn=turn,
        limit=0 if stand.file is None else stand.file.max_iterations,
        failures=entry.get("failures", 0),
        point=entry.get("failure_point", ""),
        now=stand.call.now,
        active=active,
    )


def _refused_in_a_row(stand: _Stand) -> int:
    """Stops refused since the last tool call, or since the user last said something."""
    if not stand.call.event.get("stop_hook_active"):
        return 0
    used = spool.tool_used_since(stand.call.home, stand.entry["loop"], stand.entry.get("spooled", 0))
    return 0 if used else stand.entry.get("blocks", 0)


def _done(stand: _Stand) -> "Answer":
    from untildone.hook.releasing import follow

    call, entry = stand.call, stand.entry
    reason = "validation_passed" if entry.get("checks") else "completion_signal"
    entry["blocks"] = _refused_in_a_row(stand) + 1
    note_answer(entry, call, stand.message)
    new = follow(call.home, entry, reason=reason, now=call.now, iteration=stand.turn, text=stand.message)
    if new is None:
        return _release(stand, reason)
    following = _Stand(call, new, "")
    file = _file(following)
    over = loop_words.end_line(reason, stand.turn).removeprefix("untildone: ")
    line = loop_words.line("; ".join((over, *stand.notes, f"the next goal: turn 1 of {file.max_iterations}")))
    return _goes_on(loop_words.go_on(file, 1, following.look), line)


def _release(stand: _Stand, reason: str, detail: str = "") -> "Answer":
    from untildone.hook.releasing import release

    if reason == "circuit_open" and not detail:
        detail = stand.entry.get("failure_point", "")
    release(
        stand.call.home,
        stand.entry,
        reason=reason,
        now=stand.call.now,
        iteration=stand.turn,
        detail=detail,
        text=stand.message,
        claim=stand.look.claimed,
    )
    if stand.entry.get("mode") == "autonomous":
        _note_in_older_layout(stand, stand.turn, active=False)
    return {"systemMessage": loop_words.end_line(reason, stand.turn, "; ".join((*stand.notes, detail)).strip("; "))}


def _tell_turn(stand: _Stand) -> None:
    call, entry, turn = stand.call, stand.entry, stand.turn
    spool.tell(
        call.home,
        entry["loop"],
        "turn",
        call.now,
        session=call.session,
        iteration=turn,
        claim=stand.look.claimed,
        open_work=stand.look.open_work,
        text=stand.message[-TEXT_CAP:],
    )
    if turn in (entry.get("milestones") or ()):
        from untildone.hook.releasing import announce

        spool.tell(call.home, entry["loop"], "milestone", call.now, iteration=turn)
        announce(entry, "milestone", call.now, turn, "")


def on_stopfailure(call: "Call") -> "Answer":
    """The turn broke off, for example because the service failed: recorded, and never gone on with."""
    entry = register.find(call.home, call.project)
    if entry is None or not call.session or entry.get("session") != call.session:
        return None
    point = loop_words.safe(f"Claude Code: {call.text('error') or 'failed'}"[:TEXT_CAP])
    spool.tell(call.home, entry["loop"], "failed", call.now, point=point, failures=entry.get("failures", 0))
    return None


# --- small things ------------------------------------------------------------------------------------------------


def _file(stand: _Stand) -> "LoopFile":
    assert stand.file is not None  # `_early` has answered where it is
    return stand.file


def _goes_on(text: str, line: str) -> "Answer":
    """The session goes on with this text. Said as a refusal to stop, the user would see all of it, as an error."""
    return {"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": text}, "systemMessage": line}


def _said(*texts: str) -> "Answer":
    return {"systemMessage": loop_words.line("; ".join(texts))}
