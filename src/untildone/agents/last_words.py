"""What an agent said after its loop had died, as far as its guard could write it down."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from untildone.agents.asking import Asking
from untildone.agents.conversation import Conversation
from untildone.agents.prices import dollars
from untildone.agents.stream import Line, StreamParser
from untildone.agents.transcripts import TranscriptLedger
from untildone.agents.wire_notes import WireNotes
from untildone.core.events import Event
from untildone.core.trace import AgentReply, AgentReplyStarted, AgentSession
from untildone.ports import LastWords, Passed

_CHUNK = 1 << 18


class ClaudeLedger(TranscriptLedger):
    """Knows the transcripts, and what guards of killed loops wrote down."""

    def __init__(self, config_dir: Path, last_words: Path, notes: WireNotes | None = None) -> None:
        """`notes`: of what passes the door, where the agent may be in a sandbox."""
        super().__init__(config_dir)
        self._last_words = last_words
        self._notes = notes

    def last_words(self, run_id: str, iteration_num: int) -> LastWords:
        """All that concerns the books. Never raises for what stands in the files, or when one cannot be read."""
        said = LastWords()
        for path in self._words_of(run_id):
            hearing = _Hearing(iteration_num, self.config_dir)
            with contextlib.suppress(OSError):
                for line in _lines(path):
                    hearing.hear(line)
                heard = hearing.words()
                said = replace(heard, replies=(*said.replies, *heard.replies))
        return said

    def forget_last_words(self, run_id: str) -> None:
        """Remove them: they are in the books."""
        for path in self._words_of(run_id):
            with contextlib.suppress(OSError):
                path.unlink()
        if self._notes is not None:
            self._notes.forget_all()

    def passed(self) -> Passed | None:
        """What passed the door."""
        return None if self._notes is None else self._notes.passed()

    def forget_passed(self) -> None:
        """Forget what was asked for last."""
        if self._notes is not None:
            self._notes.forget()

    def _words_of(self, run_id: str) -> list[Path]:
        """The newest last."""
        found = [path for path in self._last_words.glob("*.jsonl") if path.name.rpartition("-")[0] == run_id]
        return sorted((path for path in found if path.is_file()), key=lambda path: path.stat().st_mtime_ns)


def _lines(path: Path) -> Iterator[Line]:
    parser = StreamParser()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield from (line for line in parser.feed(chunk) if isinstance(line, Line))
    yield from (line for line in parser.finish() if isinstance(line, Line))


class _Hearing:
    """Folds the lines of one process; it may have had many conversations, each begun by a reset."""

    def __init__(self, iteration_num: int, config_dir: Path) -> None:
        self._iteration_num = iteration_num
        self._config_dir = str(config_dir)
        self._conversation = self._fresh()
        self._replies: list[Event] = []
        self._session: AgentSession | None = None
        self._result: Line | None = None
        self._asking = Asking()

    def _fresh(self) -> Conversation:
        return Conversation(self._iteration_num, config_dir=self._config_dir)

    def hear(self, line: Line) -> None:
        if line.type == "conversation_reset":
            self._conversation, self._session, self._result = self._fresh(), None, None
            self._asking.reset()
        for event in self._conversation.feed(line):
            if isinstance(event, AgentSession):
                self._session = event
            elif isinstance(event, AgentReplyStarted | AgentReply):
                self._replies.append(event)
                self._result = None  # it does not cover what came after it
        if line.type == "result":
            self._result = line
        self._asking.hear(line)

    def words(self) -> LastWords:
        result = self._result
        session = result.session_id if result is not None else None
        return LastWords(
            session=self._session,
            replies=tuple(self._replies),
            awaits_reply=self._asking.awaits_reply,
            result_usd=dollars(result.total_cost_usd) if result is not None else None,
            result_session=session if isinstance(session, str) else None,
        )
