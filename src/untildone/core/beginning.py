"""How a run begins: the first event, which holds all that is needed to pursue the goal again."""

from untildone.core.events import ContinuousStarted
from untildone.core.policy import Policy, RunSpec


def beginning(run_id: str, spec: RunSpec, policy: Policy) -> ContinuousStarted:
    """The event that starts a run."""
    return ContinuousStarted(
        run_id=run_id,
        goal=spec.goal,
        limits={
            "max_runs": policy.max_runs,
            "max_cost_usd": policy.max_cost_usd,
            "max_duration_seconds": policy.max_duration,
            "max_iterations": policy.max_iterations,
            "max_tokens": policy.max_tokens,
            "deadline": policy.deadline,
        },
        completion_signal=policy.completion_signal,
        completion_threshold=policy.completion_threshold,
        policy=policy,
        spec=spec,
    )
