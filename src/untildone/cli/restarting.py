"""A worker that is started again: the run goes on as humans ordered since, and as its environment says anew."""

from dataclasses import replace

from untildone import config, wiring
from untildone.cli.driving import Job
from untildone.cli.running import resumable
from untildone.cli.streams import say
from untildone.core.advice import handle
from untildone.core.figures import count
from untildone.core.limits import limit_of
from untildone.core.policy import Policy, RunSpec
from untildone.core.printable import one_line
from untildone.core.restarted import Said, asked_by_start, kept_orders, paused_by, said_last
from untildone.core.state import LoopState
from untildone.engine.journal import load_state
from untildone.ports import EventLog


async def worker_job(log: EventLog, resolved: config.Resolved, spec: RunSpec, policy: Policy) -> Job | None:
    """The run that was broken off in this sandbox, else a new one; None: a human's limit ended it, and holds."""
    if held := await _held_by_order(log, spec, policy):
        say(held)
        return None
    old = await resumable(log, spec, wiring.system_clock().now())
    if old is None:
        return Job(run_id=wiring.new_run_id(), begin=(spec, policy))
    records = await log.read(old.run_id)
    said = said_last(records)
    before = asked_by_start(old, said, (spec, _as_said(policy, resolved, said, old)))
    greeting = f"resuming {old.spec.name} after {count(old.attempts, 'iteration')}"
    if old.paused:
        greeting += f"; it is paused by {one_line(paused_by(records), 60)}, and waits until a person resumes it"
    return Job(run_id=old.run_id, before=(*before, *kept_orders(old, records)), greeting=greeting)


def _as_said(policy: Policy, resolved: config.Resolved, said: Said | None, old: LoopState) -> Policy:
    """A deadline like 07:30 is another moment every day: the same words do not undo what a human ordered instead."""
    written = resolved.value("deadline")
    if said is None or written is None or old.policy.deadline == said.policy.deadline:
        return policy
    meant = config.deadline_at(written, said.at)
    return replace(policy, deadline=meant) if meant == said.policy.deadline else policy


async def _held_by_order(log: EventLog, spec: RunSpec, policy: Policy) -> str:
    """Why nothing is to be started: a limit that a human set ended the last run, and the environment is as it was."""
    rows = [row for row in await log.runs() if row.name == spec.name and row.folder == spec.cwd]
    newest = max(rows, key=lambda row: row.created_at, default=None)
    if newest is None or newest.status != "suspended":
        return ""
    state = await load_state(log, newest.run_id)
    limit, said = limit_of(state.stop_reason or ""), said_last(await log.read(newest.run_id))
    if limit is None or said is None or limit.value(state.policy) == limit.value(said.policy):
        return ""
    if limit.value(policy) != limit.value(said.policy):
        return ""
    name = handle(state)
    return (
        f"{name} has reached a limit that was ordered ({limit.field}), and no new run is started: "
        f"resume it with `untildone resume {name}` and a higher limit, or set another one in the environment"
    )
