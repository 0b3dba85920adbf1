"""What replies cost by Claude Code's price list: for live books, and for replies no result accounts for."""

import math
import re
from collections.abc import Mapping
from typing import Any

from untildone.core.dataclass import dataclass
from untildone.core.outcome import Usage

MILLION = 1_000_000
WEB_SEARCH = 0.01
_LARGEST = 1 << 53
"""A count beyond this is not a count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens of a model family."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_write_hour: float
    """Cache entries kept for an hour instead of five minutes."""
    long_above: int | None = None
    """Prompts with more tokens than this cost `long_factor` times as much, in every field."""
    long_factor: float = 1.0


def _price(
    input_: float, output: float, cache_read: float, long_above: int | None = None, long_factor: float = 1.0
) -> Price:
    """Cache writes follow from the input price, the same way for every family."""
    return Price(
        input=input_, output=output, cache_read=cache_read, cache_write=1.25 * input_, cache_write_hour=2 * input_,
        long_above=long_above, long_factor=long_factor,
    )  # fmt: skip


PRICES: Mapping[str, Price] = {
    "claude-fable-5-2": _price(8, 40, 0.2),
    "claude-fable-5-1": _price(10, 50, 0.25),
    "claude-fable-5": _price(10, 50, 1),
    "claude-mythos-5-2": _price(8, 40, 0.2),
    "claude-mythos-5-1": _price(10, 50, 0.25),
    "claude-mythos-5": _price(10, 50, 1),
    "claude-opus-5-5": _price(4, 20, 0.2),
    "claude-opus-5": _price(5, 25, 0.5),
    "claude-opus-4-8": _price(5, 25, 0.5),
    "claude-opus-4-7": _price(5, 25, 0.5),
    "claude-opus-4-6": _price(5, 25, 0.5),
    "claude-opus-4-5": _price(5, 25, 0.5),
    "claude-sonnet-5-5": _price(2, 10, 0.1),
    "claude-sonnet-5": _price(2, 10, 0.2),
    "claude-sonnet-4-6": _price(3, 15, 0.3),
    "claude-sonnet-4-5": _price(3, 15, 0.3),
    "claude-sonnet-4": _price(3, 15, 0.3),
    "claude-3-7-sonnet": _price(3, 15, 0.3),
    "claude-3-5-sonnet": _price(3, 15, 0.3),
    "claude-haiku-5-5": _price(0.1, 0.5, 0.01, long_above=100_000, long_factor=5),
    "claude-haiku-4-5": _price(1, 5, 0.1),
    "claude-3-5-haiku": _price(0.8, 4, 0.08),
}

DEAREST = _price(
    max(price.input for price in PRICES.values()),
    max(price.output for price in PRICES.values()),
    max(price.cache_read for price in PRICES.values()),
)
"""What a model without a known price is assumed to cost, so that a budget holds for it too."""

# `us.anthropic.claude-x-v1:0`, `claude-x@20251001`, `claude-x-20251001`, `claude-x[1m]`: all one family.
_FAMILY = re.compile(r"(?:[\w./-]*[./])?(claude-[a-z0-9-]+?)(?:[-@]\d{8})?(?:-v\d+(?::\d+)?)?(?:\[1m\])?")


def price_of(model: str) -> Price | None:
    """Find the price of a model by its family; None if the table has none."""
    named = _FAMILY.fullmatch(model[:200])
    return PRICES.get(named[1]) if named else None


def cost(model: str, usage: Usage, *, hour_cache_writes: int = 0) -> float | None:
    """Return what one reply costs in US dollars; None for a model without a price: unknown, never 0.

    `hour_cache_writes` is the part of `usage.cache_write_tokens` that is kept for an hour.
    """
    price = price_of(model)
    return None if price is None else _cost(price, usage, hour_cache_writes)


def _cost(price: Price, usage: Usage, hour_cache_writes: int = 0) -> float:
    hour = min(hour_cache_writes, usage.cache_write_tokens)
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    is_long = price.long_above is not None and prompt > price.long_above
    return (price.long_factor if is_long else 1.0) * (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * price.cache_read
        + (usage.cache_write_tokens - hour) * price.cache_write
        + hour * price.cache_write_hour
    ) / MILLION  # fmt: skip


def usage_from(raw: Any) -> Usage:
    """Read the usage object of a reply, whatever it holds."""
    fields = raw if isinstance(raw, Mapping) else {}
    return Usage(
        count(fields.get("input_tokens")),
        count(fields.get("output_tokens")),
        count(fields.get("cache_read_input_tokens")),
        count(fields.get("cache_creation_input_tokens")),
    )


def cost_from(model: str, raw: Any) -> float | None:
    """Return what a reply with this usage object costs: cache lifetimes and web searches included."""
    fields = raw if isinstance(raw, Mapping) else {}
    writes, tools = fields.get("cache_creation"), fields.get("server_tool_use")
    hour = count(writes.get("ephemeral_1h_input_tokens")) if isinstance(writes, Mapping) else 0
    searches = count(tools.get("web_search_requests")) if isinstance(tools, Mapping) else 0
    tokens = cost(model, usage_from(fields), hour_cache_writes=hour)
    return None if tokens is None else tokens + searches * WEB_SEARCH


def dearest(usage: Usage) -> float:
    """Return what these tokens cost at the dearest known price, every cache write kept for an hour."""
    return _cost(DEAREST, usage, usage.cache_write_tokens)


def priced(model: str, raw: Any) -> tuple[float | None, float]:
    """Return the cost of a reply and its estimate: (cost, 0) with a known price, else (None, dearest)."""
    known = cost_from(model, raw)
    return (known, 0.0) if known is not None else (None, dearest(usage_from(raw)))


def count(value: Any) -> int:
    """Read a number of things; 0 for anything that is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST else 0


def dollars(value: Any) -> float | None:
    """Read an amount of money; None for anything that is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return float(value)
