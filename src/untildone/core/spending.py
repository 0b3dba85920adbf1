"""Adding up what was spent: served replies, estimates and what nobody knows, each in its own column."""

from dataclasses import replace

from untildone.core.outcome import Usage
from untildone.core.state import OpenIteration, Spend


def spend(cost: float | None, estimated: float, usage: Usage) -> Spend:
    """One entry of the ledger; without a price it counts as unknown, never as nothing."""
    return Spend(cost_usd=cost or 0.0, estimated_usd=estimated, unknown_costs=1 if cost is None else 0, usage=usage)


def total(one: Spend, other: Spend) -> Spend:
    """Both together."""
    return Spend(
        cost_usd=one.cost_usd + other.cost_usd,
        estimated_usd=one.estimated_usd + other.estimated_usd,
        unknown_costs=one.unknown_costs + other.unknown_costs,
        usage=one.usage + other.usage,
    )


def with_estimate(left: OpenIteration) -> Spend:
    """What an iteration nobody closed has cost: a reply cut in mid-air is an estimate."""
    return replace(left.spend, estimated_usd=left.spend.estimated_usd + left.reply_under_way_usd)


def lost(so_far: tuple[tuple[str, float], ...], fault: str, usd: float) -> tuple[tuple[str, float], ...]:
    """What failed iterations have cost, by fault, with one more of them."""
    sums = dict(so_far)
    sums[fault] = sums.get(fault, 0.0) + usd
    return tuple(sums.items()) if usd else so_far
