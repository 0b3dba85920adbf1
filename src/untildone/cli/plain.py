"""Progress as plain lines, for pipes, files and CI logs, and for terminals that can do no more."""

from datetime import UTC, datetime
from types import TracebackType
from typing import Self, TextIO

from untildone.cli.lines import Tone, is_worth_a_line, tone
from untildone.core import trace as tr
from untildone.core.events import Record
from untildone.core.lines import event_line
from untildone.core.printable import printable

_COLOURS: dict[Tone, str] = {"good": "32", "bad": "31", "warn": "33", "quiet": "2", "head": "1"}
_BOOKED = (tr.AgentSession, tr.AgentStarted)


class PlainLines:
    """Writes one line for each thing that happens; with `verbose`, tools and the agent's words too."""

    def __init__(self, stream: TextIO, *, verbose: bool = False, colour: bool = False) -> None:
        self._stream = stream
        self._verbose = verbose
        self._colour = colour
        self._gone = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def on_record(self, record: Record) -> None:
        """Write what this record is worth. Never raises: a reader that went away must not end the run."""
        if self._gone:
            return
        try:
            for line in self._lines(record):
                self._write(record, line)
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._gone = True

    def _lines(self, record: Record) -> list[str]:
        event = record.event
        if not is_worth_a_line(event) and not (self._verbose and not isinstance(event, _BOOKED)):
            return []
        if isinstance(event, tr.AgentMessage):
            text = printable(event.text, lines=True).strip()
            return [f"  {line}".rstrip() for line in text.split("\n")] if text else []
        line = event_line(record)
        indent = "  " if isinstance(event, tr.AgentEvent) else ""
        return [indent + line] if line else []

    def _write(self, record: Record, line: str) -> None:
        moment = datetime.fromtimestamp(record.at, UTC).astimezone()
        colour = _COLOURS.get(tone(record.event)) if self._colour else None
        said = f"\x1b[{colour}m{line}\x1b[0m" if colour else line
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(f"{moment:%H:%M:%S} {said}\n".encode(encoding, "replace").decode(encoding))
