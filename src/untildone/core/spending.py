"""Adding up what was spent: served replies, estimates and what nobody knows, each in its own column."""

from dataclasses import replace

from untildone.core.faults import LIMIT_REACHED, PAUSED, QUOTA_KEPT, STEERED, STOPPED, TAKEN
from untildone.core.figures import dollars
from untildone.core.outcome import Usage
from untildone.core.printable import one_line
from untildone.core.state import LoopState, OpenIteration, Spend

Sums = tuple[tuple[str, float], ...]

SUBSCRIPTION = "subscription"
"""Paid by the month: the dollars of its replies are what they would have cost with an API key."""
_API_KEY = "API key"
_LANES = {
    "none": SUBSCRIPTION,  # no key in use: a login, or its token
    "oauth": SUBSCRIPTION,
    "ANTHROPIC_API_KEY": _API_KEY,
    "apiKeyHelper": _API_KEY,
    "/login managed key": _API_KEY,
    # Older versions named the settings file the key came from.
    "user": _API_KEY,
    "project": _API_KEY,
    "org": _API_KEY,
    "temporary": _API_KEY,
}
# Iterations that a human or a limit cut off were ended on purpose: nothing was lost to trouble.
_ASKED_FOR = frozenset({fault.name for fault in (STOPPED, TAKEN, PAUSED, STEERED, LIMIT_REACHED, QUOTA_KEPT)})
_NAME_WIDTH = 40


def spend(cost: float | None, estimated: float, usage: Usage) -> Spend:
    """One entry of the ledger; with neither a price nor an estimate it counts as unknown, never as nothing."""
    unknown = int(cost is None and not estimated)
    return Spend(cost_usd=cost or 0.0, estimated_usd=estimated, unknown_costs=unknown, usage=usage)


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


def book(state: LoopState, entry: Spend) -> LoopState:
    """Close the open iteration with what it has cost, also in the column of the purse that paid."""
    lanes = filed(state.spend_by_lane, lane_name(state.lane), entry.total_usd)
    return replace(state, spend=total(state.spend, entry), spend_by_lane=lanes, open=None)


def filed(so_far: Sums, under: str, usd: float) -> Sums:
    """Sums by name, with one more amount under one of them."""
    sums = dict(so_far)
    sums[under] = sums.get(under, 0.0) + usd
    return tuple(sums.items()) if usd else so_far


def lane_name(source: str | None) -> str:
    """The purse behind what Claude Code calls `apiKeySource`, in a person's words."""
    return _LANES.get(source or "", "unknown")


def lanes(state: LoopState) -> Sums:
    """What each purse has paid so far, the open iteration included."""
    paying = state.open.spend.total_usd if state.open else 0.0
    return filed(state.spend_by_lane, lane_name(state.lane), paying)


def paid_by(state: LoopState) -> str:
    """`subscription $3.10 (nominal), API key $0.40`; nothing while no purse is known."""
    sums = lanes(state)
    if all(lane == "unknown" for lane, _ in sums):
        return ""
    return ", ".join(f"{lane} {dollars(usd)}{' (nominal)' if lane == SUBSCRIPTION else ''}" for lane, usd in sums)


def lost_to_retries(state: LoopState) -> str:
    """`$0.42 to retries: overloaded $0.30, hang $0.12`: what broke off by itself, the dearest first."""
    sums = sorted((entry for entry in state.lost_usd if entry[0] not in _ASKED_FOR), key=lambda entry: -entry[1])
    parts = ", ".join(f"{one_line(fault, _NAME_WIDTH).replace('_', ' ')} {dollars(usd)}" for fault, usd in sums)
    return f"{dollars(sum(usd for _, usd in sums))} to retries: {parts}" if sums else ""
