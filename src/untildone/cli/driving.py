"""One run in the foreground: progress while it goes on, Ctrl+C as a stop, and the result at its end."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from untildone import wiring
from untildone.cli.signals import StopSignals
from untildone.cli.streams import hanging, put, say, screen_width
from untildone.core.dataclass import dataclass
from untildone.core.events import ContinuousResumed, Event, Record
from untildone.core.oneliners import check_template, closing_lines, result_line
from untildone.core.policy import Policy, RunSpec
from untildone.core.state import LoopState
from untildone.core.stopping import exit_code
from untildone.core.views import result_json, run_view
from untildone.engine.journal import load_state
from untildone.errors import UsageError
from untildone.ports import EventLog

if TYPE_CHECKING:
    from untildone.uplink.settings import UplinkSettings

Observer = Callable[[Record], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How the person wants to see it."""

    verbose: bool = False
    quiet: bool = False
    json: bool = False
    format: str | None = None
    advice: bool = True
    """Say at the end what to do next."""

    def __post_init__(self) -> None:
        shapes = [
            flag for flag, on in (("--quiet", self.quiet), ("--json", self.json), ("--format", self.format)) if on
        ]
        if len(shapes) > 1 or (self.verbose and shapes):
            both = [*(["--verbose"] if self.verbose else []), *shapes]
            raise UsageError(f"{' and '.join(both)} exclude each other: give one of them")
        if self.format is not None:
            check_template(self.format)

    @property
    def for_programs(self) -> bool:
        """Standard output belongs to the result alone."""
        return self.json or self.quiet or self.format is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be driven: a new run, or one that is in the log already."""

    run_id: str
    begin: tuple[RunSpec, Policy] | None = None
    before: tuple[Event, ...] = ()
    """What the human asks for on the way in: new limits, a reset."""
    greeting: str = ""
    """Said when the run is really taken up, not when something is in the way."""


class Watcher:
    """Sees every record of the run that is driven here, and passes it on to the display."""

    def __init__(self, display: Observer | None, greeting: str, taken_up: Callable[[], None] = lambda: None) -> None:
        self.begun = False
        """This driver has taken up the run: from now on it heeds what is asked in the log."""
        self._display = display
        self._greeting = greeting
        self._taken_up = taken_up

    def on_record(self, record: Record) -> None:
        """Take in one record as it is written."""
        if not self.begun and isinstance(record.event, ContinuousResumed):
            self.begun = True
            self._taken_up()
        if self._greeting:
            say(self._greeting)
            self._greeting = ""
        if self._display is not None:
            self._display(record)


def foreground(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, or to an early Ctrl+C, before there is anything to stop in order."""
    try:
        return asyncio.run(work)
    except asyncio.CancelledError as ended:
        raise click.Abort from ended


@asynccontextmanager
async def opened(store: Path) -> AsyncIterator[EventLog]:
    """The log of all runs, closed at the end."""
    log = wiring.open_log(store, wiring.system_clock())
    try:
        yield log
    finally:
        await log.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """A run that came to its stop here."""

    state: LoopState
    told_to_stop: bool
    """A signal asked this process to end: nothing more is to be started in it."""


async def drive(
    log: EventLog, job: Job, store: Path, output: Output, env: Mapping[str, str] | None = None
) -> LoopState:
    """Drive a run to its stop, showing it on the way, and print how it ended."""
    driven = await drive_one(log, job, store, output, env=env)
    show_result(driven.state, wiring.system_clock().now(), output)
    return driven.state


async def drive_one(
    log: EventLog,
    job: Job,
    store: Path,
    output: Output,
    *,
    env: Mapping[str, str] | None = None,
    taken_up: Callable[[], None] = lambda: None,
    uplink: "UplinkSettings | None" = None,
) -> Driven:
    """Drive a run to its stop, showing it on the way. `taken_up` is called once it is really in the log.

    `uplink`: the server it reports to, instead of the one the settings name.
    """
    clock = wiring.system_clock()
    start = await load_state(log, job.run_id)
    with progress(output, shown_at_first(job, start, clock.now())) as display:
        watcher = Watcher(display, job.greeting, taken_up)
        around = wiring.Surroundings(
            log=log,
            state_dir=store,
            env=dict(env or os.environ),
            clock=clock,
            observer=watcher.on_record,
            uplink=uplink,
            notice=say,
        )
        with StopSignals(log, job.run_id, lambda: watcher.begun) as signals:
            state = await _drive(job, around)
    return Driven(state=state, told_to_stop=signals.heard > 0)


def shown_at_first(job: Job, start: LoopState, now: float) -> LoopState:
    """Where the run stands before its first record: of a new run, the goal and the limits are known."""
    if job.begin is None:
        return start
    spec, policy = job.begin
    return LoopState(spec=spec, policy=policy, started_at=now, last_at=now)


async def _drive(job: Job, around: wiring.Surroundings) -> LoopState:
    if job.begin is not None:
        return await wiring.start_run(*job.begin, around, run_id=job.run_id)
    return await wiring.resume_run(job.run_id, around, asked=job.before)


def exit_code_of(state: LoopState) -> int:
    """What the program answers for a run that came to its stop."""
    return exit_code(state.stop_reason or "")


def show_result(state: LoopState, now: float, output: Output) -> None:
    """Print how the run ended, in the shape that was asked for."""
    view = run_view(state, now, alive=False)
    if output.json:
        put(json.dumps(result_json(view), ensure_ascii=False))
    elif output.format is not None:
        put(result_line(output.format, view))
    elif output.quiet:
        put(view.exit_reason or view.status)
    else:
        width = screen_width()
        put("\n".join(hanging("", line, width) for line in closing_lines(view, advice=output.advice)))


@contextmanager
def progress(output: Output, start: LoopState, *, leaves: bool = False) -> Iterator[Observer | None]:
    """Something that shows records as they come, unless standard output belongs to the result alone."""
    if output.for_programs:
        yield None
        return
    from untildone.cli.progress import open_progress

    now = wiring.system_clock().now
    with open_progress(sys.stdout, start, now=now, env=os.environ, verbose=output.verbose, leaves=leaves) as display:
        yield display.on_record
