"""What people ask of runs at the server. Runs of this machine get it into their log, all others as an order.

Nobody else gives orders: whatever a run cannot take is refused here, with a line that says why and what to do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from untildone.core import events as ev
from untildone.core.chain import has_next
from untildone.core.codec import REPLACEMENT
from untildone.core.durations import format_duration
from untildone.core.limits import LIMIT_FIELDS, LIMITS, Limit, is_exhausted, is_reached
from untildone.core.policy import Policy
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.core.wire import Order, OrderKind
from untildone.engine.journal import load_state
from untildone.errors import RunNotFound, UntildoneError, UsageError
from untildone.ports import Clock, EventLog
from untildone.server.archive.port import Archive, RunEntry
from untildone.server.fanout import Fanout
from untildone.server.folding import liveness, state_of
from untildone.uplink.inbox import event_for

ONLY_NOW = frozenset({"stop", "pause", "skip_wait"})
"""What makes no sense later, to another driver."""
_NAME_WIDTH = 60

_SAID: Mapping[str, str] = {
    "message": "the agent reads it in its next prompt",
    "stop": "it stops now",
    "pause": "it pauses",
    "resume": "it goes on",
    "limits": "the new limits hold",
    "skip_wait": "it tries now; if the limit still holds, it waits again",
    "waive": "these files may change",
    "reset": "cleared",
}


class OrderImpossible(UntildoneError):
    """As the run stands, this cannot be asked of it."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Something that was asked of a run."""

    number: int | None
    """Of the order; None: there is none, it went straight to where it is read."""
    said: str
    """What comes of it, in one line."""


class Steering:
    """Where people's wishes go."""

    def __init__(self, archive: Archive, fanout: Fanout, clock: Clock, *, log: EventLog | None = None) -> None:
        """`log`: that of the runs of this machine, if they are shown here."""
        self._archive = archive
        self._fanout = fanout
        self._clock = clock
        self._log = log

    async def give(self, run_id: str, kind: OrderKind, data: Mapping[str, Any], *, by: str) -> Given:
        """Ask something of a run.

        RunNotFound: there is none; UsageError: it is asked in a way that cannot work; OrderImpossible: not of this
        run, or not now.
        """
        entry = await self._entry(run_id)
        by = f"dashboard ({one_line(by, _NAME_WIDTH)})"
        data = {name: _storable(value) for name, value in data.items()}
        if entry.origin == "published":
            return await self._queue(entry, kind, data)
        if entry.origin == "local":
            return await self._tell(entry, kind, data, by)
        return await self._order(entry, kind, data, by)

    async def limits(self, run_id: str) -> Policy:
        """The limits of a run as they will be once all is done that was asked of it. RunNotFound: there is none."""
        entry = await self._entry(run_id)
        if entry.origin == "local" and self._log is not None:
            return (await load_state(self._log, run_id)).policy
        if entry.origin == "published":
            return Policy()
        state = state_of(entry)
        policy = state.policy
        for order in await self._archive.orders.after(run_id, state.ordered, now=self._clock.now()):
            if order.kind == "limits":
                changes: dict[str, Any] = {name: order.data[name] for name in LIMIT_FIELDS if name in order.data}
                policy = replace(policy, **changes)
        return policy

    async def _entry(self, run_id: str) -> RunEntry:
        entry = await self._archive.runs.entry(run_id)
        if entry is None:
            raise RunNotFound(f"there is no run {one_line(run_id, 100)} here")
        return entry

    async def _queue(self, entry: RunEntry, kind: OrderKind, data: Mapping[str, Any]) -> Given:
        """A program that knows the published endpoints only."""
        if kind != "message":
            raise OrderImpossible(
                "this worker only fetches messages: one of the type `interrupt` is what it may stop for"
            )
        event = _event(kind, data, LoopState(phase="running"), "", interrupts=False)
        assert isinstance(event, ev.MessageReceived)
        now = self._clock.now()
        await self._archive.orders.put(entry.sandbox_id, event.content, event.message_type, now=now)
        return Given(number=None, said="it waits until the worker asks for messages")

    async def _tell(self, entry: RunEntry, kind: OrderKind, data: Mapping[str, Any], by: str) -> Given:
        """A run of this machine: its log is right here."""
        if self._log is None:
            raise OrderImpossible(
                "this run is one of the machine the server ran on with `--local`: steer it there with `untildone`"
            )
        alive = any(row.run_id == entry.run_id and row.alive for row in await self._log.runs())
        state = await load_state(self._log, entry.run_id)
        event = _event(kind, data, _fit(_meant(kind, data), state, entry, alive=alive, silent=""), by)
        await self._log.append(entry.run_id, [replace(event, order=None)])
        said = _outlook(event, state, self._clock.now(), alive=alive) or _said(kind, data, alive=alive)
        return Given(number=None, said=said)

    async def _order(self, entry: RunEntry, kind: OrderKind, data: Mapping[str, Any], by: str) -> Given:
        """A run elsewhere: its worker fetches it."""
        now = self._clock.now()
        alive = liveness(entry, now)
        silent = f" (nothing was heard of it for {format_duration(max(0.0, now - entry.heard_at))})"
        state = state_of(entry)
        event = _event(kind, data, _fit(_meant(kind, data), state, entry, alive=alive, silent=silent), by)
        order = await self._archive.orders.give(entry.run_id, kind, dict(data), by=by, now=now)
        self._fanout.ordered(entry.run_id)
        said = _outlook(event, state, now, alive=alive) or _said(kind, data, alive=alive)
        return Given(number=order.number, said=said)


def _storable(value: Any) -> Any:
    """Text as any database can hold it."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", REPLACEMENT)
    return [_storable(item) for item in value] if isinstance(value, list | tuple) else value


def _fit(kind: OrderKind, state: LoopState, entry: RunEntry, *, alive: bool, silent: str) -> LoopState:
    """The state in which an order is looked at; OrderImpossible when the run cannot take it."""
    name = entry.projection.name or entry.run_id
    if state.spec.in_session:
        raise OrderImpossible(
            f"{name} is a loop inside a Claude Code session, which alone can go on with it: "
            f"`untildone loop stop {entry.run_id}` ends it"
        )
    # Between two goals of a chain somebody still listens: a stop keeps the next one from starting.
    listens = alive and has_next(state) and kind == "stop"
    if state.phase == "completed" and not listens:
        raise OrderImpossible(f"{name} is done, nothing of this would reach it: start a new run")
    if kind in ONLY_NOW and (not alive or state.phase == "suspended"):
        raise OrderImpossible(f"{name} is not running{silent if state.phase == 'running' else ''}: nobody would do it")
    if kind == "resume" and state.phase == "suspended":
        where = f" on {entry.projection.host}" if entry.projection.host else ""
        raise OrderImpossible(f"{name} has stopped: go on with `untildone resume {entry.run_id}`{where}")
    return replace(state, phase="running") if listens else state


def _event(
    kind: OrderKind, data: Mapping[str, Any], state: LoopState, by: str, *, interrupts: bool = True
) -> ev.Command:
    """What the run would write down; UsageError when it would refuse."""
    asked = dict(data)
    message_type = asked.pop("message_type", None) if not interrupts else None
    order = Order(number=0, kind=kind, by=by, at=0.0, data=asked)
    event = event_for(order, state, math.inf)
    if isinstance(event, ev.OrderRefused):
        raise UsageError(event.reason)
    if isinstance(event, ev.MessageReceived) and isinstance(message_type, str):
        event = replace(event, message_type=one_line(message_type, _NAME_WIDTH) or event.message_type)
    assert isinstance(event, ev.Command)
    return event


def _meant(kind: OrderKind, data: Mapping[str, Any]) -> OrderKind:
    """A message that interrupts is a stop, as it always was with the published endpoint."""
    return "stop" if kind == "message" and data.get("message_type") == "interrupt" else kind


def _said(kind: OrderKind, data: Mapping[str, Any], *, alive: bool) -> str:
    kind = _meant(kind, data)
    if kind == "message" and data.get("urgent") is True and alive:
        return "the agent is told at once"
    if kind == "stop" and data.get("after_iteration") is True:
        return "it stops after its running iteration"
    return _SAID[kind] if alive else f"{_SAID[kind]}, once somebody goes on with it"


def _outlook(event: ev.Command, state: LoopState, now: float, *, alive: bool) -> str:
    """What comes of limits that are used up as soon as they hold; nothing for all others."""
    if not isinstance(event, ev.LimitsChanged):
        return ""
    changed: dict[str, Any] = dict(event.changes)
    after = replace(state, policy=replace(state.policy, **changed))

    def moment(limit: Limit) -> float:
        # Nobody works on a run that stands still: only the clock on the wall goes on.
        return now if alive or limit.field == "deadline" else state.last_at

    full = [limit for limit in LIMITS if limit.field in changed and is_reached(limit, after, moment(limit))]
    if not full:
        return ""
    first = full[0]
    used = "less than what is used" if is_exhausted(first, after, moment(first)) else "as good as used up"
    what = "this deadline is past" if first.field == "deadline" else f"{first.field.replace('_', ' ')}: that is {used}"
    if not alive:
        return f"{what}: whoever goes on with it is stopped at once"
    is_cut = state.open is None or any(limit.cuts for limit in full)
    return f"{what}: it stops {'now' if is_cut else 'after its running iteration'}"
