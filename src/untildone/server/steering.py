"""What people ask of runs at the server. Runs of this machine get it into their log, all others as an order.

Nobody else gives orders: whatever a run cannot take is refused here, with a line that says why and what to do.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from untildone.core import events as ev
from untildone.core.chain import has_next
from untildone.core.codec import REPLACEMENT
from untildone.core.dataclass import dataclass
from untildone.core.durations import format_duration
from untildone.core.limits import LIMIT_FIELDS
from untildone.core.policy import Policy
from untildone.core.printable import one_line
from untildone.core.questions import answered, open_questions, shown_question
from untildone.core.state import LoopState
from untildone.core.wire import Order, OrderKind
from untildone.engine.journal import load_state
from untildone.errors import RunNotFound, UntildoneError, UsageError
from untildone.ports import Clock, EventLog
from untildone.server.archive.port import Archive, RunEntry
from untildone.server.fanout import Fanout
from untildone.server.folding import liveness, state_of
from untildone.server.outlook import outlook, refuse_foreign, warning
from untildone.uplink.inbox import event_for

ONLY_NOW = frozenset({"stop", "pause", "skip_wait"})
"""What makes no sense later, to another driver."""
_NAME_WIDTH = 60


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """An order that the run would take."""

    event: ev.Command
    state: LoopState
    alive: bool


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
        by = one_line(by, _NAME_WIDTH)
        data = {name: _storable(value) for name, value in data.items()}
        if entry.origin == "published":
            return await self._queue(entry, kind, data)
        asked = await self._look(entry, kind, data, by)
        number = None
        if entry.origin == "local" and self._log is not None:
            await self._log.append(run_id, [replace(asked.event, order=None)])
        else:
            now, answered = self._clock.now(), asked.state.ordered
            given = await self._archive.orders.give(run_id, kind, data, by=by, now=now, after=answered)
            number = given.number
            self._fanout.ordered(run_id)
        said = outlook(asked.event, kind, asked.state, alive=asked.alive, now=self._clock.now())
        return Given(number=number, said=said)

    async def answer(self, run_id: str, question: str, content: str, *, by: str) -> Given:
        """Answer an open question of the agent's. Raises as `give` does; OrderImpossible, too: it is not open."""
        if shown_question(question) not in await self.questions(run_id):
            raise OrderImpossible("no such question is open: those that are stand in `questions` of the run")
        message = {"content": answered(question, content), "message_type": "user_message", "urgent": False}
        return await self.give(run_id, "message", message, by=by)

    async def questions(self, run_id: str) -> tuple[str, ...]:
        """What the agent asked and nobody has answered, the newest first. RunNotFound: there is no such run."""
        entry = await self._entry(run_id)
        if entry.origin == "published":
            return ()
        # Of a run of this machine, too, only what was masked before it came here.
        state = state_of(entry)
        given = await self._archive.orders.after(run_id, state.ordered, now=self._clock.now())
        return open_questions(state, contents_of(given))

    async def warning(self, run_id: str, kind: OrderKind, data: Mapping[str, Any]) -> str:
        """What a person should say yes to before this is given; nothing for most. Raises as `give` does."""
        entry = await self._entry(run_id)
        if entry.origin == "published":
            return ""
        asked = await self._look(entry, kind, data, "")
        return warning(asked.event, asked.state, alive=asked.alive, now=self._clock.now())

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

    async def _look(self, entry: RunEntry, kind: OrderKind, data: Mapping[str, Any], by: str) -> _Asked:
        """The order as the run would write it down, and the run it is asked of; as `give` raises."""
        if entry.origin == "local":
            # A run of this machine: its log is right here.
            if self._log is None:
                raise OrderImpossible(
                    "this run is one of the machine the server ran on with `--local`: steer it there with `untildone`"
                )
            alive = any(row.run_id == entry.run_id and row.alive for row in await self._log.runs())
            state, silent = await load_state(self._log, entry.run_id), ""
        else:
            now = self._clock.now()
            alive, state = liveness(entry, now), state_of(entry)
            silent = f" (nothing was heard of it for {format_duration(max(0.0, now - entry.heard_at))})"
        event = _event(kind, data, _fit(_meant(kind, data), state, entry, alive=alive, silent=silent), by)
        return _Asked(event=event, state=state, alive=alive)


def contents_of(orders: Iterable[Order]) -> list[str]:
    """What people said in orders that the run has not carried out yet."""
    return [str(order.data.get("content", "")) for order in orders if order.kind == "message"]


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
            f"{name} is a loop inside a Claude Code session, and only that session can continue it: "
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
        raise OrderImpossible(f"{name} has stopped: resume it with `untildone resume {entry.run_id}`{where}")
    return replace(state, phase="running") if listens else state


def _event(
    kind: OrderKind, data: Mapping[str, Any], state: LoopState, by: str, *, interrupts: bool = True
) -> ev.Command:
    """What the run would write down; UsageError when it would refuse."""
    asked = dict(data)
    if kind == "waive":
        refuse_foreign(asked.get("patterns"))
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
