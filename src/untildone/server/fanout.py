"""Who is told what is new: viewers of a run, the list of runs, and workers that wait for orders.

A burst of events is one note, shared by everybody who follows the run: what it looks like on the wire is worked out
once. Nothing here waits for a follower: one that lags loses its notes, is told so, and reads the archive instead.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

from untildone.errors import ServeError
from untildone.server.archive.port import MISSED, Archive, EventFilter, StoredEvent

MOST_NOTES = 200
"""Notes that wait for one follower."""
MOST_WAITING = 4 * 1024 * 1024
"""Characters of payload that wait for one follower."""
BURST_SECONDS = 0.03
"""Events of one run are handed out so often at most: what comes in between travels together."""
BURST_EVENTS = 1000
"""A burst this long does not wait for more."""
_READ_AT_ONCE = 1000
_AFTER_TROUBLE = 1.0
_log = logging.getLogger("untildone.server")
_ORDERS = "orders:"
"""Those who wait for orders follow under a name that no run can have."""


class Note:
    """Something that is new about a run."""

    __slots__ = ("_encoded", "events", "lagged", "ordered", "run_id", "weight")

    def __init__(
        self,
        run_id: str,
        events: tuple[StoredEvent, ...] | None = None,
        *,
        lagged: bool = False,
        ordered: bool = False,
    ) -> None:
        self.run_id: Final = run_id
        self.events: Final = events
        """In order; None: what is derived from them changed."""
        self.lagged: Final = lagged
        """Notes were left out: read the archive."""
        self.ordered: Final = ordered
        """Somebody gave the run an order."""
        self.weight: Final = sum(len(event.data) for event in events) if events else 0
        self._encoded: dict[str, bytes] = {}

    def encoded(self, form: str, encode: Callable[[tuple[StoredEvent, ...]], bytes]) -> bytes:
        """The events in a form, worked out for the first who asks."""
        if form not in self._encoded:
            self._encoded[form] = encode(self.events or ())
        return self._encoded[form]


class Follower:
    """One who is told: iterate over it, or ask for the `next` note with a timeout."""

    def __init__(self, run_id: str | None) -> None:
        self.run_id = run_id
        self._notes: deque[Note] = deque()
        self._changed: set[str] = set()
        self._weight = 0
        self._awake = asyncio.Event()
        self.ended = False
        """Nothing more will come: the server goes down."""

    def end(self) -> None:
        """Wake it up for the last time."""
        self.ended = True
        self._awake.set()

    def tell(self, note: Note) -> bool:
        """Queue a note. False: it was one too many, and all that waited are gone."""
        is_change = note.events is None and not note.ordered and not note.lagged
        if is_change and note.run_id in self._changed:
            return True
        too_much = len(self._notes) >= MOST_NOTES or self._weight + note.weight > MOST_WAITING
        if too_much and self._notes:
            self._drop_all()
            note = Note(note.run_id, lagged=True)
        elif is_change:
            self._changed.add(note.run_id)
        self._notes.append(note)
        self._weight += note.weight
        self._awake.set()
        return not note.lagged

    async def next(self, timeout: float | None = None) -> Note | None:
        """The next note; None when there was none in so many seconds, or nothing more will come."""
        while not self._notes:
            if self.ended:
                return None
            self._awake.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._awake.wait()
            except TimeoutError:
                return None
        return self._take()

    def waiting(self) -> list[Note]:
        """What is there at the moment, without waiting."""
        return [self._take() for _ in range(len(self._notes))]

    async def __aiter__(self) -> AsyncIterator[Note]:
        while (note := await self.next()) is not None:
            yield note

    def _take(self) -> Note:
        note = self._notes.popleft()
        self._weight -= note.weight
        if note.events is None:
            self._changed.discard(note.run_id)
        return note

    def _drop_all(self) -> None:
        self._notes.clear()
        self._changed.clear()
        self._weight = 0


class _Burst:
    """Events of one run that travel together."""

    __slots__ = ("events", "timer")

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self.timer: asyncio.TimerHandle | None = None


class Fanout:
    """Tells followers in this process, and the other server processes on the same database."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._followers: dict[str | None, set[Follower]] = {}
        self._bursts: dict[str, _Burst] = {}
        self._told: dict[str, int] = {}
        """The newest number that followers of a run were told of."""
        self._outgoing: dict[str, str] = {}
        self._has_outgoing = asyncio.Event()
        self._ended = False
        self.lagged = 0
        """How often a follower was too slow."""

    @property
    def followers(self) -> int:
        """How many follow something at the moment."""
        return sum(len(group) for group in self._followers.values())

    def events(self, run_id: str, events: Sequence[StoredEvent]) -> None:
        """Events of a run were stored."""
        if not events:
            return
        self._announce(f"e:{run_id}", str(events[-1].seq))
        self._hand_out(run_id, events)

    def changed(self, run_id: str) -> None:
        """What is derived from a run's events was replaced."""
        self._announce(f"c:{run_id}", "")
        self._tell_changed(run_id)

    def fell_silent(self, run_id: str) -> None:
        """Nobody drives a run any more: the other server processes see that for themselves."""
        self._tell_changed(run_id)

    def ordered(self, run_id: str) -> None:
        """An order was given to a run: workers that wait for one look at once."""
        self._announce(f"o:{run_id}", "")
        self._tell_ordered(run_id)

    @contextmanager
    def follow(self, run_id: str | None, *, only_orders: bool = False) -> Iterator[Follower]:
        """Be told what is new about a run, or of its orders alone; None: which runs changed."""
        follower = Follower(run_id)
        if self._ended:
            follower.end()
        key = f"{_ORDERS}{run_id}" if only_orders else run_id
        self._followers.setdefault(key, set()).add(follower)
        try:
            yield follower
        finally:
            group = self._followers[key]
            group.discard(follower)
            if not group:
                del self._followers[key]
                self._forget(key)

    def end(self) -> None:
        """Whoever follows is done: the server goes down."""
        self._ended = True
        for group in self._followers.values():
            for follower in group:
                follower.end()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Speak with the other server processes meanwhile."""
        tasks = [asyncio.create_task(work()) for work in (self._listen, self._speak)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for burst in self._bursts.values():
                if burst.timer is not None:
                    burst.timer.cancel()

    def _hand_out(self, run_id: str, events: Sequence[StoredEvent]) -> None:
        if run_id not in self._followers:
            return
        self._told[run_id] = max(self._told.get(run_id, 0), events[-1].seq)
        burst = self._bursts.get(run_id)
        if burst is None:
            self._bursts[run_id] = burst = _Burst()
            self._tell_events(run_id, tuple(events))
            burst.timer = asyncio.get_running_loop().call_later(BURST_SECONDS, self._end_burst, run_id)
            return
        burst.events.extend(events)
        if len(burst.events) >= BURST_EVENTS:
            self._tell_events(run_id, tuple(burst.events))
            burst.events.clear()

    def _end_burst(self, run_id: str) -> None:
        burst = self._bursts.get(run_id)
        if burst is None:
            return
        if not burst.events:
            del self._bursts[run_id]
            return
        self._tell_events(run_id, tuple(burst.events))
        burst.events.clear()
        burst.timer = asyncio.get_running_loop().call_later(BURST_SECONDS, self._end_burst, run_id)

    def _tell_events(self, run_id: str, events: tuple[StoredEvent, ...]) -> None:
        self._tell(run_id, Note(run_id, events))

    def _tell_changed(self, run_id: str) -> None:
        note = Note(run_id)
        self._tell(run_id, note)
        self._tell(None, note)

    def _tell_ordered(self, run_id: str) -> None:
        self._tell(f"{_ORDERS}{run_id}", Note(run_id, ordered=True))

    def _tell(self, key: str | None, note: Note) -> None:
        for follower in self._followers.get(key, ()):
            if not follower.tell(note) and not note.lagged:
                self.lagged += 1

    def _forget(self, run_id: str | None) -> None:
        if run_id is None:
            return
        self._told.pop(run_id, None)
        burst = self._bursts.pop(run_id, None)
        if burst is not None and burst.timer is not None:
            burst.timer.cancel()

    def _announce(self, topic: str, detail: str) -> None:
        self._outgoing[topic] = detail
        self._has_outgoing.set()

    async def _speak(self) -> None:
        """What is new again before it was said is said once."""
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing.clear()
            outgoing, self._outgoing = self._outgoing, {}
            for topic, detail in outgoing.items():
                # Told or not, it is stored: those who follow elsewhere see it with the next word.
                with suppress(ServeError):
                    await self._archive.announce(f"{topic}:{detail}" if detail else topic)
            await asyncio.sleep(BURST_SECONDS)

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear(await self._archive.heard())
            except Exception as trouble:  # noqa: BLE001 - the supervisor of this task: it must never end
                _log.warning("what other server processes say was not heard: %r", trouble)
                self._tell_missed()
                await asyncio.sleep(_AFTER_TROUBLE)

    def _tell_missed(self) -> None:
        """Something was said elsewhere that did not come here: everybody looks for themselves."""
        for key in [*self._followers]:
            self._tell(key, Note((key or "").removeprefix(_ORDERS), lagged=True))

    async def _hear(self, topic: str) -> None:
        if topic == MISSED:
            self._tell_missed()
            return
        what, _, rest = topic.partition(":")
        run_id, _, seq = rest.partition(":")
        if what == "c":
            self._tell_changed(run_id)
        elif what == "o":
            self._tell_ordered(run_id)
        elif what == "e" and run_id in self._followers and seq.isdecimal():
            await self._fetch(run_id, int(seq))

    async def _fetch(self, run_id: str, seq: int) -> None:
        """Events that another process stored: read once, for all who follow here."""
        told = self._told.get(run_id)
        if told is None:
            self._told[run_id] = seq
            self._tell(run_id, Note(run_id, lagged=True))
            return
        while told < seq:
            page = await self._archive.events.read(run_id, EventFilter(after=told, limit=_READ_AT_ONCE))
            if not page:
                return
            told = page[-1].seq
            self._hand_out(run_id, page)
