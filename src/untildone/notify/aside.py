"""Run something that may block, where it can hold up nothing: not the loop, and not the end of the program."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T], *, within: float) -> T:
    """What `work` answers or raises; TimeoutError when it takes too long: it is then left to itself.

    Not in the event loop's own threads: the program would wait for those at its end, however long a server is silent.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(how: Callable[[], None]) -> None:
        if not answer.done():  # else nobody waits any more
            how()

    def run() -> None:
        try:
            how = partial(answer.set_result, work())
        except Exception as broken:  # noqa: BLE001 - carried to whoever waits
            how = partial(answer.set_exception, broken)
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(settle, how)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return await asyncio.wait_for(answer, within)
