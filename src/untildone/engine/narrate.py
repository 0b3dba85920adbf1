"""Telling who watches what takes so long."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from untildone.core import events as ev
from untildone.ports.delivery import Progress

NOTICEABLE = 1.0
"""Seconds a step may take before people want to know which one it is."""


class Listener(Protocol):
    """Who is told: a run's journal."""

    async def tell(self, event: ev.WitnessAtWork) -> None: ...


@contextmanager
def narrating(journal: Listener, noticeable: float = NOTICEABLE) -> Iterator[Progress]:
    """While inside, a step that takes longer than a moment is told; quick ones are not worth a line."""
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.TimerHandle] = []
    telling: set[asyncio.Task[None]] = set()

    def tell(said: str) -> None:
        task = loop.create_task(journal.tell(ev.WitnessAtWork(said=said)))
        telling.add(task)
        task.add_done_callback(telling.discard)

    def begin(said: str) -> None:
        end()
        waiting.append(loop.call_later(noticeable, tell, said))

    def end() -> None:
        while waiting:
            waiting.pop().cancel()

    try:
        yield begin
    finally:
        end()
