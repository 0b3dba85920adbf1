"""From an event to an answer: who handles it, and what happens when anything goes wrong, which is nothing."""

import os
import sys

from untildone.hook import plain_json
from untildone.hook.places import project_of, state_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Answer = dict[str, Any] | None
    Handler = Callable[["Call"], Answer]

_LONGEST_INPUT = 64 << 20
_OUTER = "UNTILDONE_RUN"
"""Set inside a run of `untildone run`, where the outer loop decides."""
_OWN = "Deliver"
"""An event of our own."""
_HOMES = {
    "Stop": "stopping",
    "StopFailure": "stopping",
    "UserPromptSubmit": "prompting",
    "SessionStart": "prompting",
    "UserPromptExpansion": "commanding",
    "PreToolUse": "tools",
    "PostToolUse": "tools",
    "PostToolUseFailure": "tools",
    _OWN: "notifying",
}
"""The module of each event; its function is named `on_<event in lower case>`."""


class Call:
    """One hook being called."""

    def __init__(self, event: "Mapping[str, Any]", env: "Mapping[str, str]", now: float) -> None:
        self.event = event
        self.env = env
        self.now = now
        self.project = project_of(event, env)
        self.home = state_home(env)
        session = event.get("session_id")
        self.session = session if isinstance(session, str) else ""

    def text(self, name: str) -> str:
        """A field of the event that should be text."""
        value = self.event.get(name)
        return value if isinstance(value, str) else ""


def answer_hook(event_name: str) -> None:
    """Read the event, answer it. Whatever goes wrong, Claude Code goes on as if we were not there."""
    try:
        given = plain_json.parse(sys.stdin.buffer.read(_LONGEST_INPUT).decode("utf-8", "replace"))
        if not isinstance(given, dict):
            return
        import time

        call = Call(given, os.environ, time.time())  # noqa: TID251 the edge of its own small world
        if call.env.get(_OUTER) and event_name != _OWN and not _is_held(call):
            return
        said = _handler(event_name)(call)
        if said:
            sys.stdout.write(plain_json.render(said) + "\n")
            sys.stdout.flush()
    except BaseException as trouble:  # noqa: BLE001 fails open, always
        _note(event_name, trouble)
        if event_name == "Stop" and isinstance(trouble, OSError):
            _tell(trouble)


def _is_held(call: Call) -> bool:
    """Whether a loop holds this session: then no variable frees it."""
    from untildone.hook import register

    entry = register.find(call.home, call.project)
    return entry is not None and bool(call.session) and entry.get("session") == call.session


def _handler(event_name: str) -> "Handler":
    name = f"untildone.hook.{_HOMES[event_name]}"
    __import__(name)  # `importlib` would load `warnings` first
    handler: Handler = getattr(sys.modules[name], f"on_{event_name.lower()}")
    return handler


def _tell(trouble: OSError) -> None:
    """A session that just stops would look done. The disk is full or a folder read-only: the user can mend that."""
    try:
        from untildone.core.printable import one_line

        why = ": ".join(str(part) for part in (trouble.strerror or str(trouble), trouble.filename) if part)
        said = (
            f"untildone: this stop could not be decided ({why}); the loop stays: mend that, then say anything to go on"
        )
        sys.stdout.write(plain_json.render({"systemMessage": one_line(said)}) + "\n")
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001, S110 there is nobody left to tell
        pass


def _note(event_name: str, trouble: BaseException) -> None:
    """Into a log of our own: the screen belongs to the user."""
    try:
        import traceback

        from untildone.hook.files import append_line

        path = os.path.join(state_home(os.environ), "hook.log")
        if os.path.exists(path) and os.path.getsize(path) > 1 << 20:
            os.replace(path, path + ".1")
        append_line(path, f"{event_name}: {''.join(traceback.format_exception(trouble)).rstrip()}")
    except BaseException:  # noqa: BLE001, S110 there is nobody left to tell
        pass
