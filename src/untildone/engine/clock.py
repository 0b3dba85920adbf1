"""The real clock."""

import asyncio
import time


class SystemClock:
    """Time as the machine tells it."""

    def now(self) -> float:
        return time.time()  # noqa: TID251 - this is the Clock port's own implementation

    def steady(self) -> float:
        """Time in which the machine is suspended does not count."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
