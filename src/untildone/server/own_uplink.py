"""The server as a driver in its own process reaches it: the same port as over HTTP, without the way."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from untildone.core.codec import encode, event_kind, event_type, event_version
from untildone.core.event import Record
from untildone.core.wire import Order, Receipt
from untildone.errors import SenderRefused, ServeError, UplinkDown, UplinkRefused
from untildone.ports import Clock
from untildone.ports.uplink import Parcel
from untildone.server.archive.port import LOCAL, Archive, Origin, Sender, StoredEvent
from untildone.server.fanout import Fanout
from untildone.uplink.dressing import veiled
from untildone.uplink.masking import Masking


class OwnUplink:
    """An `Uplink` that ends where it begins."""

    def __init__(
        self,
        archive: Archive,
        fanout: Fanout,
        clock: Clock,
        touch: Callable[[str], None],
        *,
        sandbox_id: str = LOCAL,
        origin: Origin = "local",
    ) -> None:
        """`touch` is told which run has new events."""
        self.losses = 0  # nothing is packed for it, so nobody asks
        self._archive = archive
        self._fanout = fanout
        self._clock = clock
        self._touch = touch
        self._sandbox_id = sandbox_id
        self._origin = origin
        self._masking = Masking()

    async def received(self, run_id: str) -> Receipt:
        """How much of a run the archive has."""
        async with _as_seen_by_workers():
            entry = await self._archive.runs.entry(run_id)
            if entry is None:
                return Receipt(last_seq=0)
            if (entry.sandbox_id, entry.origin) != (self._sandbox_id, self._origin):
                raise UplinkRefused(f"run {run_id} is reported by {entry.sandbox_id}")
            return Receipt(last_seq=entry.last_seq, orders=await self._archive.orders.newest(run_id))

    async def send(
        self, run_id: str, records: Sequence[Record], *, tenure: int = 0, now: float | None = None
    ) -> Receipt:
        """Keep records. `now`: the moment at which the run counts as heard of, if it is not this one."""
        events = [_stored(record, self._masking) for record in records]
        sender = Sender(sandbox_id=self._sandbox_id, origin=self._origin, tenure=tenure)
        moment = self._clock.now() if now is None else now
        async with _as_seen_by_workers():
            receipt = await self._archive.events.receive(sender, run_id, events, now=moment)
        if receipt.stored:
            self._fanout.events(run_id, events)
            self._touch(run_id)
        return receipt

    async def take(self, run_id: str, *, tenure: int) -> int:
        """Have the run sent from here."""
        async with _as_seen_by_workers():
            new = await self._archive.runs.take_over(
                run_id, sandbox_id=self._sandbox_id, tenure=tenure, origin=self._origin
            )
            if new is None:
                raise SenderRefused(f"another machine has taken run {run_id} over", taken=True)
            return new

    async def orders(self, run_id: str, *, after: int, wait: float) -> list[Order]:
        """Orders with higher numbers; waits for the first one."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait
        async with _as_seen_by_workers():
            with self._fanout.follow(run_id, only_orders=True) as follower:
                while True:
                    found = await self._archive.orders.after(run_id, after, now=self._clock.now())
                    rest = ends - loop.time()
                    if found or rest <= 0 or follower.ended:
                        return found
                    await follower.next(rest)

    async def put(self, run_id: str, parcel: Parcel) -> None:
        """Keep a parcel."""
        async with _as_seen_by_workers():
            await self._archive.parcels.put(
                run_id, parcel.name, parcel.content, seq=parcel.seq, now=self._clock.now(), tenure=parcel.tenure
            )

    async def close(self) -> None:
        """Nothing is open."""


@asynccontextmanager
async def _as_seen_by_workers() -> AsyncIterator[None]:
    """Trouble of the server's as the port names it."""
    try:
        yield
    except SenderRefused as refused:
        raise UplinkRefused(str(refused), taken=refused.taken, behind=refused.behind) from refused
    except ServeError as down:
        raise UplinkDown(str(down)) from down


def _stored(record: Record, masking: Masking) -> StoredEvent:
    """As others may see it, who can look at the server but not into the log of this machine."""
    event = veiled(record.event)
    kind, data = event_kind(event), encode(event)
    # What the agent and the checks said was looked through when it was written; what the user wrote was not.
    shown = masking.payload(data) if kind == "control" else data
    return StoredEvent(
        seq=record.seq,
        at=record.at,
        kind=kind,
        type=event_type(event),
        source=event.SOURCE,
        version=event_version(event),
        data=shown.decode("utf-8", "replace"),
    )
