"""The real clock."""

import asyncio
import time


class SystemClock:
    """Time as the machine tells it."""

    def now(self) -> float:
        return time.time()  # noqa: TID251 - this is the Clock port's own implementation

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
