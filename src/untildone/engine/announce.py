"""Tell humans far away what happens. Whatever becomes of it, the run is neither hurt nor held up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from untildone.core.events import ContinuousWarning, Record
from untildone.core.notice import Note, broken_off, is_repetition, note_for
from untildone.core.state import LoopState
from untildone.core.stopping import Reason
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.errors import LeaseLost, StoreError, UntildoneError
from untildone.ports import Clock, Notifier

WAITING_NOTES = 20
"""Notes kept for a channel that is slow; then the oldest is dropped, since the newest says more."""
SEND_PATIENCE = 60.0
"""Seconds one delivery may take, whatever the channel itself promises."""
LAST_WORDS = 5.0
"""Seconds at the end of a run for notes that are still on their way."""
LAST_WORDS_IN_A_HURRY = 1.0
"""The same when somebody pressed Ctrl+C, and therefore knows."""


class Channel:
    """A notifier, the notes that wait for it, and whether its trouble was told."""

    def __init__(self, notifier: Notifier) -> None:
        self.notifier = notifier
        self.notes: asyncio.Queue[Note] = asyncio.Queue(WAITING_NOTES)
        self.is_in_trouble = False
        self.is_busy = False

    def offer(self, note: Note) -> None:
        """Never waits."""
        if self.notes.full():
            self.notes.get_nowait()
            self.notes.task_done()
        self.notes.put_nowait(note)

    @property
    def is_behind(self) -> bool:
        return self.is_busy or not self.notes.empty()

    async def deliver(self, note: Note) -> str:
        """Send one note: "" or one line of trouble."""
        try:
            async with asyncio.timeout(SEND_PATIENCE):
                return await self.notifier.send(note)
        except TimeoutError:
            return f"no answer within {SEND_PATIENCE:g} s"
        except Exception as broken:  # noqa: BLE001 - somebody else's code must not end a night's work
            return type(broken).__name__


class Announcer:
    """Turns what is folded into notes, and serves every channel by a task of its own."""

    def __init__(self, journal: Journal, notifiers: list[Notifier], clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._channels = [Channel(notifier) for notifier in notifiers]
        self._told: dict[str, float] = {}

    def folded(self, before: LoopState, record: Record, after: LoopState) -> None:
        """Queue the note this record calls for, if any."""
        note = note_for(before, record, after, self._clock.now())
        if note is None or is_repetition(note, self._told):
            return
        self._told[note.topic] = note.at
        self._offer(note)

    def broke_off(self, trouble: StoreError) -> None:
        """Tell what cannot be recorded any more."""
        if self._journal.state.run_id:
            self._offer(broken_off(self._journal.state, str(trouble), self._clock.now()))

    def _offer(self, note: Note) -> None:
        for channel in self._channels:
            channel.offer(note)

    def start(self) -> list[asyncio.Task[None]]:
        """One task for each channel: a slow one holds up no other."""
        return [asyncio.create_task(self._serve(channel)) for channel in self._channels]

    async def finish(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait a little for what is still on its way, then let go."""
        hurry = self._journal.state.stop_reason == Reason.SHUTDOWN_SIGNAL
        try:
            async with asyncio.timeout(LAST_WORDS_IN_A_HURRY if hurry else LAST_WORDS):
                await asyncio.gather(*(channel.notes.join() for channel in self._channels))
        except TimeoutError:
            for channel in self._channels:
                if channel.is_behind:
                    await self._warn(channel, "it did not answer in time")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            with suppress(UntildoneError):
                await self._journal.flush()

    async def _serve(self, channel: Channel) -> None:
        while True:
            note = await channel.notes.get()
            channel.is_busy = True
            if trouble := await channel.deliver(note):
                await self._warn(channel, trouble)
            channel.is_busy = False
            channel.notes.task_done()

    async def _warn(self, channel: Channel, trouble: str) -> None:
        """Once for each channel: the run's own log is no place for a broken telephone's."""
        if channel.is_in_trouble:
            return
        channel.is_in_trouble = True
        with suppress(UntildoneError):  # a store that fails stops the run by itself
            await self._journal.tell(ContinuousWarning(message=f"{channel.notifier.name} was not told: {trouble}"))


@asynccontextmanager
async def announcing(journal: Journal, parts: Parts) -> AsyncIterator[None]:
    """While inside, and a little longer, what happens is told to every channel."""
    if not parts.notifiers:
        yield
        return
    announcer = Announcer(journal, list(parts.notifiers), parts.clock)
    journal.on_fold = announcer.folded
    tasks = announcer.start()
    try:
        yield
    except LeaseLost:
        raise  # the run goes on with another driver, which tells by itself
    except StoreError as trouble:
        announcer.broke_off(trouble)
        raise
    finally:
        await announcer.finish(tasks)
