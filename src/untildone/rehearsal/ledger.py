"""What the scripted model really served: the other side's books, to compare one's own with."""

import json
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from untildone.core.dataclass import dataclass
from untildone.errors import ConfigError

OK = 200
PATIENCE = 120.0
"""Seconds to wait for what a client does: a ceiling that only a failure reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """One answered request."""

    n: int
    """Number of the main request; 0 for side requests."""
    kind: Literal["main", "side"] = "main"
    message_id: str
    model: str
    input_tokens: int
    output_tokens: int
    """Of a cut reply: the share of it that was sent."""
    cache_read_tokens: int
    cache_write_tokens: int
    """Cache writes of both lifetimes."""
    complete: bool
    """False: the connection was dropped, or the client left, in mid-reply; or it was an error."""
    status: int
    at: float
    """Epoch seconds when the answer ended."""


class Ledger:
    """All answers, in the order they ended. Safe to use from several threads."""

    def __init__(self, path: Path | None = None) -> None:
        if path is not None:
            try:
                path.open("a").close()
            except OSError as trouble:
                raise ConfigError(f"{path}: cannot write a ledger there: {trouble.strerror}") from trouble
        self._path = path
        self._change = threading.Condition()
        self._lines: list[LedgerLine] = []

    def book(self, line: LedgerLine) -> None:
        """Add a line, and append it to the file if there is one."""
        with self._change:
            self._lines.append(line)
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(line)) + "\n")
            self._change.notify_all()

    def wait_for(self, count: int, timeout: float = PATIENCE) -> tuple[LedgerLine, ...]:
        """All lines, as soon as there are `count`; TimeoutError when they do not come."""
        with self._change:
            if not self._change.wait_for(lambda: len(self._lines) >= count, timeout):
                raise TimeoutError(f"{len(self._lines)} of {count} ledger lines came within {timeout} s")
            return tuple(self._lines)

    @property
    def lines(self) -> tuple[LedgerLine, ...]:
        """Everything so far."""
        with self._change:
            return tuple(self._lines)

    def served(self) -> tuple[LedgerLine, ...]:
        """Replies served in full: what must be paid for."""
        return tuple(line for line in self.lines if line.complete)

    def cut(self) -> tuple[LedgerLine, ...]:
        """Replies that began and did not reach their end."""
        return tuple(line for line in self.lines if not line.complete and line.status == OK)

    def to_json(self) -> str:
        """All lines as a JSON array."""
        return json.dumps([asdict(line) for line in self.lines])


def wall_clock() -> float:
    """Epoch seconds: the far side of the wire has its own clock."""
    return time.time()  # noqa: TID251 a server's books are not part of any run, whose clock is a port
