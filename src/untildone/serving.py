"""The server, put together: its archive, what it derives and copies, who steers, and the address it answers at."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from untildone import loops
from untildone.core.durations import format_duration
from untildone.errors import DatabaseStarting
from untildone.ports import Clock, EventLog, RunRow
from untildone.server.archive.opening import open_archive
from untildone.server.archive.port import Archive
from untildone.server.context import Context, ServerSettings
from untildone.server.fanout import Fanout
from untildone.server.mirror import Mirror, reporting_here
from untildone.server.own_uplink import OwnUplink
from untildone.server.projecting import Projector
from untildone.server.running import serve_forever
from untildone.server.silence import Silence
from untildone.server.starting import Starter
from untildone.server.steering import Steering
from untildone.server.tidying import Tidier
from untildone.wiring import open_log, system_clock

FIRST_REST = 0.1
LONGEST_REST = 2.0
"""Seconds between two looks whether the database has started."""


class OpenServer:
    """A server whose parts are at work: it answers while `serve` runs."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.url = ""
        """Where it answers, once it does."""

    async def serve(self, ready: Callable[[], None]) -> None:
        """Answer until `stop`; ServeError when the address cannot be had."""

        def begun(url: str) -> None:
            self.url = url
            ready()

        await serve_forever(self.context, begun)

    def stop(self) -> None:
        """Go down: streams end at once, requests when they are done."""
        self.context.stopping.set()


@asynccontextmanager
async def open_server(
    settings: ServerSettings,
    state_dir: Path,
    *,
    clock: Clock | None = None,
    patience: float = 0.0,
    waiting: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[OpenServer]:
    """Open the archive and start what works beside the web: projecting, copying the runs of this machine.

    A database that is only starting is waited for, so many seconds; `waiting` is told why.
    """
    clock = clock or system_clock()
    async with AsyncExitStack() as held:
        archive = await _opened(settings.database, patience, waiting)
        held.push_async_callback(archive.close)
        yield OpenServer(await _context(settings, archive, state_dir, clock, held))


async def _opened(database: str, patience: float, waiting: Callable[[str], None]) -> Archive:
    loop = asyncio.get_running_loop()
    ends, rest = loop.time() + patience, FIRST_REST
    while True:
        try:
            return await open_archive(database)
        except DatabaseStarting as starting:
            if loop.time() + rest > ends:
                raise
            if rest == FIRST_REST:
                waiting(f"{starting}: waiting for it, for at most {format_duration(patience)}")
        await asyncio.sleep(rest)
        rest = min(LONGEST_REST, 2 * rest)


async def _context(
    settings: ServerSettings, archive: Archive, state_dir: Path, clock: Clock, held: AsyncExitStack
) -> Context:
    fanout = Fanout(archive)
    projector = Projector(archive, fanout)
    log = open_log(state_dir, clock) if settings.local else None
    await held.enter_async_context(fanout.running())
    await held.enter_async_context(projector.running())
    await held.enter_async_context(Silence(archive, fanout, clock).running())
    if log is not None:
        held.push_async_callback(log.close)
        mirror = Mirror(
            log,
            archive,
            OwnUplink(archive, fanout, clock, projector.touch),
            clock,
            look=lambda: _runs_here(log, state_dir),
            reports_itself=reporting_here(state_dir, settings),
        )
        await held.enter_async_context(mirror.running())
    tidier = Tidier(archive, clock, keep_days=settings.keep_days, keep_bytes=settings.keep_bytes)
    await held.enter_async_context(tidier.running())
    return Context(
        settings=settings,
        archive=archive,
        clock=clock,
        fanout=fanout,
        projector=projector,
        steering=Steering(archive, fanout, clock, log=log),
        starter=_starter(settings, state_dir),
    )


async def _runs_here(log: EventLog, state_dir: Path) -> list[RunRow]:
    """The runs of this machine, those that live in somebody's session too: what their hooks wrote is folded first."""
    await loops.fold_notes(log, state_dir, os.environ)
    living = loops.living(state_dir)
    return [loops.with_life(row, living) for row in await log.runs()]


def _starter(settings: ServerSettings, state_dir: Path) -> Starter | None:
    """Only where runs are shown, too: whoever starts one wants to see it."""
    if not settings.folders or not settings.local:
        return None
    return Starter(settings.folders, store=state_dir, environment=os.environ)
