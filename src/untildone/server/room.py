"""Room for bodies of requests: how many bytes of them may be in memory at one time, and how much of it is one's own.

Whoever shows a key has a share of their own. All who show none have one together, and it is never all there is.
"""

import asyncio
from collections import Counter, deque

WAIT_SECONDS = 5.0
"""For room, before a request is told to come again."""


class Room:
    """Bytes that are taken, and given back."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._left = most
        self._most_of_one = most_of_one
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    def held(self, who: str) -> int:
        """What somebody has at the moment."""
        return self._held[who]

    async def take(self, who: str, amount: int) -> bool:
        """Take so many bytes, as soon as there is room; False: there was none for long."""
        if who not in self._waiting and self._fits(who, amount):
            self._grant(who, amount)
            return True
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append((amount, granted))
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await granted
        except TimeoutError:
            # It may have come at the very last moment.
            return granted.done() and not granted.cancelled()
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give_back(who, amount)
            raise
        finally:
            if granted.cancelled():
                self._leave(who, (amount, granted))
        return True

    def give_back(self, who: str, amount: int) -> None:
        """It is not needed any more: whoever waits may have it."""
        self._left += amount
        self._held[who] -= amount
        if self._held[who] <= 0:
            del self._held[who]
        if self._waiting:
            self._serve()

    def _fits(self, who: str, amount: int) -> bool:
        return amount <= self._left and self._held[who] + amount <= self._most_of_one

    def _grant(self, who: str, amount: int) -> None:
        self._left -= amount
        self._held[who] += amount

    def _serve(self) -> None:
        """Each in turn, of each who waits: nobody stands behind somebody else's."""
        for who, line in list(self._waiting.items()):
            while line and (line[0][1].done() or self._fits(who, line[0][0])):
                amount, granted = line.popleft()
                if not granted.done():
                    self._grant(who, amount)
                    granted.set_result(None)
            if not line:
                del self._waiting[who]

    def _leave(self, who: str, mine: tuple[int, asyncio.Future[None]]) -> None:
        line = self._waiting.get(who, deque())
        if mine in line:
            line.remove(mine)
        if not line:
            self._waiting.pop(who, None)
        # Whoever stood behind may want less.
        self._serve()
