"""Before and after a tool call in a session that a loop holds: what is refused, and what is written down."""

from untildone.core.todos import one_line
from untildone.hook import register, spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from untildone.hook.answering import Answer, Call
    from untildone.hook.register import Entry

_EDITS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
_TODO_TOOLS = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate"})
_RISKY = (
    *("rm", "find", "git", "dd", "mkfs", "chmod", "chown", "chgrp", "/dev/", "(){", "() {", "curl", "wget", "fetch"),
    *("drop", "shutdown", "reboot", "poweroff", "halt", "wipefs", "disk", "parted", "crontab", "userdel", "kill"),
    *("redis-cli", "terraform", "pulumi", "kubectl", "aws", "gh ", "docker", "shred"),
)
"""A command without any of these breaks no rule of ours."""
_TIME_IS_UP = "stop now, without any further tool, and summarise what is done and what is left"


def on_pretooluse(call: "Call") -> "Answer":
    """Refuse what would undo the loop, or what cannot be undone."""
    entry = _holding(call)
    if entry is None:
        return None
    over = _time_is_up(entry, call.now)
    if over:
        return _refused(call, entry, f"{over}: {_TIME_IS_UP}")
    tool, given = call.text("tool_name"), call.event.get("tool_input")
    if not isinstance(given, dict):
        return None
    reason = _why_not_run(call, given)
    if not reason and any(name.endswith("path") for name in given):
        from untildone.hook.protecting import why_not_edit

        reason = why_not_edit(call, tool, given)
    return _refused(call, entry, f"untildone refuses this: {reason}") if reason else None


def on_posttooluse(call: "Call") -> "Answer":
    """One line, and Claude's own list of tasks where the call changed it."""
    entry = _holding(call)
    if entry is None:
        return None
    _tell_tool(call, entry, ok=True)
    if call.text("tool_name") in _TODO_TOOLS:
        from untildone.hook.todo_capture import capture

        capture(call)
    return None


def on_posttoolusefailure(call: "Call") -> "Answer":
    """The same for a call that failed."""
    entry = _holding(call)
    if entry is not None:
        _tell_tool(call, entry, ok=False)
    return None


def _holding(call: "Call") -> "Entry | None":
    """The loop that holds this session."""
    entry = register.find(call.home, call.project) if call.session else None
    return entry if entry is not None and entry.get("session") == call.session else None


def _tell_tool(call: "Call", entry: "Entry", *, ok: bool) -> None:
    tool, detail = one_line(call.text("tool_name")), one_line(_detail(call.event.get("tool_input")))
    told = {"tool": tool, "ok": ok, "edit": tool in _EDITS, "detail": detail}
    spool.tell(call.home, entry["loop"], "tool", call.now, session=call.session, **told)


def _time_is_up(entry: "Entry", now: float) -> str | None:
    from untildone.hook.limiting import time_is_up
    from untildone.hook.loop_reading import read_loop

    file = read_loop(entry)
    return None if file is None else time_is_up(entry, file, now)


def _refused(call: "Call", entry: "Entry", reason: str) -> "Answer":
    tool, detail = one_line(call.text("tool_name")), one_line(_detail(call.event.get("tool_input")))
    spool.tell(
        call.home, entry["loop"], "refused", call.now, session=call.session, tool=tool, detail=detail, why=reason
    )
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }
    }


def _detail(given: object) -> str:
    if not isinstance(given, dict):
        return ""
    named = (given.get(name) for name in ("command", "file_path", "notebook_path"))
    return next((value for value in named if isinstance(value, str)), "")


# --- commands ----------------------------------------------------------------------------------------------------


def _why_not_run(call: "Call", given: "Mapping[str, object]") -> str:
    """Why a shell command must not be run; whatever tool runs one, it is called `command` there."""
    command = given.get("command")
    if not isinstance(command, str):
        return ""
    import os

    from untildone.hook.protecting import own_settings, why_not_run

    reason = why_not_run(call, command)

    if reason or not (_is_risky(command) or os.path.exists(own_settings(call.env))):
        return reason
    from untildone.core.forbidden import Places, why_forbidden
    from untildone.hook.own_rules import own_rules

    home = os.path.realpath(call.env.get("HOME") or os.path.expanduser("~"))
    places = Places(call.project, home, os.path.realpath(call.text("cwd") or call.project))
    rules = own_rules(call.home, call.env)
    found = why_forbidden(command, places, rules.deny, rules.allow)
    return (
        f"{found}. Find a way that can be undone, or report BLOCKED and say what the user should run" if found else ""
    )


def _is_risky(command: str) -> bool:
    bare = command.casefold()
    return any(word in bare for word in _RISKY)
