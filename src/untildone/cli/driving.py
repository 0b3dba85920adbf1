"""One run in the foreground: progress while it goes on, Ctrl+C as a stop, and the result at its end."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from untildone import wiring
from untildone.cli.result import result_line, result_text
from untildone.core.events import Event, Record, StopRequested
from untildone.core.policy import Policy, RunSpec
from untildone.core.state import LoopState
from untildone.core.views import result_json, run_view
from untildone.errors import UsageError
from untildone.ports import EventLog

Observer = Callable[[Record], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How the person wants to see it."""

    verbose: bool = False
    quiet: bool = False
    json: bool = False
    format: str | None = None

    def __post_init__(self) -> None:
        shapes = [flag for flag, on in (("--quiet", self.quiet), ("--json", self.json), ("--format", self.format)) if on]
        if len(shapes) > 1 or (self.verbose and shapes):
            both = [*(["--verbose"] if self.verbose else []), *shapes]
            raise UsageError(f"{' and '.join(both)} exclude each other: give one of them")

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


@asynccontextmanager
async def opened(store: Path) -> AsyncIterator[EventLog]:
    """The log of all runs, closed at the end."""
    log = wiring.open_log(store, wiring.system_clock())
    try:
        yield log
    finally:
        await log.close()


async def drive(log: EventLog, job: Job, store: Path, output: Output) -> int:
    """Drive a run to its stop, show it, and answer with its exit code."""
    clock = wiring.system_clock()
    around = wiring.Surroundings(state_dir=store, env=dict(os.environ), clock=clock)
    start = await wiring.load_state(log, job.run_id)
    if job.before:
        await log.append(job.run_id, job.before)
    with progress(output, start) as observer, stopping_on_signals(log, job.run_id):
        if job.begin is not None:
            spec, policy = job.begin
            state = await wiring.start_run(log, spec, policy, around, run_id=job.run_id, observer=observer)
        else:
            state = await wiring.resume_run(log, job.run_id, around, observer=observer)
    return show_result(state, clock.now(), output)


def show_result(state: LoopState, now: float, output: Output) -> int:
    """Print how the run ended, in the shape that was asked for."""
    view = run_view(state, now, alive=False)
    if output.json:
        click.echo(json.dumps(result_json(view), ensure_ascii=False))
    elif output.format is not None:
        click.echo(result_line(output.format, view))
    elif output.quiet:
        click.echo(view.exit_reason or view.status)
    else:
        click.echo(result_text(view))
    return 1 if view.exit_code is None else view.exit_code


@contextmanager
def progress(output: Output, start: LoopState) -> Iterator[Observer | None]:
    """Something that shows records as they come: a live screen on a terminal, else plain lines."""
    if output.for_programs:
        yield None
        return
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not output.verbose:
        from untildone.cli.live import LiveScreen

        with LiveScreen(start) as screen:
            yield screen.on_record
        return
    from untildone.cli.plain import PlainLines

    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    yield PlainLines(sys.stdout, verbose=output.verbose, colour=colour).on_record


@contextmanager
def stopping_on_signals(log: EventLog, run_id: str) -> Iterator[None]:
    """The first Ctrl+C or SIGTERM asks the run to stop, the second ends it now."""
    loop = asyncio.get_running_loop()
    driver = asyncio.current_task()
    asked: set[asyncio.Task[list[Record]]] = set()

    def ask(name: str) -> None:
        if asked and driver is not None:
            driver.cancel()
            return
        click.echo(f"\nstopping ({name}); once more to end at once", err=True)
        asked.add(asyncio.ensure_future(log.append(run_id, [StopRequested(by="signal", signal=name)])))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask, number.name)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
