"""The published protocol of sandboxes, for servers that know no other: one event a request, messages by polling.

Such a server remembers neither runs nor numbers, so how far a run has come is kept here, event by event.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from untildone.core.codec import event_type
from untildone.core.events import ContinuousCompleted, ContinuousSuspended, Record
from untildone.core.wire import PUBLISHED, Batch, Order, Receipt, Wire
from untildone.errors import UplinkDown, UplinkRefused
from untildone.ports import Parcel
from untildone.uplink.client import HttpUplink
from untildone.uplink.owed import Accounts, PublishedCursor

_NOT_OURS = frozenset({400, 404, 405, 422, 501})
"""How a server answers what it does not know."""
_BROKEN = frozenset({500})
"""How one answers that was written without a thought of other bodies."""
_UNUSABLE = frozenset({400, 413, 422})
"""How it refuses one event: less of it may be taken."""
_JSON = {"Content-Type": "application/json"}
_ENDS = {ContinuousSuspended.TYPE: ContinuousCompleted.TYPE}
"""The published protocol has one end of a run, whatever its reason."""


class _Event(msgspec.Struct, frozen=True):
    event_type: str
    event_data: msgspec.Raw
    source: str


class _Message(msgspec.Struct, frozen=True):
    content: Any = ""
    message_type: Any = ""
    timestamp: Any = ""


class _Acknowledged(msgspec.Struct, frozen=True):
    event_id: Any = ""


class SandboxUplink(HttpUplink):
    """An uplink to any server of sandboxes: batches where it knows them, else the published protocol."""

    def __init__(
        self,
        url: str,
        sandbox_id: str,
        token: str = "",
        *,
        accounts: Accounts,
        dress: Callable[[Record], Wire],
        renewed: Callable[[], str] | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(url, sandbox_id, token, dress=dress, renewed=renewed, key=accounts.key)
        self._accounts = accounts
        self._tell = tell
        self._takes_batches: bool | None = None
        self._asking = asyncio.Lock()
        self._cursors: dict[str, int] = {}
        self._messages: list[Order] = []

    # --- which of the two ------------------------------------------------------------------------

    async def _speaks_published(self, run_id: str) -> bool:
        async with self._asking:
            if self._takes_batches is None:
                try:
                    self._takes_batches = await self._knows_batches(run_id)
                except UplinkRefused:
                    return False  # undecided: the call itself gets the reason
        return not self._takes_batches

    async def _knows_batches(self, run_id: str) -> bool:
        """Asked until the server has taken something: a proxy whose server is being restarted knows nothing, either."""
        if self._cursor(run_id):
            return False
        known = self._accounts.read(run_id)
        is_this = known is not None and (known.server, known.sandbox_id) == (self._base, self._sandbox_id)
        if known is not None and is_this and known.acknowledged:
            return True
        if await self._has_receipt("GET", self._run(run_id), self._shown(run_id), _NOT_OURS):
            return True
        empty = msgspec.json.encode(Batch(run_id=run_id))
        return await self._has_receipt("POST", self._events, _JSON, _NOT_OURS | _BROKEN, body=empty)

    async def _has_receipt(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        unknown: frozenset[int],
        *,
        body: bytes | None = None,
    ) -> bool:
        """Whether the server answers as ours does."""
        try:
            answer = await self.ask(method, path, body=body, headers=headers)
        except (UplinkDown, UplinkRefused) as problem:
            if problem.status in unknown:
                return False
            raise
        try:
            msgspec.json.decode(answer, type=Receipt)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if not _is_page(answer):
                return False
            self._read(answer, Receipt)  # raises
        return True

    # --- the published protocol, behind the methods of an uplink ---------------------------------

    async def received(self, run_id: str) -> Receipt:
        """How much of a run the server has."""
        if await self._speaks_published(run_id):
            return Receipt(last_seq=self._cursor(run_id))
        return await super().received(run_id)

    async def send(self, run_id: str, records: Sequence[Record], *, tenure: int = 0) -> Receipt:
        """Hand over records, in order."""
        if not await self._speaks_published(run_id):
            return await super().send(run_id, records, tenure=tenure)
        before = self._cursor(run_id)
        new = [record for record in records if record.seq > before]
        for record in new:
            await self._publish(run_id, record)
        return Receipt(last_seq=self._cursor(run_id), stored=len(new))

    async def orders(self, run_id: str, *, after: int, wait: float) -> list[Order]:
        """Orders with a higher number; a server of the published protocol has messages, and is not waited for."""
        if not await self._speaks_published(run_id):
            return await super().orders(run_id, after=after, wait=wait)
        if not self._cursor(run_id):
            # The server forgets messages it hands out: none is fetched before its protocol is certain.
            raise UplinkDown(f"{self.name} has not taken an event yet")
        self._messages = [one for one in self._messages if one.number > after]
        if not self._messages:
            found = self._read(await self.ask("GET", f"{self._sandbox}/messages"), list[_Message])
            self._messages = [_order(one, number) for number, one in enumerate(found, after + 1)]
        return list(self._messages)

    async def take(self, run_id: str, *, tenure: int) -> int:
        """A server of the published protocol knows of no drivers."""
        return tenure + 1 if await self._speaks_published(run_id) else await super().take(run_id, tenure=tenure)

    async def put(self, run_id: str, parcel: Parcel) -> None:
        """A server of the published protocol takes no parcels."""
        if not await self._speaks_published(run_id):
            await super().put(run_id, parcel)

    @property
    def _events(self) -> str:
        return f"{self._sandbox}/events"

    async def _publish(self, run_id: str, record: Record) -> None:
        dressed = await asyncio.to_thread(self._dress, record)
        name = event_type(record.event)
        event = _Event(_ENDS.get(name, name), dressed.event_data, dressed.source)
        # For servers that look at it: the same event may come twice if an answer was lost.
        headers = {**_JSON, "Idempotency-Key": f"{run_id}:{record.seq}"}
        began = bool(self._cursor(run_id))
        try:
            answer = await self.ask("POST", self._events, body=msgspec.json.encode(event), headers=headers)
        except UplinkDown:
            self._takes_batches = False if began else None
            raise
        except UplinkRefused as refused:
            self._takes_batches = False if began else None
            if refused.status in _UNUSABLE:
                raise UplinkRefused(str(refused), too_large=True, status=refused.status) from None
            raise
        if not began:
            self._begin(answer)
        self._note(run_id, record.seq)

    def _begin(self, answer: bytes) -> None:
        """The first event was taken: by now it is known for certain what the server speaks."""
        if _is_page(answer):
            self._takes_batches = None
            raise UplinkDown(f"{self.name} answered with something else than expected: is it the server of sandboxes?")
        if _event_id(answer).startswith(PUBLISHED):
            self._takes_batches = None
            raise UplinkDown(f"{self.name} was being restarted")
        self._tell(f"{self.name} takes single events only: every event is sent by itself, and messages are polled")

    def _cursor(self, run_id: str) -> int:
        if run_id not in self._cursors:
            found = self._accounts.cursor(run_id)
            is_this = found is not None and (found.server, found.sandbox_id) == (self._base, self._sandbox_id)
            self._cursors[run_id] = found.seq if found is not None and is_this else 0
        return self._cursors[run_id]

    def _note(self, run_id: str, seq: int) -> None:
        self._cursors[run_id] = seq
        self._accounts.write_cursor(run_id, PublishedCursor(server=self._base, sandbox_id=self._sandbox_id, seq=seq))


def _is_page(content: bytes) -> bool:
    """Whether a person is meant to read it, as at the login of a network. Servers of events answer as they like."""
    return content.lstrip().startswith(b"<")


def _event_id(content: bytes) -> str:
    try:
        found = msgspec.json.decode(content, type=_Acknowledged).event_id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


def _order(message: _Message, number: int) -> Order:
    """A message as an order: the driver's log is the memory of what was handed out."""
    return Order(
        number=number,
        kind="message",
        by="server",
        at=_moment(message.timestamp),
        data={"content": message.content, "message_type": message.message_type},
    )


def _moment(text: object) -> float:
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else 0.0
    except (ValueError, OverflowError, OSError):
        return 0.0
