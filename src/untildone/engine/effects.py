"""What the loop does besides iterating: read tasks, run the user's commands, verify, rest, finish."""

from untildone.core import codec
from untildone.core import events as ev
from untildone.core.closing import progress_of
from untildone.core.decide import Stop, Wait
from untildone.core.events import Event
from untildone.core.figures import count
from untildone.core.limits import limit_of
from untildone.core.prompt import TASKS_CAP
from untildone.core.state import LoopState
from untildone.core.stopping import DONE
from untildone.core.tasks import all_done
from untildone.core.tasks import read_tasks as parse_tasks
from untildone.engine.folder import leave_folder, what_is_left
from untildone.engine.journal import Journal
from untildone.engine.parts import Parts
from untildone.engine.watch import news, unless
from untildone.errors import WorkspaceError

LOOK_EVERY = 2.0
"""Seconds between two looks at what holds up commits."""


def tasks_event(state: LoopState, parts: Parts) -> ev.TasksRead | None:
    """The task file as it stands now, if there is one."""
    path = state.spec.task_file
    if path is None:
        return None
    paper = parts.usher.read_text(path, cap=TASKS_CAP)
    if paper is None:
        return ev.TasksRead(iteration_num=state.attempts, open_blocking=0, open_optional=0, ticked=0, missing=True)
    tasks = parse_tasks(paper[0], state.spec.optional_sections)
    return ev.TasksRead(
        iteration_num=state.attempts,
        open_blocking=tasks.open_blocking,
        open_optional=tasks.open_optional,
        ticked=tasks.ticked,
        all_done=all_done(tasks),
    )


async def read_tasks(journal: Journal, parts: Parts) -> None:
    """Before anything else: perhaps there is nothing left to do."""
    if event := tasks_event(journal.state, parts):
        await journal.record(event)


async def call_hook(journal: Journal, parts: Parts, hook: str, extra: dict[str, object]) -> None:
    """Run one of the user's commands with the run's facts on stdin. Its failure is recorded, never raised."""
    tending = journal.state.spec.tending
    command: str | None = getattr(tending, hook)
    if command is None:
        return
    facts = run_facts(journal.state, parts.clock.now()) | {"hook": hook} | extra
    call = parts.usher.call(command, codec.encode_value(facts), timeout=tending.timeout)
    answer = await unless(journal, parts.clock, call, lambda: hook != "on_stop" and journal.state.stop is not None)
    if answer is None:
        return  # a human is waiting for the stop
    code, output = answer
    if code != 0:
        how = f"took longer than {tending.timeout:g} s" if code is None else f"exit {code}"
        last_line = output.strip().rsplit("\n", 1)[-1]
        await journal.record(ev.HookFailed(hook=hook, detail=f"{how}: {last_line}"[:500]))


def run_facts(state: LoopState, now: float) -> dict[str, object]:
    """What the user's commands are told about the run."""
    return {
        "run_id": state.run_id,
        "name": state.spec.name,
        "goal": state.spec.goal,
        "cwd": state.spec.cwd,
        "attempts": state.attempts,
        **progress_of(state, now),
    }


async def rest(journal: Journal, parts: Parts, wait: Wait) -> None:
    """Wait, and say so; whatever is recorded meanwhile ends the rest, so that it is decided anew."""
    if journal.resting != wait:
        journal.resting = wait
        await journal.record(ev.ContinuousWaiting(cause=wait.cause, until=wait.until))
    within = None if wait.until is None else wait.until - parts.clock.now()
    if journal.state.held is not None:
        within = min(LOOK_EVERY, within or LOOK_EVERY)
    await news(journal, parts.clock, within)


async def finish(journal: Journal, parts: Parts, stop: Stop) -> None:
    """End the agent, write down the stop, tell the user's command."""
    await parts.close_agents()
    if journal.state.spec.branch_per == "iteration":
        await _leave_branch(journal, parts)
    left = [] if stop.reason in DONE else await what_is_left(parts)
    await journal.record(*left, *stop_events(journal.state, stop, parts.clock.now()))
    await call_hook(journal, parts, "on_stop", {"stop_reason": stop.reason, "detail": stop.detail})
    await leave_folder(journal, parts)
    await journal.save()
    await journal.trim()


async def _leave_branch(journal: Journal, parts: Parts) -> None:
    """The branch of an iteration that committed nothing is of no use to anybody."""
    try:
        await parts.workspace.leave_iteration()
    except WorkspaceError as trouble:
        await journal.tell(ev.ContinuousWarning(message=f"an empty branch is left behind: {trouble}"))


def stop_events(state: LoopState, stop: Stop, now: float) -> list[Event]:
    """The events of a stop: the limit behind it, if any, then the stop itself."""
    written: list[Event] = []
    limit = limit_of(stop.reason)
    value = limit.value(state.policy) if limit else None
    if limit is not None and value is not None:
        written.append(
            ev.ContinuousLimitReached(limit_type=limit.field, limit_value=value, current_value=limit.used(state, now))
        )
    progress = progress_of(state, now)
    detail = "; ".join(filter(None, (stop.detail, _unheard(state))))
    if stop.reason in DONE:
        written.append(
            ev.ContinuousCompleted(stop_reason=stop.reason, detail=detail, verified=state.verified, **progress)
        )
    else:
        written.append(ev.ContinuousSuspended(stop_reason=stop.reason, detail=detail, **progress))
    return written


def _unheard(state: LoopState) -> str:
    """What a human said and no prompt has carried: with a limit reached, or in the very moment of the stop."""
    return f"{count(len(state.messages), 'message')} the agent has not heard" if state.messages else ""
