"""The money side of one iteration: replies as they stream by, and the results that account for them."""

import math
from collections.abc import Mapping
from typing import Any

from untildone.agents.prices import cost_from, count, dollars, usage_from
from untildone.agents.stream import Line
from untildone.core.dataclass import dataclass
from untildone.core.events import Event
from untildone.core.outcome import Usage
from untildone.core.trace import AgentReply, AgentReplyStarted

_ROUNDING = 1e-9


@dataclass(slots=True)
class _Reply:
    model: str
    usage: dict[str, Any]


class Books:
    """Every reply is told once, every result is booked once, and what no result covers is added from the replies."""

    def __init__(self, iteration_num: int, *, baseline_usd: float) -> None:
        self._iteration_num = iteration_num
        self._current: str | None = None
        self._under_way: dict[str, _Reply] = {}
        # Seen only as assistant lines (subagents): their input is known, their output is not.
        self._unmeasured: dict[str, _Reply] = {}
        self._served: set[str] = set()
        self._since_result: list[_Reply] = []
        self._results: list[float | None] = []
        self._result_usage = Usage()
        self._last_total = baseline_usd
        self._booked_estimate = 0.0

    def start(self, message_id: str, model: str, usage: Any) -> list[Event]:
        """A reply began to stream."""
        if not message_id or message_id in self._served:
            return []
        self._current = message_id
        self._unmeasured.pop(message_id, None)
        reply = self._under_way[message_id] = _Reply(model, dict(usage) if isinstance(usage, Mapping) else {})
        return [self._started(message_id, reply)]

    def progress(self, message_id: str | None, usage: Any) -> None:
        """A reply under way reported its usage so far."""
        reply = self._under_way.get(message_id or self._current or "")
        if reply is not None and isinstance(usage, Mapping):
            # A delta may leave out, or send as zero, what `message_start` already said.
            reply.usage.update({key: value for key, value in usage.items() if value or key not in reply.usage})

    def finish(self, message_id: str | None) -> list[Event]:
        """A reply was served in full."""
        name = message_id or self._current or ""
        reply = self._under_way.pop(name, None)
        if reply is None:
            return []
        self._served.add(name)
        self._since_result.append(reply)
        return [
            AgentReply(
                iteration_num=self._iteration_num,
                message_id=name,
                model=reply.model,
                usage=usage_from(reply.usage),
                cost_usd=cost_from(reply.model, reply.usage),
            )
        ]

    def mention(self, message_id: str, model: str, usage: Any, *, is_whole: bool = False) -> list[Event]:
        """A reply shows up as an assistant line: the only sign of it when its stream is not forwarded.

        After streams that broke off Claude Code asks without one: such a reply comes whole, its usage is final.
        """
        if not message_id or message_id in self._served or message_id in self._under_way:
            return []
        if is_whole:
            return [*self.start(message_id, model, usage), *self.finish(message_id)]
        if message_id in self._unmeasured:
            return []
        reply = self._unmeasured[message_id] = _Reply(model, dict(usage) if isinstance(usage, Mapping) else {})
        return [self._started(message_id, reply)]

    def book_result(self, line: Line) -> None:
        """Take a result's word for everything since the result before it."""
        total = dollars(line.total_cost_usd)
        since = line.model_usage_since_last_result
        if isinstance(since, Mapping):
            self._results.append(math.fsum(dollars(_field(model, "costUSD")) or 0.0 for model in since.values()))
            self._result_usage = sum(map(_model_usage, since.values()), self._result_usage)
        elif total is not None:
            # A total that shrank was set to zero in between.
            self._results.append(total - self._last_total if total >= self._last_total else total)
            self._result_usage += usage_from(line.usage)
        else:
            return  # no books in it: the replies stay to be counted one by one
        self._set_cut_apart()
        self._last_total = total if total is not None else self._last_total
        self._since_result.clear()
        self._unmeasured.clear()

    def _set_cut_apart(self) -> None:
        """Claude books a reply that broke off if it saw its beginning: that part of the result is an estimate.

        With subagents about it cannot be told apart, and the result stands as it is.
        """
        served = [cost_from(reply.model, reply.usage) for reply in self._since_result]
        booked = self._results[-1]
        if not self._under_way or self._unmeasured or booked is None or None in served:
            return
        excess = booked - math.fsum(cost for cost in served if cost is not None)
        if excess > _ROUNDING:
            self._results[-1] = booked - excess
            self._booked_estimate += excess
            self._under_way.clear()

    @property
    def cost_usd(self) -> float | None:
        """All replies served in full; None when one of them has no price."""
        parts = [*self._results, *(cost_from(reply.model, reply.usage) for reply in self._since_result)]
        known = [part for part in parts if part is not None]
        return math.fsum(known) if len(known) == len(parts) else None

    @property
    def estimated_usd(self) -> float:
        """What replies that were cut in mid-air, or never measured, cost at least."""
        return self._booked_estimate + math.fsum(usd for _, usd in self.cut_replies)

    @property
    def cut_replies(self) -> tuple[tuple[str, float], ...]:
        """Id and least cost of every reply whose end was not seen."""
        replies = {**self._under_way, **self._unmeasured}
        return tuple((name, cost_from(reply.model, reply.usage) or 0.0) for name, reply in replies.items())

    @property
    def usage(self) -> Usage:
        """Tokens of all replies served in full."""
        return sum((usage_from(reply.usage) for reply in self._since_result), self._result_usage)

    def _started(self, message_id: str, reply: _Reply) -> Event:
        return AgentReplyStarted(
            iteration_num=self._iteration_num,
            message_id=message_id,
            model=reply.model,
            usage=usage_from(reply.usage),
            cost_usd=cost_from(reply.model, reply.usage),
        )


def _model_usage(model: Any) -> Usage:
    return Usage(
        count(_field(model, "inputTokens")),
        count(_field(model, "outputTokens")),
        count(_field(model, "cacheReadInputTokens")),
        count(_field(model, "cacheCreationInputTokens")),
    )


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None
