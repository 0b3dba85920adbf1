"""The tool by which the agent reports, and the two hooks that remind it to."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from untildone.agents.control import Hook
from untildone.agents.own_tools import OwnTool, OwnTools
from untildone.agents.stream import Line
from untildone.agents.task_tools import TaskCommand, task_tools
from untildone.agents.tool_detail import REPORT_TOOL
from untildone.core.claims import REPORT_SCHEMA, read_claim
from untildone.core.dataclass import dataclass
from untildone.core.reviewing import has_verdict

DESCRIPTION = (
    "Report where the work stands, as the last thing you do before you stop. "
    "Call it once, with what is really true: the loop checks it."
)
REMINDER = (
    f"You are about to stop without a report. Call the `{REPORT_TOOL}` tool now, or end your message with the "
    "LOOP_STATUS block the instructions describe, to say where the work stands. Do not start new work."
)
VERDICT_REMINDER = (
    "You are about to stop without a verdict. Write one last message that holds all your findings and ends with the "
    "line your instructions describe. Do not look any further."
)
HOOK_TIMEOUT = 5.0


@dataclass(slots=True, kw_only=True)
class Reminders:
    """What this iteration has reported and been asked so far."""

    rules: str
    signal: str
    max_turns: int | None = None
    reviewing: bool = False
    """A verdict is expected instead of a report."""
    tasks: TaskCommand | None = None
    """What the tools for tasks do; None: there are none."""
    reported: bool = False
    asked: bool = False
    messages: set[str] = field(default_factory=set)
    """Ids of the agent's own messages: each is a turn."""

    def begin(self) -> None:
        """Start a new iteration."""
        self.reported = self.asked = False
        self.messages.clear()

    def hear(self, line: Line) -> None:
        """Count the turns."""
        if line.type == "assistant" and line.parent_tool_use_id is None and isinstance(line.message, Mapping):
            self.messages.add(str(line.message.get("id")))

    async def on_report(self, _given: Mapping[str, Any]) -> str:
        """Answer the tool call; the report itself is read from the stream."""
        self.reported = True
        return "noted"

    def on_stop(self, given: Any) -> dict[str, Any]:
        """Ask once for a report if there is no sign of one; whatever else happens, let the agent stop."""
        # A question takes a turn; where none is left it would turn a good end into a failure.
        has_turns = self.max_turns is None or len(self.messages) < self.max_turns
        if self.reported or self.asked or not has_turns or self._claims(given):
            return {}
        self.asked = True
        reminder = VERDICT_REMINDER if self.reviewing else REMINDER
        # A plain block would tell it twice, once of them as an error.
        return {"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": reminder}}

    def on_compaction(self, _given: Any) -> dict[str, Any]:
        """Say the rules again when the conversation was cut down to a summary."""
        return {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": self.rules}}

    def _claims(self, given: Any) -> bool:
        message = given.get("last_assistant_message") if isinstance(given, dict) else None
        if not isinstance(message, str):
            return True  # nothing to judge by: do not stand in the way
        if self.reviewing:
            return has_verdict(message)
        return read_claim(message, None, signal=self.signal).form != "none"


def hooks_of(reminders: Reminders) -> tuple[Hook, ...]:
    """What Claude Code asks before it goes on."""
    return (
        Hook(event="Stop", answer=reminders.on_stop, timeout=HOOK_TIMEOUT),
        Hook(event="SessionStart", matcher="compact", answer=reminders.on_compaction, timeout=HOOK_TIMEOUT),
    )


def tools_of(reminders: Reminders) -> OwnTools | None:
    """What the agent can call; a reviewer has nothing to report."""
    if reminders.reviewing:
        return None
    report = OwnTool(name="report", about=DESCRIPTION, schema=REPORT_SCHEMA, call=reminders.on_report)
    return OwnTools([report, *(task_tools(reminders.tasks) if reminders.tasks else [])])
