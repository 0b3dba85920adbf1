"""What a run looks like, from its control events: folded where the last fold ended, so that it costs what is new.

Everything here is pure. What workers send is hostile: whatever stands in an event, folding it does not raise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache

from untildone import __version__
from untildone.core import codec
from untildone.core.advice import driver_gone, handle
from untildone.core.dataclass import dataclass
from untildone.core.durations import format_duration
from untildone.core.event import Event, Record, Unknown
from untildone.core.events import ContinuousResumed, ContinuousStarted
from untildone.core.fold import apply
from untildone.core.history import IterationRow, changed_rows, rows_needed, running_row
from untildone.core.limits import limit_of
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.core.stopping import Reason, cause
from untildone.core.views import NO_SESSION, RunView, run_view
from untildone.server.archive.port import (
    AT_WORK,
    HEARD_HERE_WITHIN,
    HEARD_WITHIN,
    INTERRUPTED,
    Projection,
    RunEntry,
    StoredEvent,
)

UNREADABLE = "unreadable"
"""The status of a run whose events make no sense to this version."""
LARGEST = 2**31 - 1
MOST_USD = 1e12
MOST_SECONDS = 1e11
MOST_STATE = 16 << 20
"""Bytes of a folded state. No run comes near it; a worker that sends nonsense could."""
_NAME_WIDTH = 200
_LONG_WIDTH = 500
_WORDS = 4000
_NAMES_KEPT = 100
_RUNS_REMEMBERED = 128
_STATE_REMEMBERED = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What is kept of a fold. Whoever wants the state alone can read it as a `Snapshot`."""

    version: str = __version__
    state: LoopState = field(default_factory=LoopState)
    at: float = 0.0
    """When the newest event happened, by the clock of the run's machine: what `now` means there."""
    host: str = ""
    trouble: str = ""
    """The first event that could not be understood, and why."""
    rows: tuple[IterationRow, ...] = ()
    """The last iteration and the open one, without what is not booked yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A run as it is at this moment: what its log says, and whether somebody drives it."""

    status: str
    phase: str
    why: str
    alive: bool


def liveness(entry: RunEntry, now: float) -> bool:
    """Whether somebody was heard lately who drives this run."""
    within = HEARD_HERE_WITHIN if entry.origin == "local" else HEARD_WITHIN
    # Heard in the future: the clock of the server was set back, and nothing is known.
    return now - within <= entry.heard_at <= now + HEARD_WITHIN


def seen(entry: RunEntry, now: float) -> Seen:
    """The run as it is now. One that is at work by its log and silent is interrupted."""
    alive, known = liveness(entry, now), entry.projection
    if alive or known.status not in AT_WORK:
        return Seen(status=known.status, phase=known.phase, why=known.why, alive=alive and known.status in AT_WORK)
    silent = format_duration(max(0.0, now - entry.heard_at))
    phase = f"{INTERRUPTED} (silent for {silent})"
    return Seen(status=INTERRUPTED, phase=phase, why=_left_alone(entry, silent), alive=False)


def _left_alone(entry: RunEntry, silent: str) -> str:
    """What became of a run that fell silent, and what to do: one sentence."""
    state = state_of(entry) if entry.origin != "published" else LoopState()
    # In lists the state was not read; what to call the run is known there, too.
    state = replace(state, run_id=entry.run_id, spec=replace(state.spec, name=entry.projection.name))
    if entry.origin == "local":
        gone = f"The program that drove this run is gone: resume it with `untildone resume {handle(state)}`."
        return driver_gone(state) if state.spec.in_session else gone
    lately = f"Nothing was heard of it for {silent}: if only the network is down, it reports again by itself; "
    if entry.origin == "published":
        return f"{lately}else start its program again."
    where = f" on {entry.projection.host}" if entry.projection.host else " where it ran"
    return f"{lately}else start its worker again, or resume it with `untildone resume {handle(state)}`{where}."


def state_of(entry: RunEntry) -> LoopState:
    """The folded state of a run; that of one that has not begun when there is none."""
    return folded_of(entry.projection.state).state


def folded_of(stored: bytes) -> Folded:
    """The fold that was stored; an empty one if that cannot be read."""
    return _decoded(stored) if stored else Folded()


def _decoded(stored: bytes) -> Folded:
    # A large state is decoded each time: of those that are remembered, all together must stay small.
    return _remembered(stored) if len(stored) <= _STATE_REMEMBERED else _decode(stored)


@lru_cache(maxsize=_RUNS_REMEMBERED)
def _remembered(stored: bytes) -> Folded:
    return _decode(stored)


def _decode(stored: bytes) -> Folded:
    try:
        return codec.decode_value(stored, Folded)
    except ValueError:
        return Folded(version="")


def records_of(events: Sequence[StoredEvent]) -> list[Record]:
    """Stored events as records; what this version does not understand is kept as `Unknown`."""
    return [
        Record(
            seq=event.seq,
            at=event.at,
            event=codec.decode(event.type, event.version, event.kind, event.data.encode("utf-8", "replace")),
        )
        for event in events
    ]


def older_rows(before: Folded, records: Sequence[Record]) -> set[int]:
    """Numbers of iterations that these records speak of and that are not at hand any more."""
    at_hand = {row.number for row in before.rows}
    last = max(at_hand, default=-1)
    named = {getattr(record.event, "iteration_num", None) for record in records}
    return {number for number in named - at_hand if number is not None and 0 <= number < last}


def fold_on(
    before: Folded, records: Sequence[Record], older: Mapping[int, IterationRow]
) -> tuple[Folded, dict[int, IterationRow]]:
    """Fold records onto a fold: what it is then, and the rows of iterations that changed, as people see them."""
    fold = _Fold(before, older)
    for record in records:
        if record.seq > fold.state.last_seq:
            fold.step(record)
    return fold.result()


class _Fold:
    """A fold under way."""

    def __init__(self, before: Folded, older: Mapping[int, IterationRow]) -> None:
        self.state = before.state
        self._before = before
        self._at, self._host, self._trouble = before.at, before.host, before.trouble
        self._rows = {**older, **{row.number: row for row in before.rows}}
        self._last = max(self._rows, default=0)
        self._touched = set[int]()

    def step(self, record: Record) -> None:
        """Fold one more record; whatever is in it, this does not raise."""
        event = record.event
        if not 0.0 <= record.at <= MOST_SECONDS:
            record = replace(record, at=self._at)
        self._at = record.at
        trouble = _not_understood(event)
        if trouble or codec.event_kind(event) != "control":
            self._pass_over(record, trouble)
            return
        at_hand = {n: self._rows[n] for n in (self._last, *rows_needed(self.state, record)) if n in self._rows}
        try:
            after = apply(self.state, record)
            changed = changed_rows(at_hand, self.state, after, record)
        except Exception as nonsense:  # noqa: BLE001 - hostile values: one event must not take the run, or us, along
            self._pass_over(record, f"({codec.event_type(event)}) makes no sense: {type(nonsense).__name__}")
            return
        self.state = after
        if changed:
            self._rows |= changed
            self._touched |= changed.keys()
            self._last = max((self._last, *changed))
        if isinstance(event, ContinuousResumed):
            self._host = one_line(event.host, _NAME_WIDTH)

    def _pass_over(self, record: Record, trouble: str) -> None:
        self.state = replace(self.state, last_seq=record.seq)
        if trouble and not self._trouble:
            self._trouble = f"event {record.seq} {trouble}"

    def result(self) -> tuple[Folded, dict[int, IterationRow]]:
        under_way = running_row(self._rows, self.state)
        kept = sorted(number for number in {self._last, *under_way} if number in self._rows)
        folded = replace(
            self._before,
            state=self.state,
            at=self._at,
            host=self._host,
            trouble=self._trouble,
            rows=tuple(_bounded(self._rows[number]) for number in kept),
        )
        shown = {number: self._rows[number] for number in self._touched} | under_way
        return folded, {number: _bounded(row) for number, row in shown.items()}


def _not_understood(event: Event) -> str:
    """Why this event cannot be folded; one of a type that this version does not know is none of its business."""
    if isinstance(event, Unknown):
        if event.type != ContinuousStarted.TYPE:
            return ""
        newer = event.version > ContinuousStarted.VERSION
        why = "was written by a newer version: upgrade this server" if newer else "is not what it should be"
        return f"({event.type}) {why}"
    return "" if _makes_sense(event) else f"({event.TYPE}) has a number that no iteration has"


def _makes_sense(event: Event) -> bool:
    number = getattr(event, "iteration_num", None)
    return number is None or 0 <= number <= LARGEST


def _bounded(row: IterationRow) -> IterationRow:
    """The row as any database can hold it, whatever the worker wrote."""
    return replace(
        row,
        started_at=_amount(row.started_at, MOST_SECONDS),
        tries=_count(row.tries),
        outcome=_text(row.outcome, _NAME_WIDTH),
        faults=tuple(_text(name, _NAME_WIDTH) for name in row.faults[-_NAMES_KEPT:]),
        error=_text(row.error, _WORDS),
        cost_usd=_amount(row.cost_usd, MOST_USD),
        estimated_usd=_amount(row.estimated_usd, MOST_USD),
        unknown_costs=_count(row.unknown_costs),
        seconds=_amount(row.seconds, MOST_SECONDS),
        files_changed=_count(row.files_changed),
        commits=tuple(_text(commit, _NAME_WIDTH) for commit in row.commits[-_NAMES_KEPT:]),
        claim=_text(row.claim, _NAME_WIDTH),
        summary=_text(row.summary, _WORDS),
    )


def _amount(value: float, most: float) -> float:
    return min(most, max(0.0, float(value))) if math.isfinite(value) else 0.0


def _count(value: float) -> int:
    return min(LARGEST, max(0, int(value)))


def _text(text: str, most: int) -> str:
    return text[:most].replace("\0", codec.REPLACEMENT)


def projection_of(entry: RunEntry, folded: Folded) -> Projection:
    """What the list of runs shows of this one."""
    folded, stored = _storable(folded)
    state = _named(folded.state, entry.run_id)
    try:
        shown = _viewed(entry, folded, run_view(state, folded.at, alive=True))
        trouble = folded.trouble
    except Exception as nonsense:  # noqa: BLE001 - hostile values: the run is shown all the same, as unreadable
        shown = replace(entry.projection, folded_seq=max(entry.projection.folded_seq, state.last_seq))
        trouble = f"its events make no sense: {type(nonsense).__name__}"
    shown = replace(shown, name=shown.name or entry.projection.name or entry.run_id, state=stored)
    return replace(shown, status=UNREADABLE, phase=UNREADABLE, why=_cannot(trouble)) if trouble else shown


def _storable(folded: Folded) -> tuple[Folded, bytes]:
    """The fold, and the bytes it will be read from again. One that is not fit to be stored begins anew, and says so."""
    state = folded.state
    trouble = folded.trouble or f"what is in its events up to {state.last_seq} cannot be kept"
    anew = Folded(at=folded.at, host=folded.host, trouble=trouble, state=LoopState(last_seq=state.last_seq))
    named = replace(anew.state, run_id=state.run_id, spec=state.spec, phase=state.phase, driving=state.driving)
    for fold in (folded, replace(anew, state=named)):
        stored = codec.encode_value(fold)
        # Reading it now costs nothing: it is remembered, and wanted as soon as the run goes on.
        if len(stored) <= MOST_STATE and folded_of(stored).version == fold.version:
            return fold, stored
    return anew, codec.encode_value(anew)


def _viewed(entry: RunEntry, folded: Folded, view: RunView) -> Projection:
    state = folded.state
    return Projection(
        folded_seq=max(entry.projection.folded_seq, state.last_seq),
        name=one_line(view.name, _NAME_WIDTH),
        goal=view.goal,
        folder=one_line(state.spec.cwd, _LONG_WIDTH),
        host=folded.host,
        in_session=state.spec.in_session,
        status=view.status,
        phase=one_line(view.doing, _LONG_WIDTH),
        why=one_line(f"{why(view)}{_where(entry, folded, view)}", 2 * _LONG_WIDTH),
        success=view.success,
        verified=view.verified,
        verdict=view.verdict,
        cost_usd=_amount(view.spend.cost_usd, MOST_USD),
        estimated_usd=_amount(view.spend.estimated_usd, MOST_USD),
        unknown_costs=_count(view.spend.unknown_costs),
        attempts=_count(view.attempts),
        successes=_count(view.successes),
        progress=_progress(view, state),
        waiting_until=None if view.waiting_until is None else _amount(view.waiting_until, MOST_SECONDS),
        started_at=_amount(state.started_at, MOST_SECONDS),
    )


def _cannot(trouble: str) -> str:
    return one_line(f"Where it stands cannot be told: {trouble}. Its events are all there to be read.", _LONG_WIDTH)


def _named(state: LoopState, run_id: str) -> LoopState:
    """Under the id that the server knows it by: the one in its events is only what a worker wrote."""
    return state if state.run_id in {"", run_id} else replace(state, run_id=run_id)


def _where(entry: RunEntry, folded: Folded, view: RunView) -> str:
    """Where the commands of the advice are to be typed."""
    if entry.origin != "worker" or "`untildone resume " not in view.advice:
        return ""
    there = f" Its log is on {folded.host or 'the machine it ran on'}: type that there"
    spec = folded.state.spec
    is_workers = spec.server is None  # its environment names the server, and it always sends along what a move needs
    if is_workers and limit_of(view.exit_reason or "") is None:
        there += ", start its worker again"
    if not spec.portable and not is_workers:
        return f"{there}."
    return f"{there}, or go on elsewhere with `untildone resume --from-server {entry.run_id}`."


def why(view: RunView) -> str:
    """Why it stopped, or what it waits for, and what to do: one sentence; nothing while it works."""
    if view.doing == NO_SESSION:
        return "It waits for a session: type `/untildone:loop --adopt` in one."
    if view.status == "waiting":
        return one_line(f"{_capital(view.doing)}; it goes on by itself.", _LONG_WIDTH)
    if view.status == "paused":
        return "Paused: it does nothing until a person resumes it."
    if view.exit_reason is None:
        return ""
    return one_line(f"{_cause(view)}{_next_step(view.advice)}", 2 * _LONG_WIDTH)


def _cause(view: RunView) -> str:
    said = cause(view.exit_reason or "")
    if view.exit_reason == Reason.STOP_REQUESTED:
        who = view.detail.removeprefix("by ")
        return f"Stopped by {who}" if who else "Stopped by a command"
    if view.success:
        return f"Done: {said}"
    return f"{_capital(said)}{f' ({view.detail})' if view.detail else ''}"


def _next_step(advice: str) -> str:
    return f"; {advice[:1].lower()}{advice[1:]}" if advice else "."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _progress(view: RunView, state: LoopState) -> float | None:
    """Ticked tasks where there are any; else the fullest of its limits."""
    if view.success:
        return 1.0
    if state.tasks_boxed and state.tasks_open is not None:
        boxes = state.tasks_open + state.tasks_ticked
        return state.tasks_ticked / boxes if boxes > 0 else None
    return max((gauge.share for gauge in view.gauges), default=None)
