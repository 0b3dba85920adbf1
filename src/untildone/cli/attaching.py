"""`attach`: the live view of a run that another process drives."""

import asyncio
from contextlib import suppress
from pathlib import Path
from time import monotonic

import click

from untildone import wiring
from untildone.cli.choosing import find_run
from untildone.cli.driving import Observer, Output, exit_code_of, opened, progress, show_result
from untildone.cli.options import folder_of, place_options, run_argument, store_of
from untildone.cli.streams import say
from untildone.core.advice import driver_gone
from untildone.core.chain import has_next, next_run_id
from untildone.core.events import ContinuousCompleted, ContinuousSuspended
from untildone.core.state import LoopState
from untildone.engine.journal import load_state
from untildone.errors import RunNotFound
from untildone.ports import EventLog

HEARTBEAT = 2.0
"""Seconds between two looks at whether the run still has a driver."""
LAST_WORDS = 1.0
NEXT_GOAL = 10.0
"""Seconds the next run of a chain has to begin."""
_PAUSE = 0.1


@click.command()
@run_argument
@click.option("-v", "--verbose", is_flag=True, help="Show what the agent writes as it writes.")
@place_options
def attach(run: str | None, store: str | None, cwd: str | None, *, verbose: bool) -> int:
    """Watch a run that works in the background, from now to its end. Ctrl+C leaves it working."""
    try:
        return asyncio.run(_attach(run, store_of(store), folder_of(cwd), Output(verbose=verbose)))
    except KeyboardInterrupt:
        say("detached: the run goes on without you", fresh=True)
        return 0


async def _attach(run: str | None, store: Path, folder: Path, output: Output) -> int:
    async with opened(store) as log:
        row = await find_run(log, run, folder)
        state = await load_state(log, row.run_id)
        wiring.refuse_in_session(state)
        if not state.run_id:
            raise RunNotFound(f"run {row.run_id} never began: start it again with `untildone run`")
        if row.alive and state.phase == "running":
            say(f"attached to {row.name}; Ctrl+C leaves it working")
        while True:
            patience = NEXT_GOAL if state.phase == "running" else 0.0
            state = await _watched(log, state, output)
            if state.phase == "running":
                say(driver_gone(state))
                return 1
            show_result(state, wiring.system_clock().now(), output)
            following = await _following(log, state, patience)
            if following is None:
                return exit_code_of(state)
            state = following


async def _watched(log: EventLog, state: LoopState, output: Output) -> LoopState:
    """Show the run until it stops or its driver is gone."""
    if state.phase == "running" and await _is_alive(log, state.run_id):
        with progress(output, state, leaves=True) as display:
            shown = asyncio.ensure_future(_show(log, state, display))
            gone = asyncio.ensure_future(_driver_gone(log, state.run_id))
            try:
                await asyncio.wait({shown, gone}, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait({shown}, timeout=LAST_WORDS)
            finally:
                for task in (shown, gone):
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
    return await load_state(log, state.run_id)


async def _show(log: EventLog, state: LoopState, display: Observer | None) -> None:
    async for record in log.follow(state.run_id, after=state.last_seq, trace=True):
        if display is not None:
            display(record)
        if isinstance(record.event, ContinuousSuspended | ContinuousCompleted):
            return


async def _driver_gone(log: EventLog, run_id: str) -> None:
    # A driver that was killed tells nobody: there is no event to wait for.
    while await _is_alive(log, run_id):  # noqa: ASYNC110 -- see above
        await asyncio.sleep(HEARTBEAT)


async def _is_alive(log: EventLog, run_id: str) -> bool:
    return any(row.alive for row in await log.runs() if row.run_id == run_id)


async def _following(log: EventLog, state: LoopState, patience: float) -> LoopState | None:
    """The run that follows this one in its chain, once it has begun."""
    ends_at = monotonic() + patience
    while has_next(state):
        following = await load_state(log, next_run_id(state.run_id))
        if following.run_id:
            return following
        if monotonic() >= ends_at:
            # As long as the first is not out of the house (a command of the user's at its end), the next cannot begin.
            if not await _is_alive(log, state.run_id):
                break
            ends_at = monotonic() + patience
        await asyncio.sleep(_PAUSE)
    return None
