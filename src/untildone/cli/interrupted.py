"""`resume --interrupted`: every run that a crash, a power cut or a reboot ended is taken up again."""

from pathlib import Path

from untildone import wiring
from untildone.cli.chaining import drive_chain, next_job, stands_before_next
from untildone.cli.detaching import hand_over
from untildone.cli.driving import Job, Output, foreground, opened
from untildone.cli.streams import put, say
from untildone.core.events import StopRequested
from untildone.core.figures import clock
from untildone.core.state import LoopState
from untildone.core.stopping import Reason, exit_code
from untildone.engine.journal import load_state
from untildone.errors import UntildoneError
from untildone.ports import EventLog

SHUTDOWN = "SIGTERM"
"""What a machine that shuts down in order sends; a human types `stop` or Ctrl+C."""

STOPPED_BY_USER = exit_code(Reason.SHUTDOWN_SIGNAL)


def resume_interrupted(store: Path, output: Output, *, detach: bool) -> int:
    """Take them all up, one after the other or each in the background; the answer is the first that is not 0."""
    found = foreground(_find(store))
    if not found:
        put("no interrupted runs to resume")
    answer = 0
    for job in found:
        code = _take_up(job, store, output, detach=detach)
        answer = answer or code
        if code == STOPPED_BY_USER:
            break
    return answer


async def _find(store: Path) -> list[Job]:
    async with opened(store) as log:
        return await find_interrupted(log, wiring.system_clock().now())


async def find_interrupted(log: EventLog, now: float) -> list[Job]:
    """What there is to take up, the oldest first: runs nobody stopped and nobody drives, however long ago.

    A run that waits for a weekly limit is quiet for days. What is interrupted and left all the same is said.
    """
    jobs = []
    rows = sorted(await log.runs(), key=lambda row: row.created_at)
    newest = {(row.folder, row.name): row.run_id for row in rows}
    for row in rows:
        if row.alive:
            continue
        state = await load_state(log, row.run_id)
        if not state.run_id or state.spec.in_session or not await _was_cut_off(log, state):
            continue
        reason = _why_left(state, now, replaced=newest[row.folder, row.name] != row.run_id)
        if reason:
            say(f"{state.spec.name} ({state.run_id}) is not resumed: {reason}")
        elif (job := _job(state)) is not None:
            jobs.append(job)
    return jobs


async def _was_cut_off(log: EventLog, state: LoopState) -> bool:
    """Whether this run, or the chain that stands at it, would have gone on by itself."""
    if state.phase == "running":
        return True
    if state.phase == "suspended":
        return await _ended_by_system(log, state)
    stopped_by_user = state.stop is not None and state.stop.signal != SHUTDOWN
    return not stopped_by_user and await stands_before_next(log, state, alive=False)


def _why_left(state: LoopState, now: float, *, replaced: bool) -> str:
    """Why a run that was cut off is left alone; empty: nothing speaks against it."""
    if state.stop is not None and state.stop.signal != SHUTDOWN:
        return f"it was asked to stop; `untildone resume {state.run_id}` resumes it"
    if state.phase == "running" and state.paused:
        return f"it is paused; `untildone resume {state.run_id}` resumes it"
    if replaced:
        return "a newer run of the same name took its place"
    deadline = state.policy.deadline
    if deadline is not None and deadline <= now:
        return f"its deadline, {clock(deadline, now)}, has passed"
    return ""


def _job(state: LoopState) -> Job | None:
    if state.phase != "completed":
        return _goes_on(state)
    try:
        return next_job(state)
    except UntildoneError as trouble:
        say(f"{state.spec.name}: {trouble}")
        return None


def _goes_on(state: LoopState) -> Job:
    return Job(run_id=state.run_id, greeting=f"resuming {state.spec.name}")


async def _ended_by_system(log: EventLog, state: LoopState) -> bool:
    if state.stop_reason != Reason.SHUTDOWN_SIGNAL:
        return False
    asked = [record.event for record in await log.read(state.run_id) if isinstance(record.event, StopRequested)]
    return bool(asked) and asked[-1].signal == SHUTDOWN


def _take_up(job: Job, store: Path, output: Output, *, detach: bool) -> int:
    """One that cannot be taken up is no reason to leave the others."""
    try:
        return hand_over(job, store, output) if detach else foreground(_drive(job, store, output))
    except UntildoneError as trouble:
        say(str(trouble))
        return trouble.exit_code


async def _drive(job: Job, store: Path, output: Output) -> int:
    async with opened(store) as log:
        return await drive_chain(log, job, store, output)
