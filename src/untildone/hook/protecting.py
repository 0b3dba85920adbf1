"""What an agent must not touch while a loop holds it: the loop's own state, its contract, what makes the hooks run."""

import os

from untildone.core.shell_walk import Walk, is_wild, lies_above, lies_in, normal
from untildone.hook.places import AUTONOMOUS, CONTINUATION, DEVTEAM, LOOP
from untildone.hook.sealing import KEY_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from untildone.core.shell_line import Simple
    from untildone.hook.answering import Call

CONTRACT = "untildone.toml"
PYPROJECT = "pyproject.toml"
_TABLE = "tool.untildone"
_EDITS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
_KEYS = (KEY_FILE, "seal.key")
_PATHS = ("file_path", "notebook_path", "path", "destination", "target_file")
"""What tools call the file they work on."""
_LOOKING = ("read", "get", "list", "search", "find", "view", "info")
"""In the name of a tool of somebody else: it only looks."""

STATE = "that is the loop's own state: it is changed by the user, or by `untildone task …` for tasks"
LAW = "that is what the work is judged by: if it is wrong, say so and report BLOCKED instead of changing it"
RUNS = "that decides whether the hooks of this loop run: it is the user's, and stays as it is until the loop is over"
OPERATOR = "only the user starts, stops or changes loops and runs: go on with the work, or report BLOCKED"

_MARKS = (
    *((mark, STATE) for mark in (".untildone", ".stravinsky", ".multi-agent", "devteam.db")),
    *((mark, STATE) for mark in ("state/untildone", "config/untildone")),
    *((mark, LAW) for mark in (CONTRACT, _TABLE)),
    *((mark, RUNS) for mark in (".claude/settings", ".claude/commands/untildone")),
)
"""A word with one of these is about something of ours, however it goes on."""
_IN_CODE = ((KEY_FILE, STATE), ("untildone.hook", STATE), ("loop.md", STATE), ("tasks.db", STATE))
"""The same in a program that stands on the command line itself."""


# --- places ------------------------------------------------------------------------------------------------------


def _places(call: "Call") -> "list[tuple[str, str]]":
    """Everything of ours on this machine, and why it is to be left alone."""
    home = _home(call)
    found = [(call.home, STATE), (os.path.dirname(own_settings(call.env)), STATE)]
    found += [(os.path.join(home, name, "untildone"), STATE) for name in (".local/state", ".config")]
    for folder in {os.path.join(home, ".claude"), call.env.get("CLAUDE_CONFIG_DIR") or ""} - {""}:
        found += _settings_in(folder)
    roots = {call.project, call.env.get("CLAUDE_PROJECT_DIR") or call.project}
    for root in roots:
        ours = (os.path.dirname(LOOP), os.path.dirname(AUTONOMOUS), CONTINUATION, DEVTEAM)
        found += [(os.path.join(root, name), STATE) for name in ours]
        found += [(os.path.join(root, CONTRACT), LAW), *_settings_in(os.path.join(root, ".claude"))]
    program = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not any(lies_in(normal(program), normal(root)) for root in roots):  # there it is what is worked on
        found.append((program, RUNS))
    return [(normal(way), why) for place, why in found for way in {place, os.path.realpath(place)}]


def _home(call: "Call") -> str:
    return call.env.get("HOME") or os.path.expanduser("~")


def _settings_in(folder: str) -> "list[tuple[str, str]]":
    """What in a folder of Claude Code says which hooks run and what our commands are."""
    names = ("settings.json", "settings.local.json", "commands/untildone")
    return [(os.path.join(folder, name), RUNS) for name in names]


def own_settings(env: "Mapping[str, str]") -> str:
    """The user's own settings file."""
    base = env.get("XDG_CONFIG_HOME") or ""
    if not base.startswith("/"):
        base = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(base, "untildone", "config.toml")


# --- files -------------------------------------------------------------------------------------------------------


def why_not_edit(call: "Call", tool: str, given: "Mapping[str, object]") -> str:
    """Why a tool must not be used on this file; nothing where it may."""
    changes = tool in _EDITS or (tool.startswith("mcp__") and not any(word in tool.lower() for word in _LOOKING))
    for path in (value for name, value in given.items() if name in _PATHS and isinstance(value, str)):
        at_home = _home(call) + path[1:] if path == "~" or path.startswith("~/") else path
        whole = os.path.join(call.text("cwd") or call.project, at_home)
        if os.path.basename(whole) in _KEYS:
            return STATE
        reason = _why_not_change(call, tool, whole, given) if changes else ""
        if reason:
            return reason
    return ""


def _why_not_change(call: "Call", tool: str, path: str, given: "Mapping[str, object]") -> str:
    places = _places(call)
    # As it is written and as links lead it: neither may end in a place of ours.
    for way in {normal(path), normal(os.path.realpath(path))}:
        for place, why in places:
            if lies_in(way, place):
                return why
    if os.path.basename(path).casefold() == PYPROJECT:
        from untildone.hook.contract_edits import changes_contract

        return LAW if changes_contract(path, tool, given) else ""
    return ""


# --- commands ----------------------------------------------------------------------------------------------------


def why_not_run(call: "Call", command: str) -> str:
    """Why a line of shell must not be run; nothing where it may."""
    from untildone.core.shell_line import LONGEST, simple_commands

    if any(mark in command[LONGEST:].casefold() for mark, _ in _MARKS):
        return f"{STATE}; and nobody reads a command of more than {LONGEST} characters to its end"
    return _Line(call).why_not(simple_commands(command))


class _Line:
    """One line of shell, read for what of ours it would change."""

    def __init__(self, call: "Call") -> None:
        self._walk = Walk(call.text("cwd") or call.project, call.env)
        self._places = _places(call)
        self._project = call.project
        self._marks = (*_MARKS, *((place.casefold(), why) for place, why in self._places if place.count("/") > 1))

    def why_not(self, commands: "list[Simple]") -> str:
        from untildone.core.shell_line import SHELLS, simple_commands
        from untildone.hook.steering import is_program, steers

        upstream: list[str] = []
        for command in sorted(commands, key=lambda each: each.at):
            known = self._walk.step(command)
            upstream = upstream if known.piped else []
            if steers(known, upstream):
                return OPERATOR
            runs = known.piped and (known.program in SHELLS or is_program(known.program))
            reason = self._why_not(known, upstream if known.more or runs else [])
            if not reason and runs and upstream and known.program in SHELLS:
                reason = self.why_not(simple_commands(" ".join(upstream), 1))
            if reason:
                return reason
            upstream = [*upstream, *known.words[1:]]
        return ""

    def _why_not(self, command: "Simple", upstream: "Sequence[str]") -> str:
        if any(key in word for word in command.words for key in _KEYS):
            return STATE
        from untildone.hook.steering import changed_words, is_program

        changed = changed_words(command)
        if changed and upstream:
            changed = [*changed, *upstream]
        reasons = [self._about(word, command) for word in (*command.writes, *changed)]
        if changed:
            reasons.append(self._here(command))
        if is_program(command.program):
            said = " ".join((*changed, command.fed)).casefold()
            reasons += [why for mark, why in (*_IN_CODE, *self._marks) if mark in said]
        if command.program in {"rm", "mv"}:
            reasons += [self._above(word, command) for word in command.operands()]
        if command.program == "find" and changed:
            from untildone.hook.searching import finds

            reasons += [why for place, why in self._places if finds(command, self._walk, place)]
        return next(filter(None, reasons), "")

    def _here(self, command: "Simple") -> str:
        """Whatever is done in a place of ours is done to it."""
        here = self._walk.folder(command.scope)
        return next((why for place, why in self._places if lies_in(here, place)), "")

    def _about(self, word: str, command: "Simple") -> str:
        bare = word.casefold()
        named = next((why for mark, why in self._marks if mark in bare), "")
        return named or next((why for path in self._ways(word, command) for why in self._hits(path, command)), "")

    def _ways(self, word: str, command: "Simple") -> "Iterator[str]":
        """Every path a word may mean: as it is written, behind an equals sign, and as links lead it."""
        for part in {word, word.partition("=")[2]} - {""}:
            for path in self._walk.paths(part, command.scope):
                yield path
                if not is_wild(path) and os.path.lexists(path):
                    yield normal(os.path.realpath(path))

    def _hits(self, path: str, command: "Simple") -> "Iterator[str]":
        for place, why in self._places:
            # Of a pattern only what is there is meant; most of them mean the user's files, and the contract beside.
            is_meant = not is_wild(path) or (os.path.lexists(place) and (why != LAW or command.program in _CHANGERS))
            if is_meant and lies_in(path, place):
                yield why

    def _above(self, word: str, command: "Simple") -> str:
        """What takes a folder away takes away what lies in it."""
        for path in self._walk.paths(word, command.scope):
            found = (why for place, why in self._places if lies_above(path, place) and os.path.lexists(place))
            reason = next(found, "")
            if reason:
                return reason
        return ""


_CHANGERS = frozenset({"rm", "mv", "cp", "sed", "perl", "tee", "truncate", "shred", "unlink", "ed", "ex", "chmod"})
