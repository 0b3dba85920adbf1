"""untildone as a library: a goal and a policy in, an honest result out."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from untildone import config, wiring
from untildone.core.contract import Contract, commands
from untildone.core.events import Record
from untildone.core.limits import has_finite_limit
from untildone.core.policy import Policy, RunSpec
from untildone.core.state import LoopState
from untildone.core.stopping import DONE, Reason, exit_code
from untildone.errors import UsageError
from untildone.ports import Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run ended."""

    run_id: str
    reason: Reason
    detail: str
    success: bool
    """The goal is reached: exactly then the exit code is 0."""
    verified: bool
    """The loop itself saw every check pass."""
    attempts: int
    successes: int
    cost_usd: float
    """Replies served in full."""
    estimated_usd: float
    """Besides: what replies cut in mid-air probably cost."""
    commit: str | None
    """The last commit made, if any."""
    exit_code: int


def run(goal: str, policy: Policy, **rest: Any) -> Result:
    """Pursue a goal until it is reached or the policy ends it. Takes what `run_async` takes."""
    return asyncio.run(run_async(goal, policy, **rest))


async def run_async(
    goal: str,
    policy: Policy,
    *,
    cwd: str | Path = ".",
    checks: Sequence[str] = (),
    on_event: Callable[[Record], None] | None = None,
    agent: Agent | Callable[[], Agent] | None = None,
    name: str | None = None,
    store: str | Path | None = None,
    then: Sequence[str | Path] = (),
    **spec: Any,
) -> Result:
    """Pursue a goal; `spec` takes the other fields of RunSpec, `on_event` is told every record as it is written.

    `then` names files with goals: each starts when the one before is reached, and the result is the last run's.
    A run ends its agent: with `then`, `agent` is a function that makes one for each goal.
    """
    if not goal.strip():
        raise UsageError("the goal is empty: say what should be reached")
    if not has_finite_limit(policy) and not policy.unbounded:
        raise UsageError("the policy has no finite limit: set one, or unbounded=True")
    folder = Path(cwd).resolve()
    wanted = RunSpec(
        goal=goal,
        cwd=str(folder),
        name=name or config.run_name(folder, goal),
        contract=Contract(checks=commands(*checks)),
        then=tuple(str(Path(file).resolve()) for file in then),
        **spec,
    )
    wanted = wiring.with_goals(wanted)
    if wanted.then and agent is not None and not callable(agent):
        raise UsageError("a run ends its agent: with `then`, give a function that makes an agent for each goal")
    clock = wiring.system_clock()
    state_dir = Path(store) if store is not None else config.state_dir(os.environ)
    log = wiring.open_log(state_dir, clock)
    around = wiring.Surroundings(log=log, state_dir=state_dir, env=dict(os.environ), clock=clock, observer=on_event)
    run_id = wiring.new_run_id()
    try:
        while True:
            staffed = replace(around, agent=agent() if callable(agent) else agent)
            state = await wiring.start_run(wanted, policy, staffed, run_id=run_id)
            if not await wiring.goes_on(log, state):
                return _result(state)
            run_id, wanted, policy = wiring.next_run(state, clock.now())
    finally:
        await log.close()


def _result(state: LoopState) -> Result:
    reason = Reason(state.stop_reason or Reason.INTERNAL_ERROR)
    return Result(
        run_id=state.run_id,
        reason=reason,
        detail=state.stop_detail,
        success=reason in DONE,
        verified=state.verified,
        attempts=state.attempts,
        successes=state.successes,
        cost_usd=state.spend.cost_usd,
        estimated_usd=state.spend.estimated_usd,
        commit=state.last_commit,
        exit_code=exit_code(reason),
    )
