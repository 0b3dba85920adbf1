"""A run read back from a server, to go on with it here. What comes is somebody else's word: bounded, and checked."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, TypeVar
from urllib.parse import quote

import msgspec

from untildone.core.codec import decode
from untildone.core.event import Kind, Record
from untildone.core.printable import one_line
from untildone.core.wire import NAME, RUN_ID
from untildone.errors import UplinkDown, UplinkRefused, UsageError
from untildone.uplink.client import HttpUplink

T = TypeVar("T")

PAGE = 1000
NAMESAKES = 100
"""Runs that are looked through for a name."""
PAGE_CAP = 64 << 20
PARCEL_CAP = 64 << 20
"""Bytes of one answer."""
MOST_EVENTS = 1_000_000
"""Control events of one run: more would not fit into the memory of an ordinary machine."""
PARCEL_PATIENCE = 300.0


_COUNT = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class FarRun(msgspec.Struct, frozen=True):
    """A run as the server lists it."""

    run_id: RUN_ID
    sandbox_id: str
    origin: str
    last_seq: _COUNT
    tenure: _COUNT = 0
    alive: bool = False
    name: str = ""
    host: str = ""


class _Runs(msgspec.Struct, frozen=True):
    runs: list[FarRun]


class _Event(msgspec.Struct, frozen=True):
    seq: _COUNT
    at: float
    kind: Kind
    type: NAME
    version: int
    data: msgspec.Raw


class _Page(msgspec.Struct, frozen=True):
    events: list[_Event]
    next: int | None = None


class Listed(msgspec.Struct, frozen=True):
    """A parcel, without its content."""

    name: str
    seq: _COUNT
    size: _COUNT
    sha256: str


class _List(msgspec.Struct, frozen=True):
    parcels: list[Listed]


class Reader:
    """Reads runs through the API, with whatever right the token gives."""

    def __init__(self, uplink: HttpUplink, sandbox_id: str) -> None:
        """`sandbox_id` is who takes the run over."""
        self._uplink = uplink
        self._sandbox_id = sandbox_id

    async def meant(self, run: str) -> str:
        """The id of the run that is meant by its id or its name. UsageError if that could be several."""
        path = f"/api/v1/runs?text={quote(run, safe='')}&limit={NAMESAKES:d}"
        found = self._read(await self._uplink.ask("GET", path, cap=PAGE_CAP), _Runs).runs
        if any(one.run_id == run for one in found):
            return run
        named = [one.run_id for one in found if one.name == run]
        if len(named) > 1:
            raise UsageError(
                f"{one_line(run, 60)} is the name of {len(named)} runs: say which, {' or '.join(named[:5])}"
            )
        return named[0] if named else run

    async def run(self, run_id: str) -> FarRun:
        """The run as it stands; UplinkDown when it is not there."""
        found = self._read(await self._uplink.ask("GET", f"/api/v1/runs/{quote(run_id, safe='')}"), FarRun)
        if found.run_id != run_id:
            raise UplinkDown(f"{self._uplink.name} answered with another run than the one it was asked for")
        return found

    async def control(self, run_id: str) -> list[Record]:
        """What decided, in order."""
        found: list[Record] = []
        after: int | None = 0
        while after is not None:
            path = f"/api/v1/runs/{quote(run_id, safe='')}/events?kind=control&after={after:d}&limit={PAGE:d}"
            page = self._read(await self._uplink.ask("GET", path, cap=PAGE_CAP), _Page)
            for one in page.events:
                if found and one.seq <= found[-1].seq:
                    raise UplinkDown(f"{self._uplink.name} gives the events of the run in disorder")
                event = decode(one.type, one.version, one.kind, bytes(one.data))
                found.append(Record(seq=one.seq, at=one.at, event=event))
            if len(found) > MOST_EVENTS or (page.next is not None and page.next <= after):
                raise UplinkDown(f"{self._uplink.name} gives more events than a run can have")
            # Pages without anything could go on for ever.
            after = page.next if page.events else None
        return found

    async def parcels(self, run_id: str) -> Mapping[str, Listed]:
        """What travelled beside the events, by name. UplinkRefused to whom the conversation is no business."""
        return {one.name: one for one in self._read(await self._either(run_id, "parcels"), _List).parcels}

    async def parcel(self, run_id: str, listed: Listed) -> bytes:
        """A parcel, as it was sent."""
        content = await self._either(run_id, f"parcels/{quote(listed.name)}", cap=PARCEL_CAP, patience=PARCEL_PATIENCE)
        if hashlib.sha256(content).hexdigest() != listed.sha256:
            raise UplinkDown(f"{self._uplink.name} gave another parcel than it lists: try again")
        return content

    async def take(self, run_id: str, tenure: int) -> int:
        """Have the run driven from here from now on; the new tenure. UplinkRefused if somebody was faster."""
        return await self._uplink.take(run_id, tenure=tenure)

    async def _either(self, run_id: str, rest: str, *, cap: int = PAGE_CAP, patience: float | None = None) -> bytes:
        """As whoever may read any run, or else as the sandbox that drives this one."""
        run = quote(run_id, safe="")
        try:
            return await self._uplink.ask("GET", f"/api/v1/runs/{run}/{rest}", cap=cap, patience=patience)
        except UplinkRefused:
            own = f"/api/v1/sandboxes/{quote(self._sandbox_id, safe='')}/runs/{run}/{rest}"
            return await self._uplink.ask("GET", own, cap=cap, patience=patience)

    def _read(self, content: bytes, type_: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=type_)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            said = f"{self._uplink.name} answered with something else than expected: is it an untildone server?"
            raise UplinkDown(said) from None
