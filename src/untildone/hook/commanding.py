"""The slash commands. What was typed is read here, by code; the model is told what was set up, and sets up nothing.

Claude Code sends this event for what a person typed, never for what the model calls: that is what makes it a command.
"""

from untildone.core import command_words, loop_file
from untildone.core import typed_options as typed
from untildone.core.printable import one_line, printable
from untildone.errors import UsageError
from untildone.hook import register, starting
from untildone.hook.command_files import stranger
from untildone.hook.holding import is_left
from untildone.hook.limiting import block_cap
from untildone.hook.loop_reading import read_loop
from untildone.hook.work import KNOWN, goal_from_todos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from untildone.core.typed_options import Typed
    from untildone.hook.answering import Answer, Call
    from untildone.hook.register import Entry

PREFIX = "untildone:"
_ALIASES = {
    "max-iterations": "max",
    "max-turns": "max",
    "completion-promise": "promise",
    "max-duration": "time",
    "todos": "from-todos",
}
_LIMITS = {"max": typed.ONE, "check": typed.MANY, "deadline": typed.ONE, "minutes": typed.ONE, "time": typed.ONE}
_LOOP = {
    **_LIMITS,
    "promise": typed.MANY,
    "turn-time": typed.ONE,
    "next": typed.MANY,
    "tasks": typed.MANY,
    "template": typed.ONE,
    "from-todos": typed.FLAG,
    "milestone": typed.MANY,
    "notify": typed.MANY,
    "adopt": typed.FLAG,
}
_SPRINT = {**_LIMITS, "autonomous": typed.FLAG}
SPRINTS = "Execute all sprints that are not completed yet, in their order, each task checked before it counts as done."
PROJECT = "Bring this project to completion: requirements, then tasks, then sprints, each checked."


def on_userpromptexpansion(call: "Call") -> "Answer":
    """Do what one of our commands asks for; any other is not ours."""
    name = call.text("command_name")
    command = _COMMANDS.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    if command is None:
        return None
    prompt = call.text("prompt_id")
    try:
        _refuse_a_stranger(call, name)
        if call.text("command_args").strip() in {"-h", "--help"}:
            return _only_said(command_words.usage(name))
        if prompt and not register.first_to_answer(call.home, call.project, prompt):
            return None
        return command(call, call.text("command_args"))
    except (UsageError, ValueError) as refused:
        return _only_said(str(refused))
    except OSError as refused:
        return _only_said(f"{refused.filename or 'a file'} cannot be written: {refused.strerror}")


def _refuse_a_stranger(call: "Call", name: str) -> None:
    """What the model is about to read has to be our text, not one that somebody else put under its name."""
    strange = stranger(call, name.removeprefix(PREFIX))
    if strange:
        raise UsageError(
            f"/{name} is not ours here, so it did nothing: {strange} has its name. Look at it; remove it, or let "
            "`untildone plugin install` bring ours up to date"
        )


# --- the commands ----------------------------------------------------------------------------------------------


def _loop(call: "Call", text: str) -> "Answer":
    given = typed.read_options(text, _LOOP, _ALIASES)
    if given.has("adopt"):
        return _adopted(call, given)
    plan = _plan(call, given)
    entry = starting.start(
        call.home,
        call.project,
        iteration_seconds=_duration(given.last("turn-time")),
        tasks=[*given.all("tasks"), *(KNOWN if given.has("from-todos") else ())],
        next_goals=given.all("next"),
        milestones=[_whole(text, "--milestone") for text in given.all("milestone")],
        notify=given.all("notify"),
        **plan,
        **_held(call, given),
    )
    return _begun(call, entry)


def _implement(call: "Call", text: str) -> "Answer":
    given = typed.read_options(text, _LIMITS, _ALIASES)
    return _controlled(call, given, given.text or PROJECT)


def _sprint(call: "Call", text: str) -> "Answer":
    given = typed.read_options(text, _SPRINT, _ALIASES)
    if given.has("autonomous"):
        which = given.text.strip()
        return _controlled(
            call, given, SPRINTS if which in {"", "all"} else f"Execute sprint {which}, all of its tasks."
        )
    if given.options:
        raise UsageError("without --autonomous a sprint has no limits and no checks of its own: leave the options out")
    return None


def _controlled(call: "Call", given: "Typed", goal: str) -> "Answer":
    entry = starting.start(
        call.home,
        call.project,
        goal=goal,
        mode="autonomous",
        checks=given.all("check"),
        max_iterations=_turns(given, starting.CONTROLLER_TURNS),
        **_held(call, given),
    )
    return _begun(call, entry)


def _adopted(call: "Call", given: "Typed") -> "Answer":
    others = sorted(name for name in given.options if name != "adopt")
    if others or given.text:
        raise UsageError("--adopt takes the loop as it is: leave the goal and the other options out")
    _refuse_its_own_agent(call)
    entry, remark = starting.adopt(
        call.home,
        call.project,
        session=call.session,
        transcript=call.text("transcript_path"),
        env=call.env,
        now=call.now,
    )
    answer = _begun(call, entry)
    if remark and answer is not None:
        answer["systemMessage"] += f"; {remark}"
    return answer


def _cancel(call: "Call", text: str) -> "Answer":
    if text.strip():
        raise UsageError("/untildone:cancel takes nothing: it ends the loop of this folder")
    _refuse_its_own_agent(call)
    entry = starting.cancel(call.home, call.project, now=call.now, detail="/untildone:cancel")
    if entry is None:
        return _only_said("no loop is running in this folder")
    whose = (
        "" if entry["session"] == call.session else f" It held another session ({entry['session'][:8] or 'none yet'})."
    )
    return _only_said(f"the loop is called off, recorded as not done; its goal is kept: untildone loop history.{whose}")


def _refuse_its_own_agent(call: "Call") -> None:
    """A session that is held could start another one to let itself go."""
    from untildone.hook.ancestry import is_inside

    entry = register.find(call.home, call.project)
    if entry is not None and is_inside(entry["session"], call.env):
        raise UsageError("the session that is held started this one: only a human ends or moves its loop")


def _status(call: "Call", text: str) -> "Answer":
    if text.strip():
        raise UsageError("/untildone:status takes nothing: it shows the loop of this folder")
    entry = register.find(call.home, call.project)
    return _only_said(_standing(call, entry) if entry is not None else "no loop is running in this folder")


def _ask(call: "Call", text: str) -> "Answer":
    from untildone.hook.asking import ask, open_questions

    if not text.strip():
        return _only_said(open_questions(call.home, call.project))
    return _told("a question is noted for later", ask(call.home, call.project, text, call.now, by="user"))


_COMMANDS: "dict[str, Callable[[Call, str], Answer]]" = {
    "loop": _loop,
    "cancel": _cancel,
    "status": _status,
    "implement": _implement,
    "sprint": _sprint,
    "ask": _ask,
}


# --- what was typed --------------------------------------------------------------------------------------------


def _plan(call: "Call", given: "Typed") -> "dict[str, Any]":
    """Goal, promises, checks and turns as they were typed, or as a template or the open tasks give them."""
    name = given.last("template")
    if name is not None and given.has("from-todos"):
        raise UsageError("--template and --from-todos both bring a goal: give one of them")
    brought, promises, checks, turns = "", given.all("promise"), given.all("check"), starting.TURNS
    if name is not None:
        from untildone.hook.templates import template

        found = template(name, call.env)
        brought, turns = found.goal, found.max_iterations
        promises, checks = promises or list(found.promises), checks or list(found.checks)
    if given.has("from-todos"):
        brought = goal_from_todos(call.home, call.project, call.session)
        if not brought:
            raise UsageError("no task is open here: there is nothing to make a loop of")
    return {
        "goal": "\n\n".join(filter(None, (brought, given.text))),
        "promises": promises,
        "checks": checks,
        "max_iterations": _turns(given, turns),
    }


def _held(call: "Call", given: "Typed") -> "dict[str, Any]":
    """What every loop of a session has, and its limits of time."""
    minutes, time = given.last("minutes"), given.last("time")
    if minutes is not None and time is not None:
        raise UsageError("--minutes and --time say the same: give one of them")
    deadline = given.last("deadline")
    return {
        "session": call.session,
        "transcript": call.text("transcript_path"),
        "env": call.env,
        "now": call.now,
        "total_seconds": _duration(time if minutes is None else f"{minutes}m"),
        "deadline": None if deadline is None else _moment(deadline, call.now),
    }


def _moment(text: str, now: float) -> float:
    try:
        moment = loop_file.deadline_after(text, now)
    except ValueError as wrong:
        raise UsageError(f"--deadline {text[:40]!r} is no moment: write 07:30 or 2030-01-31T07:30") from wrong
    if moment <= now:
        raise UsageError(f"--deadline {text[:40]!r} is over already")
    return moment


def _duration(text: str | None) -> float:
    from untildone.core.durations import parse_duration

    return 0.0 if text is None else parse_duration(text, bare="minutes")


def _turns(given: "Typed", default: int) -> int:
    written = given.last("max")
    return default if written is None else _whole(written, "--max")


def _whole(text: str, option: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:6]) > 0 and len(text) <= 6):  # noqa: PLR2004 six digits
        raise UsageError(f"{option} needs a whole number above zero, not {text[:40]!r}")
    return int(text)


# --- what is said ----------------------------------------------------------------------------------------------


def _begun(call: "Call", entry: "Entry") -> "Answer":
    file = read_loop(entry)
    if file is None:
        raise UsageError(f"{entry['file']} cannot be read: look at it")
    mode, checks = entry["mode"], entry["checks"]
    line = command_words.set_up(
        file, mode=mode, checks=checks, capped=0 < block_cap(call.env) < file.max_iterations - 1
    )
    return _told(line, command_words.opening(file, mode=mode, checks=checks))


def _standing(call: "Call", entry: "Entry") -> str:
    held = {call.session: "holds this session", "": "waits for `/untildone:loop --adopt`"}
    left = ", which is not open: `/untildone:loop --adopt` takes it up here" if is_left(entry) else ""
    return command_words.standing(
        read_loop(entry),
        where=entry["file"],
        session=held.get(entry["session"], f"holds another session ({entry['session'][:8]}){left}"),
        failures=entry.get("failures", 0),
        checks=entry["checks"],
    )


def _only_said(line: str) -> "Answer":
    """A line for the person. Nothing goes to the model, so it costs nothing and is no turn."""
    return {"decision": "block", "reason": printable(f"untildone: {line}", lines=True)}


def _told(line: str, context: str) -> "Answer":
    """A line for the person, and what the model has to know."""
    return {
        "systemMessage": f"untildone: {one_line(line)}",
        "hookSpecificOutput": {"hookEventName": "UserPromptExpansion", "additionalContext": context},
    }
