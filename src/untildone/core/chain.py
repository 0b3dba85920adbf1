"""One goal after the other: what the next run is, from the one that is done."""

from dataclasses import replace
from hashlib import sha256

from untildone.core.policy import Policy, RunSpec
from untildone.core.state import LoopState
from untildone.core.stopping import exit_code

_ID_LENGTH = 12


def has_next(state: LoopState) -> bool:
    """Is this goal reached, with another one to follow?"""
    return state.phase == "completed" and exit_code(state.stop_reason or "") == 0 and bool(state.spec.then)


def next_run_id(run_id: str) -> str:
    """The id of the run that follows: always the same, so that no crash can start it twice or forget it."""
    return sha256(f"{run_id}\0then".encode()).hexdigest()[:_ID_LENGTH]


def next_spec(spec: RunSpec, *, goal: str, name: str) -> RunSpec:
    """The next goal with the same settings. What the last one left uncommitted is no reason to end the night."""
    return replace(
        spec,
        goal=goal,
        name=name,
        task_file=None,
        task_prompt=None,
        keep_dirty=True,
        then=spec.then[1:],
        then_goals=spec.then_goals[1:],
    )


def knows_goals(spec: RunSpec) -> bool:
    """Whether the goals that follow are known, and not only the files they are in (as in runs of older versions)."""
    return len(spec.then_goals) == len(spec.then)


def not_started(state: LoopState) -> str:
    """What to say of a goal that is reached while nothing of the one that follows is in the log."""
    return f"The next goal, {state.spec.then[0]}, was not started: `untildone resume {state.run_id}` starts it."


def next_policy(state: LoopState, now: float) -> Policy:
    """The same limits, with what is left of money, tokens and time. Nothing left is 0: that run stops at once."""
    policy = state.policy
    left: dict[str, float | int] = {}
    if policy.max_cost_usd is not None:
        left["max_cost_usd"] = max(0.0, policy.max_cost_usd - state.spent_usd)
    if policy.max_tokens is not None:
        left["max_tokens"] = max(0, policy.max_tokens - state.spent_tokens)
    if policy.max_duration is not None:
        left["max_duration"] = max(0.0, policy.max_duration - state.elapsed(now))
    return replace(policy, **left)  # type: ignore[arg-type]  # each value has its field's type
