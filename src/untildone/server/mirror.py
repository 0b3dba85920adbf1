"""The runs of the server's own machine, copied into its archive: one way to list, search, page and follow them all.

Their log is the truth and the archive says how far the copy has come, so that nothing is remembered in between:
whenever this ends, in whatever way, the next one goes on where it was.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from untildone.core.dataclass import dataclass
from untildone.errors import StoreError, UplinkError, UplinkRefused
from untildone.ports import Clock, EventLog, RunRow
from untildone.server.archive.port import LOCAL, Archive, RunFilter
from untildone.server.context import ServerSettings
from untildone.server.own_uplink import OwnUplink
from untildone.uplink.outbox import Outbox
from untildone.uplink.owed import Accounts

LOOK_EVERY = 1.0
"""Seconds between two looks at the list of runs."""
LOOK_SHARE = 0.05
"""Part of the time that looking may take: a long list is looked at less often."""
MOST_FOLLOWED = 50
"""Runs at work that are followed event by event; any others are copied at every look."""
LISTED = 500
PAGE = 200
"""Events that are copied at once: reading them holds everybody up for a few milliseconds."""
HEARTBEAT = 5.0
"""Seconds between two signs of life of a run that is at work and has nothing to say."""
TOO_EARLY = 0.5
"""Seconds a driver has to say that it reports by itself."""
PATIENCE = 5.0
"""Seconds that the last words of a run have to arrive."""

Look = Callable[[], Awaitable[Sequence[RunRow]]]
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Followed:
    """A run at work."""

    outbox: Outbox
    task: asyncio.Task[None]


class Mirror:
    """Copies what the log of this machine has and the archive lacks."""

    def __init__(
        self,
        log: EventLog,
        archive: Archive,
        uplink: OwnUplink,
        clock: Clock,
        *,
        look: Look | None = None,
        reports_itself: Callable[[str], bool] | None = None,
        every: float = LOOK_EVERY,
    ) -> None:
        """`look` gives the runs, the one touched last first, and makes what it must of them before; None: the log's.

        `reports_itself`: the driver of this run sends its events to this server, as a worker does.
        """
        self._source = log
        self._archive = archive
        self._uplink = uplink
        self._clock = clock
        self._look_at = look or log.runs
        self._reports_itself = reports_itself
        self._every = every
        self._followed: dict[str, _Followed] = {}
        self._copied: dict[str, float] = {}
        """The runs nobody drives that are here completely, and when they were last touched."""
        self._left_alone: set[str] = set()
        """Runs that are another's to report: a worker on this machine that does so itself."""
        self._waiting: dict[str, RunRow] = {}
        """Runs to be copied, in the order of the last look."""
        self._copying = ""
        self._known: dict[str, int] | None = None
        self._has_waiting = asyncio.Event()
        self._idle = asyncio.Event()
        self._heard: dict[str, float] = {}
        self._trouble = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Copy meanwhile."""
        tasks = [asyncio.create_task(work()) for work in (self._keep_looking, self._keep_copying)]
        try:
            yield
        finally:
            tasks += [followed.task for followed in self._followed.values()]
            self._followed.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def settled(self) -> None:
        """Wait until all runs of the next look are copied, or followed."""
        self._idle.clear()
        await self._idle.wait()

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._look()
                self._trouble = ""
            except Exception as trouble:  # noqa: BLE001 - the supervisor of this task: it must never end
                self._tell(trouble)
            took = loop.time() - began
            await asyncio.sleep(max(self._every, took / LOOK_SHARE))

    async def _look(self) -> None:
        if self._known is None:
            self._known = await self._known_before()
        rows = await self._look_at()
        at_work = {row.run_id for row in rows if row.alive}
        for run_id in [run_id for run_id in self._followed if run_id not in at_work]:
            await self._let_go(run_id)
        waiting = {row.run_id: row for row in rows if await self._must_copy(row)}
        self._waiting = waiting
        if waiting:
            self._has_waiting.set()
        elif not self._copying:
            self._idle.set()

    async def _must_copy(self, row: RunRow) -> bool:
        """Whether something of this run is to be copied that following it does not bring."""
        if row.run_id in self._left_alone or row.run_id in self._followed or row.run_id == self._copying:
            return False
        if self._is_anothers(row):
            return False
        if row.alive:
            await self._hear(row.run_id)
            if len(self._followed) < MOST_FOLLOWED:
                self._follow(row.run_id)
                return False
        return self._copied.get(row.run_id) != row.updated_at

    async def _known_before(self) -> dict[str, int]:
        """How much of each run was here when this began: of a thousand old ones, one question tells."""
        known: dict[str, int] = {}
        before = None
        while True:
            page = await self._archive.runs.entries(RunFilter(sandbox_id=LOCAL, before=before, limit=LISTED))
            known |= {entry.run_id: entry.last_seq for entry in page if entry.origin == LOCAL}
            if len(page) < LISTED:
                return known
            before = (page[-1].heard_at, page[-1].run_id)

    def _is_anothers(self, row: RunRow) -> bool:
        """Whether this run is not ours to copy, or it is too early to tell: who reports says so as it begins."""
        if self._reports_itself is None or row.run_id in self._copied or not row.alive:
            return False  # of a run that nobody drives, nobody sends what the archive does not have by now
        if self._clock.now() - row.created_at < TOO_EARLY:
            return True
        # Asked at every look: a driver whose reports are refused learns of it only after it began.
        return self._reports_itself(row.run_id)

    def _follow(self, run_id: str) -> None:
        outbox = Outbox(self._source, run_id, self._uplink, heartbeat=HEARTBEAT)
        self._followed[run_id] = _Followed(outbox, asyncio.create_task(outbox.run()))

    async def _let_go(self, run_id: str) -> None:
        """Its driver is gone: what it said last is copied, then there is nothing to wait for."""
        followed = self._followed.pop(run_id)
        if followed.outbox.refused is None:
            await followed.outbox.settle(PATIENCE)
        else:
            self._left_alone.add(run_id)
        followed.task.cancel()
        await asyncio.wait([followed.task])

    async def _hear(self, run_id: str) -> None:
        now = self._clock.now()
        if now - self._heard.get(run_id, 0.0) >= HEARTBEAT:
            self._heard[run_id] = now
            await self._archive.runs.heard(run_id, now=now)

    async def _keep_copying(self) -> None:
        """One run after the other, and resting as long as working: those who look at the server come first."""
        loop = asyncio.get_running_loop()
        while True:
            await self._has_waiting.wait()
            began = loop.time()
            row = next(iter(self._waiting.values()), None)
            if row is None:
                self._has_waiting.clear()
                self._idle.set()
                continue
            del self._waiting[row.run_id]
            self._copying = row.run_id
            try:
                await self._copy(row)
            except Exception as trouble:  # noqa: BLE001 - the supervisor of this task: the next look tries again
                self._tell(trouble)
            finally:
                self._copying = ""
            await asyncio.sleep(loop.time() - began)

    async def _copy(self, row: RunRow) -> None:
        """All of a run that the archive lacks. It is shown as of the moment it was last touched, not of now."""
        known = (self._known or {}).pop(row.run_id, None)
        if known is not None and not await self._source.read(row.run_id, after=known, trace=True, limit=1):
            self._copied[row.run_id] = row.updated_at
            return
        try:
            receipt = await self._uplink.received(row.run_id)
            while records := await self._source.read(row.run_id, after=receipt.last_seq, trace=True, limit=PAGE):
                moment = self._clock.now() if row.alive else row.updated_at
                receipt = await self._uplink.send(row.run_id, records, now=moment)
                await asyncio.sleep(0)
        except UplinkRefused:
            self._left_alone.add(row.run_id)
            return
        self._copied[row.run_id] = row.updated_at

    def _tell(self, trouble: Exception) -> None:
        """Once for each kind of trouble: looking every second must not fill a disk."""
        said = str(trouble) if isinstance(trouble, StoreError | UplinkError) else repr(trouble)
        if said != self._trouble:
            self._trouble = said
            _log.warning("runs of this machine cannot be shown as they are: %s", said)


def reporting_here(state_dir: Path, settings: ServerSettings) -> Callable[[str], bool]:
    """Tells of a run of that store whether its driver reports to this very server."""
    accounts = Accounts(state_dir)
    ours = {settings.host.lower(), *_LOOPBACK, socket.gethostname().lower()}
    public = {name.lower() for name in settings.names} - ours

    def reports(run_id: str) -> bool:
        account = accounts.read(run_id)
        if account is None or account.given_up or account.refusals:
            return False
        try:
            where = urlsplit(account.server)
            host, port = (where.hostname or "").lower(), where.port
        except ValueError:
            return False
        # By a public name there may be a proxy in front, with a port of its own.
        return host in public or (host in ours and port == settings.port)

    return reports
