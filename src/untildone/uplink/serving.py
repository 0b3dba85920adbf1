"""Beside a run, as long as it is driven: events go to the server, orders come from it, and it hears that we live."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from untildone.core.closing import progress_of
from untildone.core.dataclass import dataclass
from untildone.core.durations import format_duration
from untildone.core.elsewhere import refuse_elsewhere
from untildone.core.events import ContinuousSuspended, ContinuousWarning, Event, StopRequested
from untildone.core.state import LoopState
from untildone.core.stopping import TAKEN_BY, Reason
from untildone.core.trace import AgentHeartbeat
from untildone.core.wire import Receipt
from untildone.errors import StoreError, UntildoneError, UplinkDown, UplinkRefused
from untildone.ports import EventLog, Uplink
from untildone.uplink.inbox import Inbox
from untildone.uplink.outbox import HEARTBEAT, Outbox
from untildone.uplink.owed import Account, Accounts, after_delivery
from untildone.uplink.settings import UplinkSettings

UNNOTICED = 0.5
"""Seconds of silence at the end of a run that nobody wonders about."""
IN_A_HURRY = 2.0
"""Seconds for what is still on its way when somebody pressed Ctrl+C."""
WRITTEN_EVERY = 200
"""Acknowledged events between two notes of how far it has come."""
OWED_PATIENCE = 3600.0
"""Seconds for what an earlier run still owes."""
FIRST_RESTART = 1.0
LONGEST_RESTART = 600.0
"""Seconds before a part of the line that broke in a way nobody foresaw begins anew."""
FIRST_PATIENCE = 5.0
"""Seconds in which a server may say that another machine has the run: a run that is taken up waits no longer."""


class Driver(Protocol):
    """The driver's hand on the log, as far as it is needed here."""

    state: LoopState
    taken_up: asyncio.Event

    @property
    def run_id(self) -> str: ...
    async def open(self) -> None: ...
    async def record(self, *events: Event) -> None: ...
    async def tell(self, event: Event) -> None: ...
    async def flush(self) -> None: ...


Beside = Callable[[Uplink], AbstractAsyncContextManager[object]]
"""Something else that goes to the server while the run is driven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """How a server is reached, and what is remembered about that."""

    settings: UplinkSettings
    connect: Callable[[str], Uplink]
    """An uplink for a sandbox."""
    accounts: Accounts
    beside: Sequence[Beside] = ()
    notice: Callable[[str], None] = lambda _: None
    """Told what only concerns whoever watches right now."""


@asynccontextmanager
async def uplinked(log: EventLog, driver: Driver, line: Line | None) -> AsyncIterator[None]:
    """While inside, and a little longer, the run is reported and takes orders. Whatever happens, it is not held up.

    RunElsewhere, before anything is done: the server says that another machine has it.
    """
    if line is None:
        yield
        return
    await _first_word(log, driver, line)
    link = _Link(log, driver, line)
    beginning = asyncio.create_task(link.begin())
    try:
        yield
    finally:
        await _end([beginning])
        await link.leave()


async def _first_word(log: EventLog, driver: Driver, line: Line) -> None:
    """Of a run that reported before, ask whether it is still ours: its last driver may have been dead meanwhile."""
    known = line.accounts.read(driver.run_id)
    if known is None or known.server != line.settings.server:
        return
    uplink = line.connect(line.settings.sandbox_id)
    try:
        async with asyncio.timeout(FIRST_PATIENCE):
            await Outbox(log, driver.run_id, uplink, tenure=lambda: known.tenure, heartbeat=None).first_word()
    except UplinkRefused as refused:
        if refused.taken:
            line.accounts.write(replace(known, given_up=True))
            await _give_up(driver)
        if refused.behind is None:
            line.notice(f"nothing of this run is reported until that is mended: {refused}")
    except (UplinkDown, TimeoutError) as down:
        why = str(down) or "no answer in time"
        line.notice(f"whether another machine has this run by now cannot be asked ({why}): it goes on, and tells later")
    finally:
        await uplink.close()


async def _give_up(driver: Driver) -> None:
    """Write down that the run is another machine's, and refuse."""
    await driver.open()
    await driver.record(StopRequested(by=TAKEN_BY))
    state = driver.state
    await driver.record(ContinuousSuspended(stop_reason=Reason.TAKEN_OVER, **progress_of(state, state.last_at)))
    refuse_elsewhere(driver.state)


class _Link:
    """One run and its server."""

    def __init__(self, log: EventLog, driver: Driver, line: Line) -> None:
        self._log, self._driver, self._line = log, driver, line
        self._settings = line.settings
        self._uplink = line.connect(self._settings.sandbox_id)
        self._outbox = Outbox(
            log,
            driver.run_id,
            self._uplink,
            tenure=lambda: driver.state.tenure,
            say=self._say,
            heard=self._heard,
            # However seldom the user wants to see it: a server takes a run that is silent for longer for dead.
            heartbeat=min(self._settings.heartbeat, HEARTBEAT),
        )
        began = asyncio.get_running_loop().time()
        self._inbox = Inbox(
            self._uplink,
            driver.run_id,
            state=lambda: driver.state,
            record=driver.record,
            pause=self._settings.poll,
            driven_for=lambda: asyncio.get_running_loop().time() - began,
        )
        self._written = 0
        self._noted: UplinkRefused | None = None
        self._broke = False
        self._key = ""
        self._leaving = asyncio.Event()
        self._sending: list[asyncio.Task[None]] = []
        self._others: list[asyncio.Task[None]] = []
        self._accompanying: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Report from the moment this driver is in the log: of a start that was refused nobody hears."""
        await self._driver.taken_up.wait()
        self._key = self._line.accounts.begun(self._account()).key
        self._write()
        self._sending = [asyncio.create_task(self._kept_up(self._send))]
        others = (self._inbox.run, self._beat, self._catch_up)
        self._others = [asyncio.create_task(self._kept_up(work)) for work in others]
        self._accompanying = [
            asyncio.create_task(self._kept_up(partial(self._accompany, beside))) for beside in self._line.beside
        ]

    async def leave(self) -> None:
        """Deliver what is still to be delivered, for a bounded time, and say what is left."""
        try:
            if self._sending:
                await self._last_words()
        except Exception as wrong:  # noqa: BLE001 - the run has ended well, whatever becomes of its report
            self._line.notice(_broken(wrong))
        finally:
            await _end([*self._sending, *self._others, *self._accompanying])
            with suppress(Exception):
                await self._uplink.close()

    async def _last_words(self) -> None:
        if self._was_taken:
            self._write()  # nobody would listen
            return
        state = self._driver.state
        stopped = state.stop_reason == Reason.SHUTDOWN_SIGNAL or (state.stop is not None and state.stop.signal)
        patience = min(IN_A_HURRY, self._settings.patience) if stopped else self._settings.patience
        await _end(self._others)
        finishing = asyncio.create_task(self._finish(patience))
        hurry = asyncio.create_task(self._hurried())
        try:
            await asyncio.wait([finishing, hurry], timeout=UNNOTICED, return_when=asyncio.FIRST_COMPLETED)
            if not finishing.done() and not hurry.done():
                self._line.notice(
                    f"telling {self._settings.server} the rest, for at most {format_duration(patience)}; "
                    "Ctrl+C leaves it for later"
                )
                await asyncio.wait([finishing, hurry], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([finishing], timeout=IN_A_HURRY)
        finally:
            await _end([finishing, hurry])
        left = await self._outbox.left()
        self._write(settled=not left.events)
        if left.events and self._outbox.refused is None:
            await self._say(f"{left.text}: the next run that reports to {self._settings.server} sends them")
            with suppress(UntildoneError):
                await self._driver.flush()

    async def _finish(self, patience: float) -> None:
        ends = asyncio.get_running_loop().time() + patience
        self._leaving.set()
        if self._accompanying:
            await asyncio.wait(self._accompanying, timeout=patience)
        with suppress(UntildoneError):
            await self._driver.flush()
        await self._outbox.settle(max(0.0, ends - asyncio.get_running_loop().time()))

    async def _hurried(self) -> None:
        """Returns when somebody presses Ctrl+C from now on: the run has ended, and so should the wait."""
        with suppress(StoreError):
            async for record in self._log.follow(self._driver.run_id, after=self._driver.state.last_seq):
                if isinstance(record.event, StopRequested) and record.event.signal:
                    return

    async def _kept_up(self, work: Callable[[], Awaitable[None]]) -> None:
        """What breaks is told once and begun anew: without it nobody could stop the run from afar any more."""
        rest = FIRST_RESTART
        while True:
            try:
                await work()
            except Exception as wrong:  # noqa: BLE001 - this is the supervisor: the run must not hear of it
                if not self._broke:
                    self._broke = True
                    with suppress(Exception):
                        await self._say(_broken(wrong))
            else:
                return
            if self._leaving.is_set():
                return
            await asyncio.sleep(rest)
            rest = min(LONGEST_RESTART, rest * 2)

    async def _send(self) -> None:
        await self._outbox.run()
        self._write()
        if self._was_taken:
            with suppress(UntildoneError):
                await self._driver.record(StopRequested(by=TAKEN_BY))

    @property
    def _was_taken(self) -> bool:
        return self._outbox.refused is not None and self._outbox.refused.taken

    async def _beat(self) -> None:
        while self._settings.heartbeat_events:
            await asyncio.sleep(self._settings.heartbeat)
            state = self._driver.state
            waits = state.wait is not None or (state.resting and not state.paused)
            status = "waiting" if waits else "paused" if state.paused else "running"
            with suppress(UntildoneError):
                await self._driver.tell(AgentHeartbeat(iteration_num=state.attempts, status=status))

    async def _accompany(self, beside: Beside) -> None:
        async with beside(self._uplink):
            await self._leaving.wait()

    async def _catch_up(self) -> None:
        """Deliver what earlier runs still owe this server."""
        with suppress(StoreError):
            runs = {row.run_id: row for row in await self._log.runs()}
            for account in self._line.accounts.unsettled(self._settings.server):
                if account.run_id == self._driver.run_id:
                    continue
                if account.run_id not in runs:
                    self._line.accounts.forget(account.run_id)
                elif not runs[account.run_id].alive:
                    await deliver_owed(self._log, account, self._line)

    def _heard(self, receipt: Receipt) -> None:
        self._inbox.heard(receipt)
        if receipt.last_seq - self._written >= WRITTEN_EVERY or self._noted is not self._outbox.refused:
            self._write()

    def _write(self, *, settled: bool = False) -> None:
        self._written = self._outbox.delivered
        self._noted = self._outbox.refused
        self._line.accounts.write(self._account(settled=settled))

    def _account(self, *, settled: bool = False) -> Account:
        refused = self._outbox.refused
        return Account(
            run_id=self._driver.run_id,
            server=self._settings.server,
            sandbox_id=self._settings.sandbox_id,
            acknowledged=self._outbox.delivered,
            tenure=self._driver.state.tenure,
            settled=settled,
            refusals=int(refused is not None),
            given_up=refused is not None and refused.taken,
            key=self._key,
        )

    async def _say(self, line: str) -> None:
        if self._noted is not self._outbox.refused:
            self._write()
        await self._driver.tell(ContinuousWarning(message=line))


async def deliver_owed(log: EventLog, account: Account, line: Line, *, patience: float = OWED_PATIENCE) -> None:
    """Deliver the rest of a run that nobody drives."""
    uplink = line.connect(account.sandbox_id)
    outbox = Outbox(log, account.run_id, uplink, tenure=lambda: account.tenure, heartbeat=None)
    sending = asyncio.create_task(outbox.run())
    try:
        left = await outbox.settle(patience, hurry=False)
        done = after_delivery(account, acknowledged=outbox.delivered, left=left.events, refused=outbox.refused)
        line.accounts.write(done)
    finally:
        await _end([sending])
        await uplink.close()


def _broken(wrong: Exception) -> str:
    """Of a trouble nobody foresaw only the kind is told: its text may quote anything."""
    return f"reporting to the server broke and is tried again: {type(wrong).__name__}"


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """What goes wrong in them is told where it happens; here nothing may hold up a run that ends."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
