"""The money side of one iteration: replies as they stream by, and the results that account for them."""

import math
from collections.abc import Mapping
from typing import Any

from untildone.agents.prices import count, dearest, dollars, price_of, priced, usage_from
from untildone.agents.stream import Line
from untildone.core.dataclass import dataclass
from untildone.core.events import Event
from untildone.core.outcome import Usage
from untildone.core.trace import AgentPriceUnknown, AgentReply, AgentReplyStarted

_ROUNDING = 1e-9


@dataclass(slots=True)
class _Reply:
    model: str
    usage: dict[str, Any]

    @property
    def known_usd(self) -> float | None:
        """None: the model has no known price."""
        return priced(self.model, self.usage)[0]

    @property
    def estimated_usd(self) -> float:
        """0 if the model has a known price."""
        return priced(self.model, self.usage)[1]


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
        self._results: list[float] = []
        self._result_usage = Usage()
        self._last_total = baseline_usd
        self._booked_estimate = 0.0
        self._unpriced: set[str] = set()

    def start(self, message_id: str, model: str, usage: Any) -> list[Event]:
        """A reply began to stream."""
        if not message_id or message_id in self._served:
            return []
        self._current = message_id
        self._unmeasured.pop(message_id, None)
        reply = self._under_way[message_id] = _Reply(model, dict(usage) if isinstance(usage, Mapping) else {})
        return self._began(message_id, reply)

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
                cost_usd=reply.known_usd,
                estimated_usd=reply.estimated_usd,
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
        return self._began(message_id, reply)

    def book_result(self, line: Line) -> None:
        """Take a result's word for everything since the result before it."""
        total = dollars(line.total_cost_usd)
        since = line.model_usage_since_last_result
        if isinstance(since, Mapping):
            known = [model for name, model in since.items() if price_of(name) is not None]
            unpriced = [_model_usage(model) for name, model in since.items() if price_of(name) is None]
            self._results.append(math.fsum(dollars(_field(model, "costUSD")) or 0.0 for model in known))
            # What Claude says a model costs whose price is not known is a guess, and may be a low one.
            self._booked_estimate += math.fsum(map(dearest, unpriced))
            self._result_usage = sum([*map(_model_usage, known), *unpriced], self._result_usage)
        elif total is not None and not self._unpriced:
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
        served = [reply.known_usd for reply in self._since_result]
        booked = self._results[-1]
        if not self._under_way or self._unmeasured or None in served:
            return
        excess = booked - math.fsum(cost for cost in served if cost is not None)
        if excess > _ROUNDING:
            self._results[-1] = booked - excess
            self._booked_estimate += excess
            self._under_way.clear()

    @property
    def cost_usd(self) -> float:
        """All replies served in full whose price is known."""
        return math.fsum([*self._results, *(reply.known_usd or 0.0 for reply in self._since_result)])

    @property
    def estimated_usd(self) -> float:
        """What replies without a known price cost at most; and those cut in mid-air, or never measured, at least."""
        unpriced = math.fsum(reply.estimated_usd for reply in self._since_result)
        return self._booked_estimate + unpriced + math.fsum(usd for _, usd in self.cut_replies)

    @property
    def cut_replies(self) -> tuple[tuple[str, float], ...]:
        """Id and least cost of every reply whose end was not seen."""
        replies = {**self._under_way, **self._unmeasured}
        return tuple((name, reply.known_usd or reply.estimated_usd) for name, reply in replies.items())

    @property
    def usage(self) -> Usage:
        """Tokens of all replies served in full."""
        return sum((usage_from(reply.usage) for reply in self._since_result), self._result_usage)

    def _began(self, message_id: str, reply: _Reply) -> list[Event]:
        """The beginning of a reply; before the first one of a model without a known price, that."""
        begun = AgentReplyStarted(
            iteration_num=self._iteration_num,
            message_id=message_id,
            model=reply.model,
            usage=usage_from(reply.usage),
            cost_usd=reply.known_usd,
            estimated_usd=reply.estimated_usd,
        )
        if price_of(reply.model) is not None or reply.model in self._unpriced:
            return [begun]
        self._unpriced.add(reply.model)
        return [AgentPriceUnknown(iteration_num=self._iteration_num, model=reply.model), begun]


def _model_usage(model: Any) -> Usage:
    return Usage(
        count(_field(model, "inputTokens")),
        count(_field(model, "outputTokens")),
        count(_field(model, "cacheReadInputTokens")),
        count(_field(model, "cacheCreationInputTokens")),
    )


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None
