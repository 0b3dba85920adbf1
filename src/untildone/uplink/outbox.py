"""What a run wrote down, on its way to a server: in order, each event once, whatever dies in between.

The log is the queue and the server says how far it has come, so that nothing has to be remembered here. The run is
neither hurt nor held up, whatever becomes of it.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import msgspec

from untildone.core.codec import encode, event_kind, event_type, event_version
from untildone.core.dataclass import dataclass
from untildone.core.events import Record, Unknown
from untildone.core.figures import count
from untildone.core.wire import Receipt
from untildone.errors import StoreError, UntildoneError, UplinkDown, UplinkRefused
from untildone.ports import EventLog, Uplink

BATCH_EVENTS = 500
BATCH_BYTES = 1 << 20
COMPANY = 0.3
"""Seconds that events for eyes only wait for company; what decides does not wait."""
HEARTBEAT = 30.0
FIRST_REST = 0.5
LONGEST_REST = 30.0
"""Seconds between two tries."""
REFUSED_REST = 60.0
LONGEST_REFUSED_REST = 600.0
"""Seconds between two tries after a refusal: a token is mended, a proxy set right, and the run goes on for days."""
TOLD_AFTER = 2
"""Failures in a row after which somebody is told: a server that is being restarted is nobody's business."""
CUT_TO = 16 << 10
"""Bytes that are left of an event that is too large for the way."""
LARGE = 1 << 10
"""Bytes of one value, from which it is left out then."""
MOST_LEFT = 10_000
"""More than so many events that wait are not counted."""

Say = Callable[[str], Awaitable[None]]


async def _nobody(_: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What could not be delivered yet."""

    events: int
    why: str
    """The last trouble; empty: it only takes longer."""

    @property
    def text(self) -> str:
        """In one line; nothing when nothing is left."""
        if not self.events:
            return ""
        many = f"more than {MOST_LEFT:,} events" if self.events > MOST_LEFT else count(self.events, "event")
        return f"{many} still to be delivered" + (f" ({self.why})" if self.why else "")


class Outbox:
    """Copies one run to one server."""

    def __init__(
        self,
        log: EventLog,
        run_id: str,
        uplink: Uplink,
        *,
        tenure: Callable[[], int] = lambda: 0,
        say: Say = _nobody,
        heard: Callable[[Receipt], None] = lambda _: None,
        heartbeat: float | None = HEARTBEAT,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`heard` is told every receipt; without a `heartbeat` a run that rests is silent."""
        self.delivered = 0
        """The newest number the server is known to have."""
        self.refused: UplinkRefused | None = None
        """Why the server will not have it, as long as that is so; it is the end only when the run was taken over."""
        self._log, self._run_id, self._uplink = log, run_id, uplink
        self._tenure, self._say, self._heard = tenure, say, heard
        self._heartbeat, self._jitter = heartbeat, jitter
        self._failures = self._refusals = 0
        self._most = BATCH_EVENTS
        self._trouble = ""
        self._was_told = self._refusal_was_told = self._cut_was_told = False
        self._took_again = False
        self._hurry = asyncio.Event()
        self._progress = asyncio.Event()

    async def run(self) -> None:
        """Deliver what is there and what comes, until cancelled or until another machine has the run."""
        while self.refused is None or not self.refused.taken:
            try:
                await self._try()
            except UplinkRefused as refused:
                await self._refuse(refused)
            except UplinkDown as down:
                await self._rest(str(down), seldom=down.seldom)
            except StoreError as trouble:  # the run itself says what is wrong with its store
                await self._rest(str(trouble))

    async def first_word(self) -> None:
        """Speak for the run once, before anything is done. UplinkRefused, `taken`: another machine has it by now."""
        receipt = await self._received()
        if receipt.last_seq:
            await self._spoken([])

    async def settle(self, patience: float, *, hurry: bool = True) -> Left:
        """Wait until all that is in the log by now has been delivered, at most so many seconds. `run` does the work."""
        if hurry:
            self._hurry.set()
            if self.refused is not None and not self.refused.taken:
                self.refused = None  # it is tried once more
        with suppress(TimeoutError, UntildoneError):
            async with asyncio.timeout(patience):
                goal = await self._newest()
                while self.delivered < goal and self.refused is None:
                    self._progress.clear()
                    await self._progress.wait()
        return await self.left()

    async def left(self) -> Left:
        """What the server does not have yet, as far as is known."""
        why = str(self.refused) if self.refused is not None else self._trouble
        try:
            waiting = await self._log.read(self._run_id, after=self.delivered, trace=True, limit=MOST_LEFT + 1)
        except StoreError:
            return Left(events=0, why=why)
        return Left(events=len(waiting), why=why)

    async def _try(self) -> None:
        try:
            await self._deliver()
        except UplinkRefused as refused:
            if refused.behind is None or self._took_again:
                raise
            self._took_again = True
            await self._take_again(refused.behind)

    async def _take_again(self, behind: int) -> None:
        """A server that was put back to an older state has forgotten that we took the run over: it is told again."""
        tenure = self._tenure()
        try:
            while behind < tenure:
                now = await self._uplink.take(self._run_id, tenure=behind)
                if now != behind + 1:
                    raise UplinkDown("the server gives the run away in a way that nobody asked for")
                behind = now
        except UplinkRefused as refused:
            # Whether somebody else has it by now is told to who speaks for it: only that is the end.
            raise UplinkRefused(str(refused)) from None

    async def _deliver(self) -> None:
        """One connection: what the server has is asked for anew, since it may have lost or got more than we know."""
        receipt = await self._received()
        if receipt.last_seq:
            # Nothing of ours may be wanted any more: only who speaks is told that another machine has the run by now.
            receipt = await self._spoken([])
        await self._take(receipt)
        async with self._batches(self.delivered) as batches:
            async for batch in batches:
                receipt = await self._sent(batch)
                known = batch[-1].seq if batch else self.delivered
                await self._take(receipt, sent=known)
                if receipt.last_seq < known:
                    raise UplinkDown("the server has lost some of what it had")

    async def _spoken(self, records: list[Record]) -> Receipt:
        receipt = await self._uplink.send(self._run_id, records, tenure=self._tenure())
        self._took_again = False
        return receipt

    async def _sent(self, batch: list[Record]) -> Receipt:
        try:
            return await self._spoken(batch)
        except UplinkRefused as refused:
            if not refused.too_large or not batch:
                raise
            if len(batch) == 1:
                return await self._sent_cut(batch[0], refused)
            self._most = len(batch) // 2
            # In halves, in order: what the first one brought is known when the second fails.
            await self._sent(batch[: self._most])
            return await self._sent(batch[len(batch) // 2 :])

    async def _sent_cut(self, record: Record, refused: UplinkRefused) -> Receipt:
        """One event that is too large for the way: that it happened is told, and the log here keeps the whole."""
        for most in (CUT_TO, 0):
            try:
                receipt = await self._spoken([_cut(record, most)])
            except UplinkRefused as still:
                if not still.too_large:
                    raise
                continue
            self._most = BATCH_EVENTS
            if not self._cut_was_told:
                self._cut_was_told = True
                await self._tell(f"event {record.seq} is too large for the way to the server: it gets the outline only")
            return receipt
        raise refused

    async def _received(self) -> Receipt:
        try:
            return await self._uplink.received(self._run_id)
        except UplinkRefused:
            # Only who speaks for a run is told that another machine has it by now.
            return await self._spoken([])

    async def _take(self, receipt: Receipt, sent: int = 0) -> None:
        """`sent`: what it has for sure. More than that must at least be in the log, or somebody forged it."""
        last = receipt.last_seq
        if last > sent and not await self._log.read(self._run_id, after=last - 1, trace=True, limit=1):
            raise UplinkRefused(
                "the server says that it has more of this run than there is: somebody else reports in its name"
            )
        self.delivered = last
        self._failures, self._trouble = 0, ""
        self._refusals, self.refused = 0, None
        self._progress.set()
        self._heard(receipt)

    @asynccontextmanager
    async def _batches(self, after: int) -> AsyncIterator[AsyncIterator[list[Record]]]:
        # Following is a task of its own: a wait for the next record that is given up would end it.
        queue: asyncio.Queue[Record] = asyncio.Queue(BATCH_EVENTS)
        reader = asyncio.create_task(self._follow(after, queue))
        batches = self._gathered(queue, reader)
        try:
            yield batches
        finally:
            await batches.aclose()
            reader.cancel()
            await asyncio.wait([reader])

    async def _follow(self, after: int, queue: asyncio.Queue[Record]) -> None:
        async for record in self._log.follow(self._run_id, after=after, trace=True):
            await queue.put(record)

    async def _gathered(
        self, queue: asyncio.Queue[Record], reader: asyncio.Task[None]
    ) -> AsyncGenerator[list[Record], None]:
        """What is to be sent together; nothing, when it is time for a sign of life."""
        over: Record | None = None
        while True:
            first = over or await self._next(queue, reader, self._heartbeat)
            over = None
            batch = [] if first is None else [first]
            if first is not None:
                over = await self._fill(batch, queue, reader)
            yield batch

    async def _fill(
        self, batch: list[Record], queue: asyncio.Queue[Record], reader: asyncio.Task[None]
    ) -> Record | None:
        """Add what belongs into the same batch; returns one that does not fit any more."""
        size = len(encode(batch[0].event))
        urgent = event_kind(batch[0].event) == "control"
        ends = asyncio.get_running_loop().time() + COMPANY
        while len(batch) < self._most:
            rest = 0.0 if urgent or self._hurry.is_set() else ends - asyncio.get_running_loop().time()
            record = await self._next(queue, reader, rest)
            if record is None:
                return None
            size += len(encode(record.event))
            if size > BATCH_BYTES:
                return record
            batch.append(record)
            urgent = urgent or event_kind(record.event) == "control"
        return None

    async def _next(
        self, queue: asyncio.Queue[Record], reader: asyncio.Task[None], wait: float | None
    ) -> Record | None:
        """The next record; None when there is none within so many seconds."""
        if queue.empty() and wait is not None and wait <= 0:
            await asyncio.sleep(0)  # the reader may have one in hand
        if not queue.empty():
            return queue.get_nowait()
        if wait is not None and wait <= 0:
            return None
        getting = asyncio.ensure_future(queue.get())
        try:
            await asyncio.wait([getting, reader], timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
        finally:
            getting.cancel()
        if reader.done():
            reader.result()  # following never ends by itself: what is wrong with the store is raised here
        return None

    async def _refuse(self, refused: UplinkRefused) -> None:
        self.refused = refused
        self._refusals += 1
        self._progress.set()
        if refused.taken:
            await self._tell(f"nothing more of this run is reported: {refused}")
            return
        if not self._refusal_was_told:
            self._refusal_was_told = True
            await self._tell(f"nothing of this run is reported until that is mended: {refused}")
        await self._pause(min(LONGEST_REFUSED_REST, REFUSED_REST * 2 ** min(self._refusals - 1, 10)))

    async def _rest(self, trouble: str, *, seldom: bool = False) -> None:
        self._failures += 1
        self._trouble = trouble
        if self._failures >= TOLD_AFTER and not self._was_told:
            self._was_told = True
            await self._tell(f"what happens cannot be reported at the moment and will be later: {trouble}")
        first, most = (REFUSED_REST, LONGEST_REFUSED_REST) if seldom else (FIRST_REST, LONGEST_REST)
        await self._pause(min(most, first * 2 ** min(self._failures - 1, 10)))

    async def _pause(self, longest: float) -> None:
        was_set = self._hurry.is_set()
        with suppress(TimeoutError):
            async with asyncio.timeout(longest * (0.5 + self._jitter() / 2)):
                await self._hurry.wait()
        if was_set:
            # The run is over and somebody waits: go on trying, but neither seldom nor without a rest.
            await asyncio.sleep(min(longest, FIRST_REST))

    async def _tell(self, line: str) -> None:
        """The run's own log is no place for a broken line's: each kind of trouble is told once."""
        with suppress(UntildoneError):
            await self._say(line)

    async def _newest(self) -> int:
        """The newest number in the log that the server may lack."""
        after = self.delivered
        while records := await self._log.read(self._run_id, after=after, trace=True, limit=BATCH_EVENTS):
            after = records[-1].seq
        return after


def _cut(record: Record, most: int) -> Record:
    """The same event with what is small of its payload, at most so many bytes, and how much that leaves out."""
    event, data = record.event, encode(record.event)
    kept: dict[str, object] = {}
    left = most
    with suppress(ValueError, RecursionError):
        for name, value in msgspec.json.decode(data, type=dict[str, msgspec.Raw]).items():
            size = len(name) + len(value)
            if size < min(LARGE, left):
                kept[name], left = value, left - size
    kept["left_out_bytes"] = len(data) - (most - left)
    outline = Unknown(
        type=event_type(event),
        version=event_version(event),
        kind=event_kind(event),
        data=msgspec.json.encode(kept),
    )
    return replace(record, event=outline)
