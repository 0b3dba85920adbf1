"""Ctrl+C and its kin while a run is driven in the foreground: a stop in order first, and never a traceback."""

import asyncio
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Self

from untildone.cli.streams import say
from untildone.core.events import StopRequested
from untildone.errors import UntildoneError
from untildone.ports import EventLog


class StopSignals:
    """The first Ctrl+C, SIGTERM or hangup asks the run to stop, the second ends it now; more change nothing.

    `begun` says whether the driver has taken the run up: before that it would not heed what is asked in the log.
    """

    def __init__(self, log: EventLog, run_id: str, begun: Callable[[], bool]) -> None:
        self._log = log
        self._run_id = run_id
        self._begun = begun
        self._driver = asyncio.current_task()
        self.heard = 0
        """How many signals came."""
        self._asking: asyncio.Task[None] | None = None
        # Whoever wants the run to survive its terminal says so with nohup.
        survives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._numbers = (signal.SIGINT, signal.SIGTERM, *(() if survives else (signal.SIGHUP,)))

    def __enter__(self) -> Self:
        for number in self._numbers:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in self._numbers:
            asyncio.get_running_loop().remove_signal_handler(number)
            if self.heard:
                # The result is printed and the process ends: one Ctrl+C too many must not spoil that.
                signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, name: str) -> None:
        self.heard += 1
        if self.heard == 1 and self._begun():
            say(f"stopping ({name}); once more to end at once", fresh=True)
            self._asking = asyncio.ensure_future(self._ask(name))
        elif self.heard == 1:
            say(f"stopping ({name})", fresh=True)
            self._end_now()
        elif self.heard == 2:  # noqa: PLR2004 -- a third one must not disturb the leaving in order
            self._end_now()

    async def _ask(self, name: str) -> None:
        try:
            await self._log.append(self._run_id, [StopRequested(by="signal", signal=name)])
        except UntildoneError as trouble:
            say(f"the stop could not be recorded, ending at once: {trouble}")
            self._end_now()

    def _end_now(self) -> None:
        if self._driver is not None:
            self._driver.cancel()
