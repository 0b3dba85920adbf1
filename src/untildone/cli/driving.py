"""One run in the foreground: progress while it goes on, Ctrl+C as a stop, and the result at its end."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from untildone import wiring
from untildone.cli.progress import open_progress
from untildone.core.events import Event, Record, StopRequested
from untildone.core.oneliners import closing_lines, result_line
from untildone.core.policy import Policy, RunSpec
from untildone.core.state import LoopState
from untildone.core.stopping import exit_code
from untildone.core.views import result_json, run_view
from untildone.engine.journal import load_state
from untildone.errors import UntildoneError, UsageError
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
        shapes = [
            flag for flag, on in (("--quiet", self.quiet), ("--json", self.json), ("--format", self.format)) if on
        ]
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


async def drive(
    log: EventLog, job: Job, store: Path, output: Output, env: Mapping[str, str] | None = None
) -> LoopState:
    """Drive a run to its stop, showing it on the way, and print how it ended."""
    clock = wiring.system_clock()
    start = await load_state(log, job.run_id)
    with progress(output, start) as observer, stopping_on_signals(log, job.run_id):
        around = wiring.Surroundings(
            log=log, state_dir=store, env=dict(env or os.environ), clock=clock, observer=observer
        )
        if job.begin is not None:
            state = await wiring.start_run(*job.begin, around, run_id=job.run_id)
        else:
            state = await wiring.resume_run(job.run_id, around, asked=job.before)
    show_result(state, clock.now(), output)
    return state


def exit_code_of(state: LoopState) -> int:
    """What the program answers for a run that came to its stop."""
    return exit_code(state.stop_reason or "")


def show_result(state: LoopState, now: float, output: Output) -> None:
    """Print how the run ended, in the shape that was asked for."""
    view = run_view(state, now, alive=False)
    if output.json:
        click.echo(json.dumps(result_json(view), ensure_ascii=False))
    elif output.format is not None:
        click.echo(result_line(output.format, view))
    elif output.quiet:
        click.echo(view.exit_reason or view.status)
    else:
        click.echo("\n".join(closing_lines(view)))


@contextmanager
def progress(output: Output, start: LoopState) -> Iterator[Observer | None]:
    """Something that shows records as they come, unless standard output belongs to the result alone."""
    if output.for_programs:
        yield None
        return
    now = wiring.system_clock().now
    with open_progress(sys.stdout, start, now=now, env=os.environ, verbose=output.verbose) as display:
        yield display.on_record


@contextmanager
def stopping_on_signals(log: EventLog, run_id: str) -> Iterator[None]:
    """The first Ctrl+C or SIGTERM asks the run to stop, the second ends it now."""
    loop = asyncio.get_running_loop()
    driver = asyncio.current_task()
    asked: set[asyncio.Task[None]] = set()

    async def ask(name: str) -> None:
        try:
            await log.append(run_id, [StopRequested(by="signal", signal=name)])
        except UntildoneError:
            # The run is not in the log yet: there is nothing to stop gracefully.
            end_now()

    def end_now() -> None:
        if driver is not None:
            driver.cancel()

    def on_signal(name: str) -> None:
        if asked:
            end_now()
            return
        click.echo(f"\nuntildone: stopping ({name}); once more to end at once", err=True)
        asked.add(asyncio.ensure_future(ask(name)))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number.name)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
