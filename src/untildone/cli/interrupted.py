"""`resume --interrupted`: every run that a crash, a power cut or a reboot ended is taken up again."""

from pathlib import Path

from untildone import wiring
from untildone.cli.chaining import drive_chain, newest_of_chain, next_job
from untildone.cli.detaching import hand_over
from untildone.cli.driving import Job, Output, foreground, opened
from untildone.cli.streams import put, say
from untildone.core.chain import has_next
from untildone.core.events import StopRequested
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
        put("no interrupted runs")
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
    """What there is to take up, the oldest first: runs nobody stopped and nobody drives."""
    jobs = []
    for row in sorted(await log.runs(), key=lambda row: row.created_at):
        if row.alive:
            continue
        state = await load_state(log, row.run_id)
        if not state.run_id or now - row.updated_at > state.policy.session_expiry:
            continue
        job = await _job(log, state)
        if job is not None:
            jobs.append(job)
    return jobs


async def _job(log: EventLog, state: LoopState) -> Job | None:
    if state.stop is not None and state.stop.signal != SHUTDOWN:
        return None
    if state.phase == "running":
        return None if state.paused else _goes_on(state)
    if state.phase == "suspended":
        return _goes_on(state) if await _ended_by_system(log, state) else None
    if has_next(state) and (await newest_of_chain(log, state)).run_id == state.run_id:
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
