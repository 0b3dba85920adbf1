"""Loops inside Claude Code as runs of the log: what their hooks wrote down is folded in by whoever looks next.

Exactly once, also with `kill -9` at any moment and with many who look at once: the events of the new lines and how far
they reach are one commit, which the log takes only if nobody else was faster.
"""

import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from untildone import __version__, config, wiring
from untildone.core.dataclass import dataclass
from untildone.core.durations import DAY
from untildone.core.events import NotesFolded
from untildone.core.notes import Notes, Spent, note
from untildone.core.outcome import Usage
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.core.trace import AgentReply, AgentSession, AgentToolUse
from untildone.core.views import ADOPT, NO_SESSION, RunView
from untildone.engine.journal import load_state
from untildone.hook.files import read_text
from untildone.hook.holding import is_left
from untildone.hook.losing import release_lost
from untildone.hook.register import entries
from untildone.hook.spool import Line, opened, spool_path
from untildone.ports import EventLog, RunRow
from untildone.store.leftovers import HISTORY, clear_leftovers

if TYPE_CHECKING:
    from untildone.hook.register import Entry

AT_ONCE = 4 << 20
"""Bytes of one loop's notes that one command folds; the next one goes on."""
LONGEST_LINE = 1 << 18
_TRIES = 5
_SETTLED = 10.0
"""Seconds after which the register knows of an end, unless whoever wrote it down was killed."""
_END = ".jsonl"
_MARK = ".folded"
_ID_CAP = 64
_SESSION_WIDTH = 40
EDITING = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit"})


def living(store: Path) -> "dict[str, Entry]":
    """The loops that are not over, by their ids."""
    return {entry["loop"]: entry for entry in entries(str(store))}


def past_loops(store: Path) -> set[str]:
    """The ids of loops that are over and whose state files are kept."""
    try:
        return {Path(name).stem for name in os.listdir(store / HISTORY)}  # noqa: PTH208 names are enough
    except OSError:
        return set()


def past_file(store: Path, loop: str) -> str | None:
    """The state file of a loop that is over, as it was at its end."""
    return read_text(str(store / HISTORY / f"{loop}.md")) if loop.isalnum() else None


def with_life(row: RunRow, alive: "Mapping[str, Entry]") -> RunRow:
    """The row as it is now: a loop that is not over lives while its session is open, though no program drives it."""
    return replace(row, alive=not is_left(alive[row.run_id])) if row.run_id in alive else row


def listed(row: RunRow, alive: "Mapping[str, Entry]") -> RunRow:
    """The row as a list shows it: a loop that no session has is not at work."""
    waits = row.alive and row.run_id in alive and not alive[row.run_id]["session"]
    return replace(row, status="waiting") if waits else row


def shown(view: RunView, entry: "Entry | None") -> RunView:
    """The view with what the register knows: which session has the loop, if any has."""
    if entry is None or view.status not in {"running", "waiting", "interrupted"}:
        return view
    session = one_line(entry["session"], _SESSION_WIDTH)
    if view.status == "interrupted":
        return replace(view, phase=f"interrupted: its session {session} is not open")
    if session:
        return replace(view, status="running", phase=f"running in session {session}", doing="running")
    return replace(view, status="waiting", phase=f"{NO_SESSION}: {ADOPT}", doing=NO_SESSION)


async def fold_notes(log: EventLog, store: Path, env: Mapping[str, str]) -> int:
    """Fold what is new of every loop; returns how many lines were. Costs one look at each loop that is not over.

    One whose state file is gone is over: no hook is called for it any more, so it is ended here.
    """
    release_lost(str(store), wiring.system_clock().now())
    found = [(loop, size) for loop, size in _spools(store) if _mark_of(store, loop) != size]
    if not found:
        return 0
    alive = living(store)
    return sum([await _fold(log, store, loop, env, alive=loop in alive) for loop, _ in found])


def _spools(store: Path) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(store / "spool") as found:
            for entry in found:
                loop = entry.name.removesuffix(_END)
                ours = loop != entry.name and loop.isalnum() and len(loop) <= _ID_CAP
                if ours and entry.is_file(follow_symlinks=False):
                    yield loop, entry.stat(follow_symlinks=False).st_size
    except OSError:
        return


def _mark_of(store: Path, loop: str) -> int:
    """How long the notes were when all of them was folded: only a hint, the truth is in the log."""
    try:
        return int((store / "spool" / f"{loop}{_MARK}").read_bytes()[:20])
    except (OSError, ValueError):
        return -1


async def _fold(log: EventLog, store: Path, loop: str, env: Mapping[str, str], *, alive: bool) -> int:
    for _ in range(_TRIES):
        state = await load_state(log, loop)
        reading = _Reading(loop=loop, store=store, alive=alive, until=state.notes_folded, last=state.notes_last)
        notes = await _begun(log, loop, state, env)
        reading.read(notes)
        if await _append(log, notes, reading, state):
            _settle(store, loop, notes.state, reading, alive=alive)
            return reading.lines
    return 0  # others fold it at this moment


async def _append(log: EventLog, notes: Notes, reading: "_Reading", before: LoopState) -> bool:
    """Whether what was read is in the log now; what no run ever began with is nothing for it."""
    if reading.until == before.notes_folded or not notes.state.run_id:
        return True
    # A verdict that waits for the end of its turn stays unread, so that nothing else may have happened after it.
    at = notes.happened[-1][0] if notes.happened else before.last_at
    mark = reading.mark()
    spec = notes.state.spec
    return await log.transcribe(
        notes.loop,
        [*notes.happened, (at, mark)],
        name=spec.name,
        folder=spec.cwd,
        status=notes.state.phase,
        after=before.last_seq,
    )


async def _begun(log: EventLog, loop: str, state: LoopState, env: Mapping[str, str]) -> Notes:
    """The run as it stands in the log, with what the turn under way has edited so far."""
    edited: set[str] = set()
    if state.open is not None:
        records = await log.read(loop, after=state.open.started_seq, trace=True)
        calls = (record.event for record in records if isinstance(record.event, AgentToolUse))
        edited = {call.detail or call.tool_use_id for call in calls if call.tool in EDITING}
    purse = Purse(state.spec.cwd, env)
    for record in await log.read(loop):
        if isinstance(record.event, AgentSession):
            purse.hear(record.event.session_id, record.event.transcript or "", record.at)
    return Notes(
        loop=loop, state=state, version=__version__, name_of=_name_of, spent=purse.spent, edited=edited, met=purse.hear
    )


def _name_of(project: str, goal: str) -> str:
    # Not the name `untildone run` would give it: that one resumes what has its own name.
    return config.run_name(Path(project), f"loop {goal}")


class Purse:
    """What the sessions of a loop have cost since they had it, from their transcripts, each read once."""

    def __init__(self, cwd: str, env: Mapping[str, str]) -> None:
        self._cwd = cwd
        self._config = Path(env.get("CLAUDE_CONFIG_DIR") or Path(env.get("HOME") or "~").expanduser() / ".claude")
        self._since: dict[str, tuple[float, str]] = {}
        self._read: dict[str, list[tuple[float, AgentReply]]] = {}

    def hear(self, session: str, transcript: str, at: float) -> None:
        """A session has it from now on."""
        since, known = self._since.get(session, (at, ""))
        self._since[session] = (since, known or transcript)

    def spent(self, until: float) -> Spent | None:
        """Everything from the beginning up to a moment; None when no transcript tells anything."""
        served = [
            reply
            for session, (since, transcript) in self._since.items()
            for at, reply in self._replies(session, transcript)
            if since <= at <= until
        ]
        if not served:
            return None
        return Spent(
            cost_usd=math.fsum(reply.cost_usd or 0.0 for reply in served),
            usage=sum((reply.usage for reply in served), Usage()),
            unpriced=sum(reply.cost_usd is None for reply in served),
        )

    def _replies(self, session: str, transcript: str) -> list[tuple[float, AgentReply]]:
        if session not in self._read:
            from untildone.agents.transcripts import TranscriptLedger

            path = Path(transcript)
            # `projects/FOLDER/SESSION.jsonl`: the session may use another configuration than we do.
            is_there = path.is_absolute() and path.name == f"{session}.jsonl"
            ledger = TranscriptLedger(path.parent.parent.parent if is_there else self._config)
            try:
                self._read[session] = ledger.timed_replies(session, self._cwd)
            except OSError:
                self._read[session] = []
        return self._read[session]


def _settle(store: Path, loop: str, state: LoopState, reading: "_Reading", *, alive: bool) -> None:
    """Remember that all of it is folded; notes of a loop that is over go where they are not looked at any more."""
    path = Path(spool_path(str(store), loop))
    mark = path.with_suffix(_MARK)
    with suppress(OSError):
        if not alive and (state.phase in {"suspended", "completed"} or not state.run_id):
            (store / HISTORY).mkdir(mode=0o700, exist_ok=True)
            os.replace(path, store / HISTORY / path.name)  # noqa: PTH105 one step, whatever is there
            mark.unlink(missing_ok=True)
            clear_leftovers(store, wiring.system_clock().now() - wiring.KEEP_DAYS * DAY)
        elif reading.reached_end:
            mark.write_text(str(reading.size))


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One pass over the new lines of one loop."""

    loop: str
    store: Path
    alive: bool
    until: int
    """The byte up to which everything is folded."""
    last: int
    """The number of the last line that a hook wrote and that is folded."""
    size: int = 0
    lines: int = 0
    skipped: int = 0
    foreign: int = 0
    gaps: int = 0
    reached_end: bool = False

    def mark(self) -> NotesFolded:
        """What goes into the log beside the events of these lines."""
        return NotesFolded(until=self.until, skipped=self.skipped, last=self.last, foreign=self.foreign, gaps=self.gaps)

    def read(self, notes: Notes) -> None:
        """Take in whole lines, up to the last after which no verdict waits for the end of its turn."""
        now = wiring.system_clock().now()
        began, number, end = self.until, 0, self.until
        seen = _Seen(last=self.last)
        kept = len(notes.happened), notes.state
        for number, (line, end) in enumerate(self._lines(), 1):
            is_early = self.alive and line is not None and line.value.get("what") == "released"
            if is_early and line is not None and now - _moment(line) < _SETTLED:
                break  # an end is believed when the register knows it too, which it does a moment later
            # A loop that the register knows longer than that went on: a hook was killed while it let go.
            if seen.is_new(line) and line is not None and not is_early:
                seen.skipped += not note(notes, line.value, now, linked=seen.linked)
            if not notes.checks:
                self._keep(end, number, seen)
                kept = len(notes.happened), notes.state
        notes.state = kept[1]
        del notes.happened[kept[0] :]
        if self.until == began and end - began >= AT_ONCE:
            # So many verdicts of one turn are nobody's: without this they would stand in the way for ever.
            seen.skipped = number - seen.foreign
            self._keep(end, number, seen)
        self.reached_end = self.until == self.size

    def _keep(self, end: int, number: int, seen: "_Seen") -> None:
        self.until, self.lines, self.last = end, number, seen.last
        self.skipped, self.foreign, self.gaps = seen.skipped, seen.foreign, seen.gaps

    def _lines(self) -> Iterator[tuple[Line | None, int]]:
        """Each whole line, if a hook wrote it, and where it ends."""
        try:
            handle = os.open(spool_path(str(self.store), self.loop), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return
        with open(handle, "rb") as file:  # noqa: PTH123 an open file already
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                self.size = self.until
                return
            if status.st_size < self.until:
                self.until = 0  # not the file that was folded: what is new in it is known by its numbers
            self.size = status.st_size
            file.seek(self.until)
            at, most = self.until, self.until + AT_ONCE
            while at < most and (line := file.readline(LONGEST_LINE)):
                at += len(line)
                whole = line.endswith(b"\n")
                while line and not line.endswith(b"\n"):
                    line = file.readline(LONGEST_LINE)  # too long to be ours: passed over up to its end
                    at += len(line)
                if not line:
                    return  # its end is not written yet
                yield opened(str(self.store), self.loop, line) if whole else None, at


@dataclass(slots=True)
class _Seen:
    """What the lines of one pass turned out to be."""

    last: int
    skipped: int = 0
    foreign: int = 0
    gaps: int = 0
    after_foreign: bool = False
    linked: bool = True
    """The last new line followed the one before it, and none is missing in between."""

    def is_new(self, line: Line | None) -> bool:
        """Whether a hook wrote a line and it was not seen before; it is counted as what it is."""
        if line is None or line.number <= self.last:  # written by somebody else, or a copy
            self.foreign += 1
            self.after_foreign = True
            return False
        self.linked = line.prev == self.last
        # A hook that finds no number at the end names none: what stands there was put in, nothing was taken away.
        self.gaps += not self.linked and not (self.after_foreign and not line.prev)
        self.last, self.after_foreign = line.number, False
        return True


def _moment(line: Line) -> float:
    at = line.value.get("at")
    return float(at) if isinstance(at, int | float) else 0.0
