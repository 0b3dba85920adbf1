"""Whether Claude has asked the model and still waits for the beginning of a reply."""

from collections.abc import Mapping

from untildone.agents.stream import Line


class Asking:
    """Follows the lines of one process. A request that is out when it is cut off may have been served unseen."""

    def __init__(self) -> None:
        self.awaits_reply: bool | None = None
        """None: the lines so far do not tell."""
        self._says_when_it_asks = False

    def reset(self) -> None:
        """Another conversation begins in the same process."""
        self.awaits_reply = False

    def hear(self, line: Line) -> None:
        """Take a line in."""
        kind = line.event.get("type") if isinstance(line.event, Mapping) else None
        if line.type == "system" and line.subtype == "status" and _status(line) == "requesting":
            self._says_when_it_asks = self.awaits_reply = True
        elif (
            line.type == "assistant"
            or (line.type == "stream_event" and kind in ("message_start", "message_stop"))
            or (line.type == "result" and line.terminal_reason == "aborted_tools")
        ):
            self.awaits_reply = False
        elif line.type == "user" and not self._says_when_it_asks:
            self.awaits_reply = None  # the answer of a tool, perhaps sent on already


def _status(line: Line) -> object:
    return line.data.get("status") if isinstance(line.data, Mapping) else None
