"""What an agent must not touch while a loop holds it: the loop's own state, its contract, the operator's commands."""

import os

from untildone.hook.places import AUTONOMOUS, CONTINUATION, DEVTEAM, LOOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from untildone.core.shell_line import Simple
    from untildone.hook.answering import Call

CONTRACT = "untildone.toml"
PYPROJECT = "pyproject.toml"
_TABLE = "tool.untildone"
_EDITS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
_FOLDERS = (os.path.dirname(LOOP), os.path.dirname(AUTONOMOUS))
_FILES = (CONTINUATION, DEVTEAM, CONTRACT)
_MARKS = (".untildone", ".stravinsky", ".multi-agent", "devteam.db", CONTRACT, "untildone/loops", _TABLE)
"""A command without any of these, or of the places of this machine, is about nothing of ours."""
_READERS = frozenset(
    {
        *("cat", "head", "tail", "less", "more", "bat", "nl", "tac", "wc", "file", "stat", "ls", "tree", "du", "echo"),
        *("grep", "egrep", "fgrep", "rg", "ag", "diff", "cmp", "comm", "cut", "uniq", "tr", "jq", "yq", "xxd", "od"),
        *("test", "[", "[[", "printf", "readlink", "realpath", "basename", "dirname", "cd", "pushd", "strings"),
        *("md5sum", "sha1sum", "sha256sum", "cksum", "hexdump", "true", "false", "pwd", "untildone"),
    }
)
_HARMLESS_GIT = frozenset(
    {"status", "diff", "log", "show", "ls-files", "check-ignore", "blame", "grep", "add", "commit"}
)
_SEES = frozenset(
    {
        "task",
        "ask",
        "status",
        "ls",
        "log",
        "brief",
        "replay",
        "doctor",
        "config",
        "completion",
        "--help",
        "-h",
        "--version",
    }
)
_SEES_OF = {"loop": frozenset({"status", "history", "templates"}), "plugin": frozenset({"status"})}
_LAUNCHERS = frozenset({"untildone", "uv", "uvx", "pipx", "sh", "bash", "claude"})
_BEFORE_NAME = 6

STATE = "that is the loop's own state: it is changed by the user, or by `untildone task …` for tasks"
LAW = "that is what the work is judged by: if it is wrong, say so and report BLOCKED instead of changing it"
OPERATOR = "only the user starts, stops or changes loops and runs: go on with the work, or report BLOCKED"


def why_not_edit(call: "Call", tool: str, given: "Mapping[str, object]") -> str:
    """Why this file must not be edited; nothing where it may."""
    path = given.get("notebook_path" if tool == "NotebookEdit" else "file_path")
    if tool not in _EDITS or not isinstance(path, str):
        return ""
    path = os.path.join(call.text("cwd") or call.project, os.path.expanduser(path))
    # As it is written and as links lead it: neither may end in a place of ours.
    reason = _judged(call, os.path.normpath(path)) or _judged(call, os.path.realpath(path))
    if not reason and os.path.basename(path).casefold() == PYPROJECT:
        from untildone.hook.contract_edits import changes_contract

        return LAW if changes_contract(path, tool, given) else ""
    return reason


def _judged(call: "Call", path: str) -> str:
    bare = path.casefold()
    for root in {call.project, os.path.normpath(call.env.get("CLAUDE_PROJECT_DIR") or call.project)}:
        base = root.casefold()
        if any(_is_in(bare, f"{base}/{name}") for name in (*_FOLDERS, CONTINUATION, DEVTEAM)):
            return STATE
        if bare == f"{base}/{CONTRACT}":
            return LAW
    own = {call.home, os.path.realpath(call.home), os.path.dirname(own_settings(call.env))}
    return STATE if any(_is_in(bare, folder.casefold()) for folder in own) else ""


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def own_settings(env: "Mapping[str, str]") -> str:
    """The user's own settings file."""
    base = env.get("XDG_CONFIG_HOME") or ""
    if not base.startswith("/"):
        base = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(base, "untildone", "config.toml")


# --- commands ----------------------------------------------------------------------------------------------------


def is_suspect(call: "Call", command: str) -> bool:
    """Whether a command is worth taking apart on our account."""
    bare = command.casefold()
    return any(mark in bare for mark in (*_MARKS, "untildone", "claude plugin", *_own_places(call)))


def _own_places(call: "Call") -> "tuple[str, ...]":
    return call.home.casefold(), os.path.dirname(own_settings(call.env)).casefold()


def why_not_run(call: "Call", commands: "list[Simple]") -> str:
    """Why these must not be run; nothing where they may."""
    marks = (*_MARKS, *_own_places(call))
    for command in commands:
        if _steers(command):
            return OPERATOR
        for written in (*command.writes, *_written(command)):
            if _names(written, marks):
                return LAW if CONTRACT in written.casefold() or _TABLE in written.casefold() else STATE
    return ""


def _names(word: str, marks: "tuple[str, ...]") -> bool:
    bare = word.casefold()
    return any(mark in bare for mark in marks)


def _written(command: "Simple") -> "list[str]":
    """The words through which a command may change something: none of a program that only reads."""
    program, words = command.program, command.words[1:]
    if program in _READERS or (program == "git" and _HARMLESS_GIT & set(words)):
        return []
    if program in {"sed", "awk", "gawk"}:  # the program text itself can name a file to write
        return words if command.has("i", "--in-place") else command.operands()[:1]
    if program == "sort":
        return words if command.has("o", "--output") else []
    if program == "find":
        return words if {"-delete", "-exec", "-execdir", "-ok", "-fprint"} & set(words) else []
    if program in {"cp", "install", "rsync", "scp"} and not command.has(
        "t", "--target-directory", "--remove-source-files"
    ):
        return words[-1:]
    return command.words  # of everything else it is not known


def _steers(command: "Simple") -> bool:
    """Whether it is a command of the operator's: those that only look, and `task` and `ask`, are everybody's."""
    program = command.program
    if program == "claude":
        return command.words[1:2] == ["plugin"] and command.words[2:3] not in (["list"], ["validate"], [])
    if program not in _LAUNCHERS and not program.startswith("python"):
        return False
    names = [word.rpartition("/")[2] for word in command.words[:_BEFORE_NAME]]
    if "untildone" not in names:
        return False
    at = names.index("untildone")
    if program in {"sh", "bash"} and at != 1:
        return False
    words = command.words[at + 1 :]
    verb = words[0] if words else "--help"
    if verb in _SEES_OF:
        return bool(words[1:2]) and words[1] not in _SEES_OF[verb] | {"--help", "-h"}
    return verb not in _SEES
