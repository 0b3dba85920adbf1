"""What a slash command says: to the model, which has to work on it, and to the person who typed it."""

from untildone.core.printable import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from untildone.core.loop_file import LoopFile

_GOAL_WIDTH = 200
_LINE_WIDTH = 120

TASKS = """\
Tasks change only through this command, which you run with Bash:
  untildone task add TITLE [--depends ID]   note a task
  untildone task plan ID... --sprint N      put tasks into a sprint
  untildone task start ID                   before you work on it
  untildone task done ID                    after you have checked that it is done
  untildone task fail ID --note WHY         when an attempt failed
  untildone task ls                         what there is, and how it stands"""

_GOES_ON = "Each time you finish, you are asked to go on, until the goal is reached or a limit is."

QUESTIONS = """\
Nobody is here to answer. Decide yourself, say which assumption you made, and go on. What a human must know or decide
later, leave with `untildone ask "QUESTION"`: it is kept, and you go on without waiting."""

_BLOCKED = """\
If only a human can help, end your turn with a LOOP_STATUS block that says STATUS: BLOCKED, and why. The files of the
loop under .untildone/ belong to the user: read them if you like, never change them."""


_LIMITS = "[--max N] [--check CMD] [--time 2h | --minutes N] [--deadline 07:30]"
_USAGE = {
    "loop": f"GOAL {_LIMITS} [--promise TEXT] [--turn-time 20m] [--tasks FILE] [--next GOAL] [--template NAME] "
    "[--from-todos] [--milestone N] [--notify URL]\n  or: /untildone:loop --adopt",
    "cancel": "",
    "status": "",
    "implement": f"[WHAT] {_LIMITS}",
    "sprint": f"[all | SPRINT] [--autonomous {_LIMITS}]",
    "ask": "[QUESTION]",
}


def usage(name: str) -> str:
    """How a command is typed."""
    typed = _USAGE.get(name.rpartition(":")[2], "")
    return f"/{name} {typed}".strip() + "\n  words that begin with -- and belong to the text go into quotes"


def opening(file: "LoopFile", *, mode: str, checks: "Sequence[str]") -> str:
    """What the model is told when a loop holds its session: by a command of the user, not by its own choice."""
    turns = "turn" if file.max_iterations == 1 else "turns"
    begins = f"Turn {max(1, file.iteration)} of at most {file.max_iterations} {turns} begins now."
    parts = [
        f"untildone: the user has set up a loop for this session. {begins} {_GOES_ON}",
        f"GOAL\n{file.body.strip()}",
        _ends(file.promises, mode),
    ]
    if checks:
        listed = "\n".join(f"  {check}" for check in checks)
        parts.append(f"Before your word is believed these commands are run, and each has to pass:\n{listed}")
    if mode == "autonomous":
        parts.append(TASKS)
    return "\n\n".join([*parts, QUESTIONS, _BLOCKED])


def _ends(promises: "Sequence[str]", mode: str) -> str:
    """How to say that it is done."""
    last = "write alone on the last line of your message"
    if mode == "autonomous":
        how = f"{last}:\n  EXIT_SIGNAL: true\nIt is believed only when no task is open any more."
    elif promises:
        listed = "\n  or\n".join(f"  {promise}" for promise in promises)
        how = f"{last}, exactly:\n{listed}"
    else:
        how = f"{last}:\n  EXIT_SIGNAL: true"
    return f"When the WHOLE goal is reached and you have verified it yourself, and only then, {how}"


def set_up(file: "LoopFile", *, mode: str, checks: "Sequence[str]", capped: bool) -> str:
    """The same for the person, in a line."""
    until = " or ".join(f'"{promise}"' for promise in file.promises) if mode != "autonomous" else ""
    parts = [
        f"the loop holds this session: at most {file.max_iterations} turn{'s' if file.max_iterations > 1 else ''}",
        f"until it says {until}" if until else "until it says EXIT_SIGNAL: true",
        f"{len(checks)} check{'s' if len(checks) > 1 else ''} before that is believed" if checks else "",
        "/untildone:cancel ends it",
        "Claude Code itself ends a turn after 8 stops without a tool call: `untildone plugin install` lifts that"
        if capped
        else "",
    ]
    return one_line(", ".join(filter(None, parts)))


def standing(file: "LoopFile | None", *, where: str, session: str, failures: int, checks: "Sequence[str]") -> str:
    """Where a loop stands, for people; `session` says whom it holds."""
    if file is None:
        return f"the loop of this folder cannot be read: look at {where}"
    lines = [
        f"turn {max(1, file.iteration)} of {file.max_iterations}, {session}" + ("" if file.active else ", called off"),
        f"goal: {one_line(file.body, _GOAL_WIDTH)}",
        *(f"promise: {one_line(promise, _LINE_WIDTH)}" for promise in file.promises),
        *(f"check: {one_line(check, _LINE_WIDTH)}" for check in checks),
        *([f"failures in a row at the same point: {failures}"] if failures else ()),
        f"state file: {where}",
    ]
    return "\n  ".join(lines)
