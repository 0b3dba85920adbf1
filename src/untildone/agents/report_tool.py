"""The tool by which the agent reports, and the two hooks that remind it to."""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, cast

from untildone.agents.stream import Line
from untildone.agents.task_tools import TaskCommand, task_tools
from untildone.agents.tool_detail import REPORT_TOOL
from untildone.core.claims import REPORT_SCHEMA, read_claim
from untildone.core.dataclass import dataclass
from untildone.core.reviewing import has_verdict

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions

SERVER = "untildone"
# Without alwaysLoad the model would see only the tool's name and would have to search for its schema.
MCP_CONFIG: dict[str, Any] = {"mcpServers": {SERVER: {"type": "sdk", "name": SERVER, "alwaysLoad": True}}}
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

    async def on_report(self, _arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the tool call; the report itself is read from the stream."""
        self.reported = True
        return {"content": [{"type": "text", "text": "noted"}]}

    async def on_stop(self, given: Any, _tool_use_id: str | None, _context: Any) -> dict[str, Any]:
        """Ask once for a report if there is no sign of one; whatever else happens, let the agent stop."""
        # A question takes a turn; where none is left it would turn a good end into a failure.
        has_turns = self.max_turns is None or len(self.messages) < self.max_turns
        if self.reported or self.asked or not has_turns or self._claims(given):
            return {}
        self.asked = True
        reminder = VERDICT_REMINDER if self.reviewing else REMINDER
        # A plain block would tell it twice, once of them as an error.
        return {"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": reminder}}

    async def on_compaction(self, _given: Any, _tool_use_id: str | None, _context: Any) -> dict[str, Any]:
        """Say the rules again when the conversation was cut down to a summary."""
        return {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": self.rules}}

    def _claims(self, given: Any) -> bool:
        message = given.get("last_assistant_message") if isinstance(given, dict) else None
        if not isinstance(message, str):
            return True  # nothing to judge by: do not stand in the way
        if self.reviewing:
            return has_verdict(message)
        return read_claim(message, None, signal=self.signal).form != "none"


def sdk_options(reminders: Reminders) -> "ClaudeAgentOptions":
    """Return what the SDK must serve: the tool and the hooks. Everything else is said on the command line."""
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, create_sdk_mcp_server, tool

    report = tool("report", DESCRIPTION, dict(REPORT_SCHEMA))(reminders.on_report)
    tools = [report, *(task_tools(reminders.tasks) if reminders.tasks else [])]
    # Typed loosely: the SDK's types leave out SessionStart, which it passes on like any other event.
    hooks: Any = {
        "Stop": [HookMatcher(hooks=[cast("Any", reminders.on_stop)], timeout=HOOK_TIMEOUT)],
        "SessionStart": [
            HookMatcher(matcher="compact", hooks=[cast("Any", reminders.on_compaction)], timeout=HOOK_TIMEOUT)
        ],
    }
    servers: Any = {} if reminders.reviewing else {SERVER: create_sdk_mcp_server(SERVER, tools=tools)}
    return ClaudeAgentOptions(mcp_servers=servers, hooks=hooks)
