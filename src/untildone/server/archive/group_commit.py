"""Many requests, one transaction: whatever waits when the database is free is committed together."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from untildone.core.wire import Receipt
from untildone.errors import SenderRefused, ServeError
from untildone.server.archive.accepting import Offer

_log = logging.getLogger(__name__)

Answer = Receipt | SenderRefused
Flush = Callable[[list[Offer]], Awaitable[list[Answer]]]
"""Commit all of these, durably, in one transaction; ServeError when the database does not answer."""

MOST_EVENTS = 5_000
MOST_CHARS = 16 * 2**20
FAILED_FOR = 60.0
"""Seconds for which a write that failed counts: whoever is told of it may send no more, and none would be tried."""


class GroupCommit:
    """A queue before a database, emptied by one task."""

    def __init__(self, flush: Flush) -> None:
        self._flush = flush
        self._waiting: deque[tuple[Offer, asyncio.Future[Receipt]]] = deque()
        self._wake = asyncio.Event()
        self._closed = False
        self._failed_at: float | None = None
        self._task = asyncio.create_task(self._work(), name="archive intake")

    async def keep(self, offer: Offer) -> Receipt:
        """Wait until it is durable, or refused."""
        if self._closed:
            raise ServeError("the server is closing: try again in a moment")
        done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append((offer, done))
        self._wake.set()
        return await done

    def must_work(self) -> None:
        """ServeError when the newest write has failed, and that was a moment ago."""
        if self._failed_at is not None and asyncio.get_running_loop().time() - self._failed_at < FAILED_FOR:
            raise ServeError("nothing can be written to the database")

    async def close(self) -> None:
        """Commit what waits, then stop."""
        self._closed = True
        self._wake.set()
        await self._task

    async def _work(self) -> None:
        while not self._closed or self._waiting:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            group = self._next()
            try:
                answers = await self._answers([offer for offer, _ in group])
            except ServeError as trouble:
                self._failed_at = asyncio.get_running_loop().time()
                # Those who came meanwhile would only wait for the same to happen once more.
                self._fail([*group, *self._waiting], trouble)
                self._waiting.clear()
                continue
            self._failed_at = None
            for (_, done), answer in zip(group, answers, strict=True):
                _settle(done, answer)

    def _next(self) -> list[tuple[Offer, asyncio.Future[Receipt]]]:
        group = []
        events, chars = 0, 0
        while self._waiting and events < MOST_EVENTS and chars < MOST_CHARS:
            group.append(self._waiting.popleft())
            offered = group[-1][0].events
            events += len(offered)
            chars += sum(len(event.data) for event in offered)
        return group

    async def _answers(self, offers: list[Offer]) -> list[Answer]:
        try:
            return await self._flush(offers)
        except ServeError:
            raise
        except Exception as unfit:  # noqa: BLE001 - whatever a database dislikes in one request must not fail the others
            if len(offers) == 1:
                _log.warning("events of run %s cannot be stored: %r", offers[0].run_id, unfit)
                return [SenderRefused("these events cannot be stored: the database refuses them")]
            return [(await self._answers([offer]))[0] for offer in offers]

    def _fail(self, group: list[tuple[Offer, asyncio.Future[Receipt]]], trouble: ServeError) -> None:
        for _, done in group:
            if not done.done():
                done.set_exception(ServeError(str(trouble)))


class Lanes:
    """Several queues side by side, each with a connection of its own; a run always takes the same."""

    def __init__(self, flushes: Sequence[Flush]) -> None:
        self._lanes = [GroupCommit(flush) for flush in flushes]

    async def keep(self, offer: Offer) -> Receipt:
        """Wait until it is durable, or refused."""
        return await self._lanes[hash(offer.run_id) % len(self._lanes)].keep(offer)

    def must_work(self) -> None:
        """ServeError when the newest write of any has failed, and that was a moment ago."""
        for lane in self._lanes:
            lane.must_work()

    async def close(self) -> None:
        """Commit what waits, then stop."""
        await asyncio.gather(*(lane.close() for lane in self._lanes))


def _settle(done: asyncio.Future[Receipt], answer: Answer) -> None:
    if done.done():  # whoever asked has gone
        return
    if isinstance(answer, Receipt):
        done.set_result(answer)
    else:
        done.set_exception(answer)
