"""untildone as a library: a goal and a policy in, an honest result out."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from untildone import config, wiring
from untildone.core import check_specs
from untildone.core.coherence import coherent
from untildone.core.contract import CheckSpec, Contract
from untildone.core.dataclass import dataclass
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
    landed: str | None
    """The newest commit that arrived on the base, with `--land merge` and `--land pr`."""
    pull_request: str | None
    """The address of the pull request, if there is or was one."""
    exit_code: int


def run(goal: str, policy: Policy, **rest: Any) -> Result:
    """Pursue a goal until it is reached or the policy ends it. Takes what `run_async` takes."""
    return asyncio.run(run_async(goal, policy, **rest))


async def run_async(
    goal: str,
    policy: Policy,
    *,
    cwd: str | Path = ".",
    checks: Sequence[str | CheckSpec] = (),
    contract: Contract | None = None,
    on_event: Callable[[Record], None] | None = None,
    agent: Agent | Callable[[], Agent] | None = None,
    reviewer: Agent | Callable[[], Agent] | None = None,
    name: str | None = None,
    store: str | Path | None = None,
    then: Sequence[str | Path] = (),
    **spec: Any,
) -> Result:
    """Pursue a goal; `on_event` is told every record as it is written.

    `checks` are commands, or more than that as CheckSpec; `contract` says all else about proof: the clean room, the
    guard, checks of its own. `spec` takes the other fields of RunSpec: `landing`, `review`, `options`, `tending`...
    `reviewer` is who reviews, if `review` says when; None: the agent that `review` names.
    `then` names files with goals: each starts when the one before is reached, and the result is the last run's.
    A run ends its agents: with `then`, `agent` and `reviewer` are functions that make one for each goal.
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
        contract=_contract(contract or Contract(), checks),
        then=tuple(str(Path(file).resolve()) for file in then),
        **spec,
    )
    wanted = wiring.with_goals(coherent(wanted))
    if wanted.then and any(one is not None and not callable(one) for one in (agent, reviewer)):
        raise UsageError("a run ends its agent: with `then`, give a function that makes an agent for each goal")
    if reviewer is not None and wanted.review.when == "never":
        raise UsageError("there is a reviewer and nothing to review: say when, with review=Review(when=...)")
    clock = wiring.system_clock()
    state_dir = Path(store) if store is not None else config.state_dir(os.environ)
    log = wiring.open_log(state_dir, clock)
    around = wiring.Surroundings(log=log, state_dir=state_dir, env=dict(os.environ), clock=clock, observer=on_event)
    run_id = wiring.new_run_id()
    try:
        while True:
            staffed = replace(around, agent=_made(agent), reviewer=_made(reviewer))
            state = await wiring.start_run(wanted, policy, staffed, run_id=run_id)
            if not await wiring.goes_on(log, state):
                return _result(state)
            run_id, wanted, policy = wiring.next_run(state, clock.now())
    finally:
        await log.close()


def _contract(contract: Contract, checks: Sequence[str | CheckSpec]) -> Contract:
    try:
        return replace(contract, checks=check_specs.checks([*contract.checks, *checks]))
    except ValueError as wrong:
        raise UsageError(f"checks: {wrong}") from wrong


def _made(agent: Agent | Callable[[], Agent] | None) -> Agent | None:
    return agent() if callable(agent) else agent


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
        landed=state.arrival.landed,
        pull_request=state.arrival.url or None,
        exit_code=exit_code(reason),
    )
