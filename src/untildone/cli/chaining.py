"""`--then`: when a goal is reached, the next one starts, as a run of its own."""

from collections.abc import Callable
from pathlib import Path

from untildone import wiring
from untildone.cli.driving import Driven, Job, Output, drive_one, exit_code_of, show_result
from untildone.cli.own_tree import tidy_up
from untildone.cli.streams import put, say
from untildone.core.chain import has_next, next_run_id
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.engine.journal import load_state
from untildone.errors import UntildoneError
from untildone.ports import EventLog


def next_job(state: LoopState) -> Job:
    """The run that follows one that is done."""
    run_id, spec, policy = wiring.next_run(state, wiring.system_clock().now())
    return Job(run_id=run_id, begin=(spec, policy))


async def newest_of_chain(log: EventLog, state: LoopState) -> LoopState:
    """The run that was started last of those that follow this one; itself, if none was."""
    while has_next(state):
        following = await load_state(log, next_run_id(state.run_id))
        if not following.run_id:
            break
        state = following
    return state


async def stands_before_next(log: EventLog, state: LoopState, *, alive: bool) -> bool:
    """Whether a chain has come to a goal that nobody has started."""
    return has_next(state) and not alive and (await newest_of_chain(log, state)).run_id == state.run_id


async def drive_chain(
    log: EventLog, job: Job, store: Path, output: Output, taken_up: Callable[[], None] = lambda: None
) -> int:
    """Drive a run and those that follow it. A program reading our output gets the result of the last one only."""
    done: LoopState | None = None
    while True:
        try:
            driven = await drive_one(log, job, store, output, taken_up=taken_up)
        except UntildoneError:
            if done is not None:
                _give_up(done, output)
            raise
        if not await _goes_on(log, driven):
            show_result(driven.state, wiring.system_clock().now(), output)
            await tidy_up(log, driven.state, store)
            if has_next(driven.state):
                say(f"stopped before the next goal: `{_start_next(driven.state)}` starts it")
            return exit_code_of(driven.state)
        done = driven.state
        try:
            job = next_job(done)
        except UntildoneError:
            _give_up(done, output)
            raise
        if not output.for_programs:
            show_result(done, wiring.system_clock().now(), output)
            put(one_line(f"Next goal: {done.spec.then[0]}. Should it not start, `{_start_next(done)}` does it."))


async def _goes_on(log: EventLog, driven: Driven) -> bool:
    """Whether the next goal is to be started: not when a human asked for a stop, however late."""
    # A signal of this very moment may not be in the log yet.
    return not driven.told_to_stop and await wiring.goes_on(log, driven.state)


def _give_up(done: LoopState, output: Output) -> None:
    """The next goal does not start: what was reached so far is said all the same."""
    if output.for_programs:
        show_result(done, wiring.system_clock().now(), output)
    say(f"{done.spec.name} is done, but the next goal could not be started; `{_start_next(done)}` tries again")


def _start_next(done: LoopState) -> str:
    return f"untildone resume {done.run_id}"
