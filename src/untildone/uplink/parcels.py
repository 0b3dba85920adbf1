"""What travels beside the events so that another machine can go on: conversation, notes and tree, newest wins.

Packed after each iteration, at every stop, and now and then within an iteration, beside the run: whatever becomes of
it, the run is neither hurt nor held up. What a parcel is made of is no business of this file.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from untildone.core.events import (
    ContinuousCompleted,
    ContinuousSuspended,
    ContinuousWarning,
    Event,
    IterationCompleted,
    IterationFailed,
    LandingCommitted,
    LandingPrepared,
    LandingSnapshot,
)
from untildone.core.state import LoopState
from untildone.errors import StoreError, UntildoneError, UplinkDown, UplinkRefused
from untildone.ports import EventLog, Parcel, Uplink

TREE = "tree"
NOTES = "notes"
TRANSCRIPT = "transcript/"
"""What the parcel with the transcripts of a session is called, before its id."""

COMPANY = 0.5
"""Seconds in which several reasons to pack become one."""
EVERY = 60.0
"""Seconds between two looks while an iteration is under way: what may be lost with the machine."""
SHARE = 20
"""Packing takes at most one part in so many of the time,"""
LONGEST_PAUSE = 15.0
"""unless what another machine could go on with would be older than so many seconds."""
FIRST_REST = 2.0
LONGEST_REST = 60.0
"""Seconds between two tries while the server does not answer."""

Made = tuple[str, bytes]
"""What tells a parcel from others, and its content."""
Source = Callable[[str], Awaitable[Made | None]]
"""Makes a parcel anew; None when there is nothing to send, or nothing but what the given mark says."""
Sources = Callable[[LoopState], Mapping[str, Source]]
"""What there is to pack of a run that stands so, by the names of the parcels."""

_REASONS = (
    IterationCompleted, IterationFailed, LandingCommitted, LandingSnapshot, LandingPrepared,
    ContinuousSuspended, ContinuousCompleted,
)  # fmt: skip


class Packer:
    """Packs what changed, and sends it."""

    def __init__(
        self,
        log: EventLog,
        run_id: str,
        *,
        state: Callable[[], LoopState],
        sources: Sources,
        tell: Callable[[Event], Awaitable[None]],
        every: float = EVERY,
    ) -> None:
        self._log, self._run_id, self._state, self._sources, self._tell = log, run_id, state, sources, tell
        self._every = every
        self._sent: dict[str, str] = {}
        """Marks of what the server has, or will not have."""
        self._losses = 0
        self._told: set[str] = set()
        self._due = asyncio.Event()
        self._rest = FIRST_REST
        self._refused = False

    @asynccontextmanager
    async def beside(self, uplink: Uplink) -> AsyncIterator[None]:
        """While inside, parcels are packed and sent; at the end once more."""
        work = [asyncio.create_task(part) for part in (self._watch(), self._pack_for_ever(uplink))]
        try:
            yield
            await _end(work)
            with suppress(UplinkDown):
                await self.pack(uplink)
        finally:
            await _end(work)

    async def pack(self, uplink: Uplink) -> None:
        """Send all that changed. UplinkDown when nobody answers: the rest is still to be sent."""
        state = self._state()
        if self._losses != uplink.losses:
            self._losses = uplink.losses
            self._sent.clear()
        for name, source in self._sources(state).items():
            if self._refused:
                return
            made = await self._made(name, source)
            if made is not None:
                parcel = Parcel(name=name, content=made[1], seq=state.last_seq, tenure=state.tenure)
                await self._send(uplink, parcel, made[0])

    async def _made(self, name: str, source: Source) -> Made | None:
        try:
            return await source(self._sent.get(name, ""))
        except UntildoneError as trouble:
            await self._say(f"another machine could not continue this run: {trouble}")
            return None

    async def _send(self, uplink: Uplink, parcel: Parcel, mark: str) -> None:
        try:
            await uplink.put(self._run_id, parcel)
        except UplinkRefused as refused:
            self._refused = refused.taken or await self._was_taken(uplink)
            if not self._refused:
                await self._say(f"another machine could not continue this run: {refused}")
        self._sent[parcel.name] = mark

    async def _was_taken(self, uplink: Uplink) -> bool:
        """Whether another machine has the run by now: only who speaks for it is told."""
        try:
            await uplink.send(self._run_id, [], tenure=self._state().tenure)
        except UplinkRefused as refused:
            return refused.taken
        except UplinkDown:
            pass
        return False

    async def _watch(self) -> None:
        """Notice what is a reason to pack. Trouble with the store is told by the run itself."""
        while True:
            with suppress(StoreError):
                async for record in self._log.follow(self._run_id, after=self._state().last_seq):
                    if isinstance(record.event, _REASONS):
                        self._due.set()
            await asyncio.sleep(FIRST_REST)

    async def _pack_for_ever(self, uplink: Uplink) -> None:
        self._due.set()
        pause = COMPANY
        while not self._refused:
            await self._reason()
            await asyncio.sleep(pause)
            self._due.clear()
            began = asyncio.get_running_loop().time()
            try:
                await self.pack(uplink)
            except UplinkDown:
                self._due.set()
                pause, self._rest = self._rest, min(2 * self._rest, LONGEST_REST)
                continue
            self._rest = FIRST_REST
            pause = min(max(COMPANY, SHARE * (asyncio.get_running_loop().time() - began)), LONGEST_PAUSE)

    async def _reason(self) -> None:
        """Return when something is to be packed: what happened, or a long time without anything."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._due.wait()
                return
            if self._state().open is not None:
                return

    async def _say(self, line: str) -> None:
        """Each line once: the log is no place for the same trouble every minute."""
        if line in self._told:
            return
        self._told.add(line)
        with suppress(UntildoneError):
            await self._tell(ContinuousWarning(message=line))


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
