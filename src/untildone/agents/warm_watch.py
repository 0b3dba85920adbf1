"""How long to wait for what, while an iteration runs in a warm process. No clock of its own."""

from untildone.agents.conversation import Conversation
from untildone.agents.stream import Line
from untildone.core.dataclass import dataclass

STEP = 0.5
"""Seconds between two requests to end the turn, and for a stopped task to be gone when somebody is waiting."""
GLANCE = 0.1
"""Seconds from a result to the word that Claude is idle: a task stopped before it leaves no later sign of rest."""
SETTLE = 5.0
"""Seconds stopped tasks may take to be gone, their farewell turns not counted."""
SILENT_SETTLE = 1.0
"""Seconds to wait for more after a result of a Claude that does not report its state."""
MOST_REQUESTS = 3
"""Requests to end a turn before the process is given up."""


@dataclass(slots=True)
class Watch:
    """What was seen of this iteration, as far as waiting is concerned."""

    grace: float
    """Seconds background tasks may go on after the agent's last word."""
    asked_at: float | None = None
    """When somebody asked to end the iteration."""
    gave_up: bool = False
    """It was ourselves, because Claude waits too long between two tries; nobody else asked since."""
    discard: bool = False
    """Whoever asked wants the process gone as well."""
    requests: int = 0
    """How often Claude was asked again to end the turn."""
    tasks_stopped: bool = False
    in_turn: bool = False
    """The main conversation is speaking or using tools."""
    reports_state: bool = False
    quiet_since: float = 0.0
    own_wait_ends: float = 0.0
    """When Claude tries a failed request again: until then its silence says nothing."""

    def saw(self, line: Line, now: float) -> None:
        """Take note of a line."""
        if line.type == "result":
            self.in_turn, self.quiet_since = False, now
        elif line.type in ("assistant", "stream_event") and line.parent_tool_use_id is None:
            self.in_turn = True
        elif line.subtype == "session_state_changed":
            self.reports_state = True

    def resting(self, conversation: Conversation) -> bool:
        """Whether the agent has said its last word, for all we know."""
        return conversation.result_seen and not self.in_turn

    def deadline(self, conversation: Conversation) -> float | None:
        """When something has to be done about the silence; None: never."""
        if not self.resting(conversation):
            return None if self.asked_at is None else self.asked_at + STEP * (self.requests + 1)
        hurried = self.asked_at is not None
        if self.tasks_stopped:
            return self.quiet_since + (STEP if hurried else SETTLE)
        if conversation.live_tasks:
            return self.quiet_since + (GLANCE if hurried else self.grace)
        if not self.reports_state:
            return self.quiet_since + SILENT_SETTLE
        return self.quiet_since + (STEP if hurried else max(self.grace, SETTLE))
