"""The driver's hand on the log: append, fold what is new (also what humans appended), and tell who watches."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from untildone import __version__
from untildone.core import codec
from untildone.core.dataclass import dataclass
from untildone.core.decide import Wait
from untildone.core.durations import DAY
from untildone.core.events import ClockJumped, ContinuousResumed, ContinuousWarning, Event, Record, StoreTampered
from untildone.core.fold import apply, fold
from untildone.core.redaction import redacted
from untildone.core.state import LoopState
from untildone.errors import StoreError, StoreSpoilt
from untildone.ports import Clock, EventLog, Lease

Observer = Callable[[Record], None]
Folded = Callable[[LoopState, Record, LoopState], None]

SNAPSHOT_EVERY = 50
"""Control events between two snapshots: what a resume or a `status` has to fold at most, a few milliseconds."""
TRACE_BATCH = 50
TRACE_DELAY = 0.1
TRIM_EVERY = 2000
"""Trace events between two looks at whether the oldest have to go."""
CLOCK_JUMP = 1.0
"""Seconds by which the clock must differ from the time that passed to have been set. Less is kept until it adds up."""
TRACE_DAYS = 30
"""No trace of a run is kept for longer."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A disposable copy of the folded state, and the version that folded it."""

    version: str
    state: LoopState


class Journal:
    """One driver's view of one run."""

    def __init__(self, log: EventLog, lease: Lease, clock: Clock, observer: Observer | None = None) -> None:
        self.state = LoopState()
        self.changed = asyncio.Event()
        """Set whenever something new was folded."""
        self._log = log
        self._lease = lease
        self._clock = clock
        self._observer = observer
        self._trace: list[Event] = []
        self._flush_later: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self.taken_up = asyncio.Event()
        """Set once this driver is in the log: from then on the run is its to speak for."""
        self.on_fold: Folded | None = None
        """Told every control record with the state before and after it. It must not raise."""
        self.resting: Wait | None = None
        """The rest that was last announced."""
        self._snapshot_seq = 0
        self._untrimmed = 0
        """Trace events appended since the last trim."""
        self._one_at_a_time = asyncio.Lock()
        self._ahead = self._clock_ahead()
        """How far the clock was ahead of the time that passes evenly, when it was last looked at."""

    @property
    def run_id(self) -> str:
        return self._lease.run_id

    async def open(self) -> None:
        """Fold what is already there, from the newest snapshot on."""
        self.state = await load_state(self._log, self.run_id)
        self._snapshot_seq = self.state.last_seq

    async def record(self, *events: Event) -> None:
        """Append as the driver, durably, and fold. Trace events waiting for company go along."""
        async with self._one_at_a_time:
            batch = self._take_trace()
            await self._fold_news(await self._append([*batch, *self._clock_jump(), *events]))
        if any(isinstance(event, ContinuousResumed) for event in events):
            self.taken_up.set()

    async def tell(self, event: Event) -> None:
        """Record an event of the agent's: control at once, trace with the next batch."""
        if event.KIND == "control":
            await self.record(event)
            return
        self._trace.append(event)
        if len(self._trace) >= TRACE_BATCH:
            await self.flush()
        elif self._flush_later is None:
            self._flush_later = asyncio.get_running_loop().call_later(TRACE_DELAY, self._flush_soon)

    async def heed_clock(self) -> None:
        """Before anything is decided by the clock: write down whether somebody has set it."""
        if abs(self._clock_ahead() - self._ahead) >= CLOCK_JUMP:
            await self.record()

    def _clock_jump(self) -> list[Event]:
        ahead = self._clock_ahead()
        jumped = ahead - self._ahead
        if self.state.driving and abs(jumped) < CLOCK_JUMP:
            return []
        self._ahead = ahead
        return [ClockJumped(seconds=jumped)] if self.state.driving else []

    def _clock_ahead(self) -> float:
        return self._clock.now() - self._clock.monotonic()

    async def catch_up(self) -> None:
        """Fold what others appended up to now, also what a signal of this very moment asks for."""
        await asyncio.sleep(0)
        async with self._one_at_a_time:
            await self._fold_news()

    async def flush(self) -> None:
        """Append the trace events that are still waiting."""
        async with self._one_at_a_time:
            if batch := self._take_trace():
                await self._append(batch)
        if self._untrimmed >= TRIM_EVERY:
            await self.trim()

    async def trim(self) -> None:
        """Let go of the oldest trace beyond what the run is to keep."""
        if not self._untrimmed:
            return
        self._untrimmed = 0
        keep = self.state.policy.trace_keep
        with suppress(StoreError):  # no reason to end a run: the next append says what is wrong
            await self._log.trim_trace(self._lease, keep_bytes=keep, keep_seconds=TRACE_DAYS * DAY)

    async def records_since(self, seq: int) -> list[Record]:
        """Control records after `seq`."""
        return await self._log.read(self.run_id, after=seq)

    async def save(self) -> None:
        """Keep a disposable copy of the folded state."""
        try:
            await self._log.save_snapshot(self._lease, self.state.last_seq, self._copy())
        except StoreSpoilt:
            await self._begin_anew()
        self._snapshot_seq = self.state.last_seq

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While inside, events appended by others are folded as they arrive."""
        watcher = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])
            if not watcher.cancelled():
                watcher.result()  # it never ends by itself: a store that cannot be followed is an error
            await self.flush()

    async def _watch(self) -> None:
        while True:
            try:
                async for record in self._log.follow(self.run_id, after=self.state.last_seq):
                    if record.seq > self.state.last_seq:
                        async with self._one_at_a_time:
                            await self._fold_news()
            except StoreSpoilt:
                await self.record()

    def _copy(self) -> bytes:
        return codec.encode_value(Snapshot(version=__version__, state=self.state))

    async def _begin_anew(self) -> None:
        """The agent can spoil the store. What the run knows is here, so it can go on in another."""
        await self._log.rebuild(self._lease, self.state.last_seq, self._copy())

    async def _append(self, told: Sequence[Event]) -> list[Record]:
        events = [redacted(event) for event in told]
        try:
            records = await self._log.append(self.run_id, events, lease=self._lease)
        except StoreSpoilt:
            await self._begin_anew()
            records = await self._log.append(self.run_id, events, lease=self._lease)
        for record in records:
            if record.event.KIND == "trace":
                self._untrimmed += 1
                self._observe(record)
        return records

    async def _fold_news(self, ours: Sequence[Record] = ()) -> None:
        """Fold what is new. What we wrote ourselves counts even if somebody took it out of the log again."""
        try:
            found = await self._log.read(self.run_id, after=self.state.last_seq)
        except StoreSpoilt:
            await self._begin_anew()
            found = []
        news = {record.seq: record for record in (*ours, *found) if codec.event_kind(record.event) == "control"}
        meddled = False
        for seq in sorted(news):
            record = news[seq]
            meddled = meddled or isinstance(record.event, StoreTampered)
            before, self.state = self.state, apply(self.state, record)
            if self.on_fold is not None:
                self.on_fold(before, record, self.state)
            self._observe(record)
        self.changed.set()
        # What was taken out of the log or changed in it lives on in the saved state alone.
        if meddled or self.state.last_seq - self._snapshot_seq >= SNAPSHOT_EVERY:
            await self.save()

    def _observe(self, record: Record) -> None:
        """Tell who watches. A display or a callback that breaks must not end a night's work."""
        if self._observer is None:
            return
        try:
            self._observer(record)
        except Exception as broken:  # noqa: BLE001 - somebody else's code
            self._observer = None
            trouble = f"what watched this run failed and is not told any more: {type(broken).__name__}: {broken}"
            self._trace.append(ContinuousWarning(message=trouble))

    def _take_trace(self) -> list[Event]:
        if self._flush_later is not None:
            self._flush_later.cancel()
            self._flush_later = None
        batch, self._trace = self._trace, []
        return batch

    def _flush_soon(self) -> None:
        self._flush_later = None
        self._flushing = asyncio.create_task(self.flush())
        # A store that cannot be written is an error of whatever is recorded next; said twice it would be no clearer.
        self._flushing.add_done_callback(lambda done: done.cancelled() or done.exception())


async def load_state(log: EventLog, run_id: str) -> LoopState:
    """The state of a run, from its newest usable snapshot and the control events after it."""
    snapshot = _decoded(await log.load_snapshot(run_id))
    # One that another version folded is worth nothing as long as the events tell the whole story.
    state = snapshot.state if snapshot is not None and snapshot.version == __version__ else LoopState()
    state = fold(await log.read(run_id, after=state.last_seq), state)
    if state.run_id or snapshot is None:
        return state
    return fold(await log.read(run_id, after=snapshot.state.last_seq), snapshot.state)


def _decoded(copy: tuple[int, bytes] | None) -> Snapshot | None:
    try:
        return codec.decode_value(copy[1], Snapshot) if copy else None
    except ValueError:
        return None
