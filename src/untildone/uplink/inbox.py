"""What people ask of a run at the server: fetched, written into the log with its number, and so done once.

The log is the memory: `LoopState.ordered` says what was answered already, whatever died in between.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from untildone.core import events as ev
from untildone.core.limits import LIMIT_FIELDS, has_finite_limit
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.core.wire import Order, Receipt
from untildone.errors import LeaseLost, StoreError, UplinkDown, UplinkRefused
from untildone.ports import Uplink
from untildone.uplink.outbox import FIRST_REST, LONGEST_REFUSED_REST, LONGEST_REST, REFUSED_REST

WAIT = 25.0
"""Seconds one question for orders waits at the server: proxies cut what takes a minute."""
LONGEST_MESSAGE = 20_000
LONGEST_PATTERN = 500
MOST_PATTERNS = 100
MOST = 2**53
"""A limit beyond this is none, and not every store and reader could hold it."""
_WHOLE = frozenset({"max_runs", "max_iterations", "max_tokens", "max_calls_per_hour"})
_ONLY_NOW = frozenset({"stop", "pause", "skip_wait"})
_INTERRUPT = "interrupt"

Record = Callable[[ev.Event], Awaitable[None]]


def event_for(order: Order, state: LoopState, driven_for: float) -> ev.Event:
    """The event that carries an order out, or says why it cannot be; `driven_for`: seconds of the present driver."""
    by = one_line(order.by, 100) or "server"
    data: dict[str, Any] = dict(order.data)
    kind = "stop" if order.kind == "message" and data.get("message_type") == _INTERRUPT else order.kind

    def refused(reason: str) -> ev.Event:
        return ev.OrderRefused(by=by, order=order.number, reason=reason)

    if state.phase == "completed":
        return refused("the run is done: nothing of this would reach it")
    # Clocks jump and laptops sleep: what counts is what the server had seen when it was given, if it says so.
    is_past = order.seen < state.driven_from if order.seen else order.age > driven_for
    if isinstance(kind, str) and kind in _ONLY_NOW and is_past:
        return refused(f"{kind.replace('_', '-')} was asked of an earlier driver of this run")
    make = _MAKERS.get(kind) if isinstance(kind, str) else None
    if make is None:
        return refused("this version does not know how to do that")
    try:
        return make(data, state, {"by": by, "order": order.number})
    except ValueError as wrong:
        return refused(str(wrong))


Made = Callable[[dict[str, Any], LoopState, dict[str, Any]], ev.Event]


def _message(data: dict[str, Any], _: LoopState, ours: dict[str, Any]) -> ev.Event:
    content = data.get("content")
    if not isinstance(content, str) or not content.strip():
        raise ValueError("the message is empty")
    if len(content) > LONGEST_MESSAGE:
        raise ValueError(f"the message is longer than {LONGEST_MESSAGE:,} characters")
    kind = data.get("message_type")
    kind = one_line(kind, 50) if isinstance(kind, str) and kind.strip() else "user_message"
    return ev.MessageReceived(content=content, message_type=kind, urgent=data.get("urgent") is True, **ours)


def _stop(data: dict[str, Any], _: LoopState, ours: dict[str, Any]) -> ev.Event:
    return ev.StopRequested(after_iteration=data.get("after_iteration") is True, **ours)


def _limits(data: dict[str, Any], state: LoopState, ours: dict[str, Any]) -> ev.Event:
    if not data:
        raise ValueError("no limit was named")
    changes = {name: _limit(name, value) for name, value in data.items()}
    policy = replace(state.policy, **changes)
    if not policy.unbounded and not has_finite_limit(policy):
        raise ValueError("nothing would limit the run any more: keep or set at least one limit")
    return ev.LimitsChanged(changes=changes, **ours)


def _limit(name: str, value: object) -> Any:
    if name not in LIMIT_FIELDS:
        raise ValueError(f"{one_line(name, 50)} is no limit")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST:
        raise ValueError(f"{name} must be a number above zero, or none")
    if name in _WHOLE:
        if value != int(value):
            raise ValueError(f"{name} must be a whole number")
        return int(value)
    return float(value)


def _waive(data: dict[str, Any], _: LoopState, ours: dict[str, Any]) -> ev.Event:
    named = data.get("patterns")
    patterns: list[Any] = named if isinstance(named, list) and len(named) <= MOST_PATTERNS else []
    if not patterns or not all(isinstance(one, str) and 0 < len(one.strip()) <= LONGEST_PATTERN for one in patterns):
        raise ValueError("a waiver needs patterns of paths")
    return ev.WaiverGiven(patterns=tuple(patterns), **ours)


def _reset(data: dict[str, Any], _: LoopState, ours: dict[str, Any]) -> ev.Event:
    circuit, session, history = (data.get(name) is True for name in ("circuit", "session", "history"))
    if not (circuit or session or history):
        raise ValueError("a reset must name what is to be cleared")
    return ev.ResetRequested(circuit=circuit, session=session, history=history, **ours)


_MAKERS: dict[str, Made] = {
    "message": _message,
    "stop": _stop,
    "pause": lambda _, __, ours: ev.PauseRequested(**ours),
    "resume": lambda _, __, ours: ev.ResumeRequested(**ours),
    "skip_wait": lambda _, __, ours: ev.SkipWaitRequested(**ours),
    "limits": _limits,
    "waive": _waive,
    "reset": _reset,
}


class Inbox:
    """Fetches the orders for one run."""

    def __init__(
        self,
        uplink: Uplink,
        run_id: str,
        *,
        state: Callable[[], LoopState],
        record: Record,
        pause: float = 0.5,
        wait: float = WAIT,
        driven_for: Callable[[], float],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`record` returns when the event is in the log and in the state; `driven_for`: seconds of this driver."""
        self._uplink, self._run_id = uplink, run_id
        self._state, self._record = state, record
        self._pause, self._wait, self._jitter = pause, wait, jitter
        self._driven_for = driven_for
        self._failures = 0
        self._nudged = asyncio.Event()

    def heard(self, receipt: Receipt) -> None:
        """The server says what its newest order is: a reason to ask at once."""
        if receipt.orders > self._state().ordered:
            self._nudged.set()

    async def run(self) -> None:
        """Fetch and write down, until cancelled or until the run is another's. The outbox tells about trouble."""
        while True:
            try:
                await self._fetch()
            except LeaseLost:
                return
            except UplinkRefused as refused:
                if refused.taken:
                    return
                await self._back_off(REFUSED_REST, LONGEST_REFUSED_REST)
            except (UplinkDown, StoreError):
                await self._back_off(FIRST_REST, LONGEST_REST)
            else:
                self._failures = 0
                await self._rest(self._pause)

    async def _fetch(self) -> None:
        orders = await self._uplink.orders(self._run_id, after=self._state().ordered, wait=self._wait)
        for order in sorted(orders, key=lambda order: order.number):
            if order.number > self._state().ordered:
                await self._record(event_for(order, self._state(), self._driven_for()))

    async def _back_off(self, first: float, most: float) -> None:
        self._failures += 1
        longest = min(most, first * 2 ** min(self._failures - 1, 10))
        await self._rest(longest * (0.5 + self._jitter() / 2))

    async def _rest(self, seconds: float) -> None:
        self._nudged.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudged.wait()
